//! Taking over a hold that was passed on: by passing it once more, to a name of this client's.

use std::sync::Arc;

use redis::Cmd;

use crate::acquire::{Armed, Won, held};
use crate::belief::Grant;
use crate::core::Core;
use crate::error::{Error, Failed, Loss};
use crate::guard::Guard;
use crate::name::{Bytes, Mode, Names};
use crate::node::Place;
use crate::request::{self, Name, Terms};
use crate::retry::Tries;
use crate::time::BootInstant;
use crate::token::Token;

/// Takes over what `owner` holds by `token`. An unknown outcome is made known by asking again, because nobody works under `owner`.
pub(crate) async fn take_over(
    core: &Arc<Core>,
    names: &Names,
    key: Bytes,
    terms: &Terms,
    owner: &Bytes,
    token: Token,
) -> Result<Guard, Error> {
    let mut tries = Tries::new(terms.wait, BootInstant::now());
    let name = Name {
        keys: [key].into(),
        owner: names.next(),
    };
    let route = core.servers.route(&name.keys[0]).await?;
    let armed = Armed::new(core, &route, &name, terms.lease);
    let place = armed.places[0].clone();
    let pass = request::pass(&place.key, owner, &name.owner, terms.lease);
    let pass = request::by(token, pass);
    let renew = request::renew(&place.key, &name.owner, terms.lease);
    let mut may_be_done = false;
    loop {
        core.check_open()?;
        let mut asked = ask(core, &place, terms, &pass).await;
        if may_be_done && matches!(asked, Err(Failed::Denied)) {
            asked = ask(core, &place, terms, &renew).await;
        }
        let failed = match asked {
            Ok(grant) => return taken(core, name, terms, Won { armed, grant }).await,
            Err(failed) => failed,
        };
        may_be_done |= matches!(failed, Failed::Unknown(_));
        let pause = match failed {
            Failed::Denied => Err(Error::Lost(Loss::Denied)),
            failed => tries.after(failed, BootInstant::now()),
        };
        match pause {
            Ok(pause) => core.pause(pause).await,
            Err(error) => {
                if !may_be_done || matches!(error, Error::Lost(_)) {
                    armed.settle();
                }
                return Err(error);
            }
        }
    }
}

async fn ask(core: &Core, place: &Place, terms: &Terms, command: &Cmd) -> Result<Grant, Failed> {
    let limit = core.settings.reply;
    let reply = core.servers.call(place, command, limit).await;
    request::granted(reply?, terms.lease)
}

/// The hold that was taken over: in the mode that it has. This crate's holds write once.
async fn taken(core: &Arc<Core>, name: Name, terms: &Terms, won: Won) -> Result<Guard, Error> {
    let place = won.place();
    let lower = request::writes(&place.key, &name.owner, 1);
    let lower = request::by(won.grant.token, lower);
    let reply = core.servers.call(place, &lower, core.settings.reply).await;
    let mode = match reply.and_then(|reply| request::number(reply.value)) {
        Ok(_) => Mode::Write,
        Err(Failed::Denied) => Mode::Read,
        Err(failed) => return Err(failed.error(Error::Lost(Loss::Denied))),
    };
    let terms = Terms {
        mode,
        ..terms.clone()
    };
    held(core, name.owner, &terms, won).await
}
