//! A process that is copied, as daemons and servers with workers are.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// No child takes longer, or it hangs.
const LONGEST_SECONDS: u32 = 30;

/// Runs `child` in a fork of this process, which has this thread alone. `true` if it comes to its end, and does not panic.
pub(crate) fn succeeds_in_a_fork(child: impl FnOnce()) -> bool {
    // SAFETY: the child goes on with this thread, never returns from here, and ends without the parent's destructors.
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
