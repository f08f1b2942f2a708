//! Taking over a hold that was passed on: by passing it once more, to a name of this client's.

use std::sync::Arc;

use crate::acquire::{Armed, Wanted, Won, grant};
use crate::core::Core;
use crate::error::{Error, Failed, Loss};
use crate::hold::Share;
use crate::name::{Bytes, Mode, Names};
use crate::node::Place;
use crate::request::{self, Name};
use crate::retry::Tries;
use crate::time::BootInstant;
use crate::token::Token;

/// Takes over what `owner` holds by `token`. An unknown outcome is made known by asking again, because nobody works under `owner`.
pub(crate) async fn take_over(
    core: &Arc<Core>,
    names: &Names,
    wanted: &Wanted,
    owner: Bytes,
    token: Token,
) -> Result<Share, Error> {
    let [key] = &*wanted.keys else {
        return Err(Error::Invalid(
            "several keys are taken over one by one".into(),
        ));
    };
    let (mut tries, lease) = (
        Tries::new(wanted.wait, BootInstant::now()),
        wanted.terms.lease,
    );
    let name = Name {
        keys: wanted.keys.clone(),
        owner: names.next(),
    };
    let route = core.servers.route(key).await?;
    let place = Place {
        node: route.node.clone(),
        key: key.clone(),
    };
    let pass = request::pass(key, &owner, &name.owner, lease, token);
    let renew = request::renew(key, &name.owner, lease, None);
    let armed = Armed::new(core, route, name, lease);
    let mut may_be_done = false;
    loop {
        core.check_open()?;
        let mut asked = ask(core, &place, &pass).await;
        if may_be_done && matches!(asked, Err(Failed::Denied)) {
            asked = ask(core, &place, &renew).await;
        }
        may_be_done |= matches!(asked, Err(Failed::Unknown(_)));
        let failed = match asked {
            Ok((token, sent)) => {
                let won = Won {
                    armed,
                    grant: grant(token, sent, lease),
                };
                return held(core, wanted, won, &place).await;
            }
            Err(failed) => failed,
        };
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

async fn ask(
    core: &Core,
    place: &Place,
    command: &redis::Cmd,
) -> Result<(Token, BootInstant), Failed> {
    let reply = core
        .servers
        .call(place, command, core.settings.reply)
        .await?;
    Ok((request::token(reply.value)?, reply.sent))
}

/// The hold that was taken over: in the mode that it has.
async fn held(core: &Arc<Core>, wanted: &Wanted, won: Won, place: &Place) -> Result<Share, Error> {
    let lower = request::write_once(&place.key, won.owner(), won.grant.token);
    let reply = core.servers.call(place, &lower, core.settings.reply).await;
    let mode = match reply.and_then(|reply| request::number(reply.value)) {
        Ok(_) => Mode::Write,
        Err(Failed::Denied) => Mode::Read,
        Err(failed) => return Err(failed.error(Error::Lost(Loss::Denied))),
    };
    let mut wanted = wanted.clone();
    wanted.terms.mode = mode;
    wanted.held(core, won).await
}
