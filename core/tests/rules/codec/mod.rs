//! The bytes of locks and effects: decoding returns what was encoded, whatever the clocks show; the bytes of the format stay the
//! same; and no bytes, however damaged, make an impossible lock.

mod arrival;
mod golden;
mod hostile;
mod round_trip;
mod spelling;
