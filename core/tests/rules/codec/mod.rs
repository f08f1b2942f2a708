//! The bytes of locks and effects: decoding returns what was encoded, whatever the clocks show; the bytes of every version stay the same;
//! and no bytes, however damaged, make an impossible lock.

mod arrival;
mod golden;
mod hostile;
mod round_trip;
mod spelling;
