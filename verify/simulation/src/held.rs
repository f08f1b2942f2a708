//! What a task holds, as the referee sees it.

use std::sync::Arc;

use crate::error::Loss;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::time::BootInstant;
use crate::token::Token;

/// A hold at one of its keys, which looking at does not keep.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) key: Vec<u8>,
    hold: Arc<Hold>,
}

impl Held {
    pub(crate) fn at(guard: &Guard, key: &[u8]) -> Held {
        Held {
            key: key.to_vec(),
            hold: guard.hold().clone(),
        }
    }

    pub(crate) fn of(guard: &Guard) -> Held {
        Held::at(guard, guard.key())
    }

    pub(crate) fn owner(&self) -> &[u8] {
        &self.hold.owner
    }

    pub(crate) fn deadline(&self) -> BootInstant {
        self.hold.belief(|belief| belief.deadline())
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.hold.check().is_ok()
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.hold.belief(|belief| belief.doubt(BootInstant::now()))
    }

    pub(crate) fn token(&self) -> Token {
        self.hold.belief(|belief| belief.token)
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Held").field(&self.key).finish()
    }
}
