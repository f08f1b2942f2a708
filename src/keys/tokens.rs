//! Where fencing tokens come from on this server.

use std::cell::RefCell;

use mortise_core::{Token, TokenClock};

use crate::ffi::Context;
use crate::keys::state::{self, Keys};

pub(crate) fn clock(ctx: &Context<'_>) -> &'static RefCell<TokenClock> {
    &state::get(ctx).tokens
}

/// The last token handed out or seen, 0 for none.
pub(crate) fn last(keys: &Keys) -> u64 {
    keys.tokens.borrow().last()
}

/// Takes over the token clock of a file or of a primary. False if it cannot be one.
pub(crate) fn load(keys: &Keys, last: u64) -> bool {
    if last == 0 {
        return true;
    }
    let Some(token) = Token::new(last) else {
        return false;
    };
    keys.tokens.borrow_mut().raise(token);
    true
}
