//! Where fencing tokens come from on this server.

use std::cell::RefCell;

use mortise_core::{Token, TokenClock};

use crate::ffi::{Context, MainThread};

static TOKENS: MainThread<RefCell<TokenClock>> = MainThread::new(RefCell::new(TokenClock::new()));

pub(crate) fn clock(ctx: &Context<'_>) -> &'static RefCell<TokenClock> {
    TOKENS.get(ctx)
}

/// The last token handed out or seen, 0 for none.
pub(crate) fn last(ctx: &Context<'_>) -> u64 {
    TOKENS.get(ctx).borrow().last()
}

/// Takes over the token clock of a file or of a primary. False if it cannot be one.
pub(crate) fn load(ctx: &Context<'_>, last: u64) -> bool {
    if last == 0 {
        return true;
    }
    let Some(token) = Token::new(last) else {
        return false;
    };
    TOKENS.get(ctx).borrow_mut().raise(token);
    true
}
