//! Forks a process, as daemons and servers with workers do.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child that takes longer hangs.
const LONGEST_SECONDS: u32 = 30;

/// Runs `child` in a fork of this process, which has only this thread. `true` if it ends and does not panic.
pub(crate) fn succeeds_in_a_fork(child: impl FnOnce()) -> bool {
    // SAFETY: the child runs on with this thread only, never returns from here, and exits without the parent's destructors.
    match unsafe { libc::fork() } {
        -1 => panic!("{}", std::io::Error::last_os_error()),
        0 => unsafe {
            // SAFETY: both take plain numbers. A child that hangs is killed.
            libc::alarm(LONGEST_SECONDS);
            let ended = catch_unwind(AssertUnwindSafe(child));
            libc::_exit(i32::from(ended.is_err()))
        },
        child => {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            waited == child && status == 0
        }
    }
}
