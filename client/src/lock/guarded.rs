//! Commands that the server runs only while a lock is held (`LOCK.GUARD`).

use std::sync::Arc;

use crate::lock::client::Client;
use crate::lock::{Guard, Hold, Request};
use crate::value::{Error, Loss};
use crate::wire::{Reply, Verb};

impl Client {
    /// A command that runs only if a guard of this client holds its lock at that moment, which the server checks
    /// (`LOCK.GUARD`). So data on the same server needs no other fence. In a cluster its keys have the lock's slot.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let guard = client.lock("{stock:42}").acquire().await?;
    /// client.guarded(&guard).run(["DECR", "{stock:42}:count"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn guarded<'a>(&'a self, guard: &'a Guard) -> Guarded<'a> {
        Guarded {
            client: self,
            guard,
        }
    }
}

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
    client: &'a Client,
    guard: &'a Guard,
}

impl Guarded<'_> {
    /// Sends one command and returns its reply; nothing runs if the lock is not held by the guard's
    /// token.
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
        let (core, hold) = (&self.client.0, self.guard.on_one_server()?);
        if !Arc::ptr_eq(core, &hold.core) {
            let text = "the guard belongs to another client";
            return Err(Error::Invalid(text.to_owned()));
        }
        let token = self.guard.check()?;
        let command = command.into_iter().map(|arg| arg.as_ref().to_vec());
        let guarded = Verb::Guard(token, command.collect());
        match Request::new(core, &hold.name, guarded).reply().await {
            Err(Error::Refused { code, .. }) if code == "NOTHELD" => {
                // A change of the hold may have given it another token.
                if hold.token() == token {
                    hold.lose(Loss::Denied);
                }
                Err(Error::NotHeld)
            }
            reply => reply,
        }
    }
}
