//! Sleeps on the boot-time clock.

use std::future::poll_fn;
use std::task::Poll;

use super::Alarm;
use crate::value::BootInstant;

/// Resolves at that moment, on whatever runtime; at once, if it has passed.
pub(crate) async fn sleep_until(when: BootInstant) {
    let mut alarm = None;
    poll_fn(|context| {
        drop(alarm.take());
        if when.remaining().is_zero() {
            return Poll::Ready(());
        }
        alarm = Some(Alarm::at(when, context.waker().clone()));
        Poll::Pending
    })
    .await;
}
