//! Locking what no `.await` is held across.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it; that somebody has panicked with it in hand leaves nothing half done here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
