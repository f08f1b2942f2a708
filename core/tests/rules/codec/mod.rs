//! The bytes of locks and effects: they come back as they went, whatever clocks say; the bytes of
//! every version stay what they are; and no bytes, however damaged, make a lock that cannot be.

mod arrival;
mod golden;
mod hostile;
mod round_trip;
mod spelling;
