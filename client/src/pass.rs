//! Taking over a hold that was passed on: by passing it once more, to a name of this client's.

use std::sync::Arc;

use redis::Cmd;

use crate::acquire::Claim;
use crate::belief::Grant;
use crate::core::Core;
use crate::error::{Error, Failed, Loss};
use crate::guard::Guard;
use crate::name::{Bytes, Mode, Names};
use crate::request::{self, Terms};
use crate::retry::Tries;
use crate::time::BootInstant;
use crate::token::Token;

/// Takes over what `owner` holds by `token`. An unknown outcome is made known by asking again, because nobody works under `owner`.
pub(crate) async fn take_over(
    core: &Arc<Core>,
    names: &Names,
    keys: &Arc<[Bytes]>,
    terms: &Terms,
    owner: &Bytes,
    token: Token,
) -> Result<Guard, Error> {
    let mut tries = Tries::new(terms.wait, BootInstant::now());
    let place = core.servers.route(&keys[0]).await?;
    let mut claim = Claim::new(core, place, keys, names.next(), terms);
    claim.is_open = true;
    let (key, lease) = (&keys[0], terms.lease);
    let pass = request::by(token, request::pass(key, owner, &claim.owner, lease));
    let renew = request::renew(key, &claim.owner, lease);
    let mut may_be_done = false;
    loop {
        core.check_open()?;
        let mut asked = ask(&claim, core, &pass).await;
        if may_be_done && matches!(asked, Err(Failed::Denied)) {
            asked = ask(&claim, core, &renew).await;
        }
        let failed = match asked {
            Ok(grant) => return taken(claim, core, grant).await,
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
                claim.is_open = may_be_done && !matches!(error, Error::Lost(_));
                return Err(error);
            }
        }
    }
}

async fn ask(claim: &Claim, core: &Core, command: &Cmd) -> Result<Grant, Failed> {
    let limit = core.settings.reply;
    let reply = core.servers.call(&claim.place, command, limit).await;
    request::granted(reply?, claim.terms.lease)
}

/// The hold that was taken over: in the mode that it has. This crate's holds write once.
async fn taken(mut claim: Claim, core: &Core, grant: Grant) -> Result<Guard, Error> {
    let place = &claim.place;
    let lower = request::writes(&place.key, &claim.owner, 1);
    let lower = request::by(grant.token, lower);
    let reply = core.servers.call(place, &lower, core.settings.reply).await;
    claim.terms.mode = match reply.and_then(|reply| request::number(reply.value)) {
        Ok(_) => Mode::Write,
        Err(Failed::Denied) => Mode::Read,
        Err(failed) => return Err(failed.error(Error::Lost(Loss::Denied))),
    };
    claim.held(grant).await
}
