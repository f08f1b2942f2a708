//! What clients of one server and of a quorum are made of.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;

use crate::api::server::Server;
use crate::net::connection::Limits;
use crate::net::dial::Identities;
use crate::net::server as net;
use crate::proto::{Name, Round, Verb, Vote, checked};
use crate::run::{Call, Core};
use crate::value::{BootInstant, Error};

/// Methods that set a field and return what they set it of.
macro_rules! setters {
    ($of:ty { $($(#[$about:meta])* $name:ident($($value:ident: $type:ty)?) => $(.$field:tt)+ = $to:expr;)* }) => {
        impl $of {
            $($(#[$about])* pub fn $name(mut self $(, $value: $type)?) -> $of {
                self$(.$field)+ = $to;
                self
            })*
        }
    };
}

pub(crate) use setters;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) servers: Vec<Server>,
    pub(crate) limits: Limits,
    pub(crate) given: Option<MultiplexedConnection>,
    pub(crate) runtime: Option<Handle>,
}

impl Settings {
    pub(crate) fn build(self) -> Result<Arc<Core>, Error> {
        let here = || Handle::try_current().map_err(|_| Error::NoRuntime);
        let runtime = self.runtime.map_or_else(here, Ok)?;
        let identities = Arc::<Identities>::default();
        let (limits, mut given, count) = (self.limits, self.given, self.servers.len());
        let servers = self.servers.into_iter().enumerate();
        let servers = servers.map(|(number, server)| {
            let identity = (count > 1).then(|| (identities.clone(), number));
            net::Server::new(
                server.parts(),
                given.take(),
                identity,
                limits,
                runtime.clone(),
            )
        });
        let servers = servers.collect();
        Ok(Core::new(servers, limits, identities.clone(), runtime))
    }

    /// The same, where a majority is there and has the module.
    pub(crate) async fn connect(self) -> Result<Arc<Core>, Error> {
        let core = self.build()?;
        let mut round = Round::new(core.servers.len());
        let find = |server| find_module(&core, server).map(move |found| (server, found));
        let mut asking: FuturesUnordered<_> = (0..core.servers.len()).map(find).collect();
        let mut there = 0;
        while let Some((server, answer)) = asking.next().await {
            match answer {
                Ok(()) => there += 1,
                Err(error) => round[server] = Vote::Failed(error),
            }
            if let Some((one, twin)) = core.identities.twins() {
                return Err(Error::Invalid(format!(
                    "{} and {} are the same server, which would vote twice",
                    core.servers[one].name, core.servers[twin].name
                )));
            }
            if there >= core.majority() {
                return Ok(core.clone());
            }
        }
        Err(core.error_of(&round, there))
    }
}

/// Looks for the module until there is an answer, or connecting has taken as long as was allowed.
async fn find_module(core: &Core, server: usize) -> Result<(), Error> {
    let end = BootInstant::now() + core.limits.connect;
    let server = &core.servers[server];
    loop {
        // Of nobody's: whatever the lock, the answer is short.
        server.prepare().await;
        let answer = Call::new(server, &Name::nobodys(b"mortise"), Verb::Info).await;
        match checked(answer, &server.name) {
            Err(Error::Connection { error, .. })
                if error.is_timeout() && !end.remaining().is_zero() => {}
            // Only of a command that is there a user is told that he may not run it.
            Err(Error::Refused { code, .. }) if code == "NOPERM" => return Ok(()),
            found => return found.map(drop),
        }
        core.pause(Duration::from_millis(10)).await;
    }
}
