//! A look at whether the server is there, for those who wait for what it may be long in sending.

use std::sync::Arc;

use redis::Cmd;

use super::{Node, Once, once};
use crate::clock::BootInstant;
use crate::error::Error;
use crate::info;
use crate::link::silence;
use crate::sync::lock;

/// What is known of whether a server is there.
#[derive(Default)]
pub(super) struct Heard {
    /// When a check last found it there.
    at: Option<BootInstant>,
    check: Option<Once<Result<(), Error>>>,
}

impl Node {
    /// Waits until the server has answered that it has the module, for as long as connecting and an answer may take.
    pub(crate) async fn find_module(self: &Arc<Self>) -> Result<(), Error> {
        let patience = self
            .config
            .connect_timeout
            .saturating_add(self.config.response_timeout);
        let cmd = info::info(b"mortise");
        let asking = async {
            loop {
                match self.ask(&cmd).await {
                    // It may hold something else there, or not be ours to read: the module has answered.
                    Ok(_) | Err(Error::Refused(_)) => return Ok(()),
                    // The connection is still being opened.
                    Err(Error::Connection { error, .. }) if error.is_timeout() => {}
                    Err(error) => return Err(error),
                }
            }
        };
        match tokio::time::timeout(patience, asking).await {
            Ok(found) => found,
            Err(_) => Err(self.failure(silence(patience))),
        }
    }

    /// Whether the server still answers, asked on the shared connection; however many ask, one command is sent, and all
    /// are told what came of it. Of several servers it is the one `at` a place, asked about a key that it has.
    pub(crate) async fn check_alive(self: &Arc<Self>, at: Option<At<'_>>) -> Result<(), Error> {
        let check = {
            let mut heard = lock(&self.heard);
            let place = at.map(|at| at.place.to_owned());
            let heard = heard.entry(place.clone()).or_default();
            let fresh = BootInstant::now().back(self.config.response_timeout / 2);
            if heard.at.is_some_and(|at| at >= fresh) {
                return Ok(());
            }
            let check = || {
                let check = Check {
                    node: self.clone(),
                    place,
                    // A cluster's connection sends a PING to all.
                    cmd: at.map_or_else(|| redis::cmd("PING"), |at| info::look(at.key)),
                };
                once(check.run(), Err(Error::Closed))
            };
            heard.check.get_or_insert_with(check).clone()
        };
        check.await
    }
}

/// Which of several servers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) place: &'a str,
    pub(crate) key: &'a [u8],
}

struct Check {
    node: Arc<Node>,
    place: Option<String>,
    cmd: Cmd,
}

impl Check {
    async fn run(self) -> Result<(), Error> {
        let mut answer = self.node.ask(&self.cmd).await;
        if matches!(&answer, Err(Error::Connection { error, .. }) if error.is_timeout()) {
            // It may be the connection that is dead, and not the server.
            answer = self.node.ask(&self.cmd).await;
        }
        match answer {
            // A server that may not be asked this, or is loading, is there all the same.
            Ok(_) | Err(Error::Refused(_)) => {
                self.heard(|heard| heard.at = Some(BootInstant::now()));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn heard(&self, note: impl FnOnce(&mut Heard)) {
        if let Some(heard) = lock(&self.node.heard).get_mut(&self.place) {
            note(heard);
        }
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        self.heard(|heard| heard.check = None);
    }
}
