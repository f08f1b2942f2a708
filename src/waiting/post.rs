//! The boxes of this server, and the time on which they live.
//!
//! A box lives on time in which the server reads commands, see [`Post::listened`]: a stall, a pause or a long
//! script must not cost a client its box.

use std::cell::{Cell, RefCell};

use mortise_core::{Instant, Mail, Token, TokenClock};

use crate::ffi::Context;
use crate::keys::tokens;
use crate::time::clock;

/// How much later than planned a tick may be before the server counts as having read nothing meanwhile, in milliseconds.
const LATE: u64 = 200;
/// The boxes.
#[derive(Debug, Default)]
pub(crate) struct Post {
    pub(super) mail: RefCell<Mail>,
    /// Where the numbers of boxes and letters come from.
    numbers: RefCell<TokenClock>,
    /// How long the server has read no commands, in milliseconds.
    not_reading: Cell<u64>,
    ticked: Cell<Instant>,
    /// There are boxes without a LOCK.MAIL in time.
    pub(super) overdue: Cell<bool>,
}

impl Post {
    /// The server has started: time counts from here on.
    pub(crate) fn on_start(&self, now: Instant) {
        self.ticked.set(now);
    }

    /// Boxes, letters, and requests by mail.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let mail = self.mail.borrow();
        [mail.boxes(), mail.letters(), mail.requests()].map(|count| count as u64)
    }

    /// Boxes were closed, and are not empty yet.
    pub(crate) fn boxes_leave(&self) -> bool {
        self.overdue.get() || self.mail.borrow().has_leaving()
    }

    /// Now, less the time in which the server read no commands.
    pub(super) fn listened(&self, now: Instant) -> Instant {
        // A command may come ahead of the tick that notes the time before it.
        let away = now.millis_since(self.ticked.get());
        let not_reading = self.not_reading.get() + if away > LATE { away } else { 0 };
        Instant::from_millis(now.as_millis().saturating_sub(not_reading))
    }

    /// A number larger than every one before, over boxes and restarts, as tokens are.
    pub(super) fn next_number(&self, ctx: &Context<'_>) -> u64 {
        let last = Token::new(tokens::clock(ctx).borrow().last());
        let number = self.numbers.borrow_mut().next(clock::wall(), last);
        number.map_or(0, Token::get)
    }

    /// Every 100 ms. `paused`: the server may have held commands back.
    pub(super) fn on_tick(&self, now: Instant, paused: bool) {
        let away = now.millis_since(self.ticked.replace(now));
        if paused || away > LATE {
            self.not_reading.set(self.not_reading.get() + away);
        }
    }
}
