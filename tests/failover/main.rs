//! Another server takes over: what happens to waiters, holds and tokens, and that no two holders are inside, whether an operator promotes a
//! replica or Sentinel does. A cluster's own failover is in `cluster`.

mod exclusion;
mod fencing;
mod frozen;
mod hidden;
mod late;
mod late_of_two;
mod late_sentinel;
mod lateness;
mod pair;
mod passing;
mod promotion;
mod sentinel;
mod sentinel_blind;
mod several;
mod trio;
mod watched;
