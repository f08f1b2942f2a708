//! Work under a lock: cancelled when the lock is lost, and the lock released in any case.

use futures_util::future::{Either, select};

use crate::error::{Error, Loss};
use crate::guard::Guard;
use crate::held::Held;
use crate::release::Released;

pub(crate) async fn run<T, F>(guard: Guard, work: impl FnOnce(Held) -> F) -> Result<T, Error>
where
    F: Future<Output = T>,
{
    let done = {
        let work = std::pin::pin!(work(guard.held()));
        let lost = std::pin::pin!(guard.lost());
        match select(work, lost).await {
            Either::Left((value, _)) => guard.loss().map_or(Ok(value), Err),
            Either::Right((loss, _)) => Err(loss),
        }
    };
    match (done, guard.release().await) {
        (Err(loss), _) => Err(Error::Lost(loss)),
        (Ok(_), Ok(Released::Lost)) => Err(Error::Lost(Loss::Denied)),
        // Held when the work ended; that the release has not been answered takes nothing from that.
        (Ok(value), _) => Ok(value),
    }
}
