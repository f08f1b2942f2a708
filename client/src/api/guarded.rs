//! Commands under a lock, looked at by the server that runs them.

use std::sync::Arc;

use crate::api::guard::Guard;
use crate::proto::command::Command;
use crate::proto::reply::{Reply, checked};
use crate::run::core::Core;
use crate::value::error::{Error, Loss};

/// Runs commands only while a guard holds its lock; from [`Client::guarded`](crate::Client::guarded).
///
/// ```no_run
/// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
/// use mortise_client::Error;
///
/// let guard = client.lock("{stock:42}").acquire().await?;
/// match client.guarded(&guard).run(["SET", "{stock:42}:count", "7"]).await {
///     Err(Error::NotHeld) => eprintln!("nothing was written"),
///     written => println!("{:?}", written?),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Guarded<'a> {
    core: &'a Arc<Core>,
    guard: &'a Guard,
}

impl<'a> Guarded<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, guard: &'a Guard) -> Guarded<'a> {
        Guarded { core, guard }
    }

    /// Sends one command. Its reply is the reply; nothing runs where the lock is not held by the guard's token.
    ///
    /// # Errors
    /// [`Error::NotHeld`], after which the guard is lost; [`Error::Lost`] if it is already; [`Error::Invalid`] if it is no
    /// guard of this client; [`Error::Refused`] with the command's own error; [`Error::Connection`]: it may have run.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// # let guard = client.lock("{stock:42}").acquire().await?;
    /// let reply = client.guarded(&guard).run(["INCRBY", "{stock:42}:count", "-3"]).await?;
    /// println!("{reply:?} left");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T: AsRef<[u8]>>(
        &self,
        command: impl IntoIterator<Item = T>,
    ) -> Result<Reply, Error> {
        let hold = &self.guard.hold;
        if !Arc::ptr_eq(self.core, &hold.core) {
            return Err(Error::Invalid(
                "the guard is none of this client's".to_owned(),
            ));
        }
        let token = self.guard.check()?;
        let command: Vec<Vec<u8>> = command
            .into_iter()
            .map(|arg| arg.as_ref().to_vec())
            .collect();
        let server = &self.core.servers[0];
        let guarded = Command::Guard(hold.name.who(), token, &command);
        match checked(server.call(&guarded).await, &server.name) {
            Err(Error::Refused { code, .. }) if code == "NOTHELD" => {
                // A change of the hold may have given it another token.
                if hold.with(|state| state.belief.token) == token {
                    hold.lose(Loss::Denied);
                }
                Err(Error::NotHeld)
            }
            answer => answer,
        }
    }
}
