//! Another server takes over: what happens to waiters, holds and tokens, and that no two holders are inside, whether an operator promotes a
//! replica, or Sentinel or a cluster does. What else happens in a cluster is in `cluster`.

mod clustered;
mod elections;
mod exclusion;
mod fencing;
mod frozen;
mod hidden;
mod late;
mod late_of_two;
mod lateness;
mod pair;
mod passing;
mod promotion;
mod several;
mod topology;
mod trio;
mod watched;
