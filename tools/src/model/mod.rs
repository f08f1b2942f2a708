//! The servers' answers, and the state that follows from them. Nothing here asks, waits or draws; the caller passes the time as a number.

mod keys;
mod node;
mod sample;
mod state;
mod warnings;

pub use keys::Key;
pub use node::{Node, Rates};
pub use sample::{
    Broken, Deployment, Detail, Facts, Hold, Limits, LockAnswer, LockId, Mode, Opened, Report,
    Role, Sample, Times, Totals, Waiter, Wanted,
};
pub use state::{Notice, OpenLock, Order, Question, Row, Screen, State, Summary, Typing, When};
pub use warnings::warnings;
