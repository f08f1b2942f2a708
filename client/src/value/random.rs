//! Chance: what names are made of, and how long to back off.

use uuid::Uuid;

pub(crate) fn uuid() -> Uuid {
    #[cfg(simulated)]
    let uuid = crate::simulated::uuid();
    #[cfg(not(simulated))]
    let uuid = Uuid::new_v4();
    uuid
}

/// A number from 0 to 1.
pub(crate) fn fraction() -> f64 {
    f64::from(uuid().as_u128() as u32) / f64::from(u32::MAX)
}
