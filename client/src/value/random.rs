//! Chance: what names are made of, and how long to back off.

use uuid::Uuid;

pub(crate) fn uuid() -> Uuid {
    #[cfg(simulated)]
    let uuid = crate::simulated::uuid();
    #[cfg(not(simulated))]
    let uuid = Uuid::new_v4();
    uuid
}
