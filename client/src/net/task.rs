//! Where the tasks of a client begin.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub(crate) fn spawn<T: Send + 'static>(
    on: &Handle,
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    #[cfg(simulated)]
    let task = crate::simulated::of_this_process(task);
    on.spawn(task)
}
