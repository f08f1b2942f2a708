//! The bytes of locks and effects: they come back as they went, whatever clocks say; the bytes of
//! every version stay what they are; and no bytes, however damaged, make a lock that cannot be.

mod codec {
    pub(crate) mod arrival;
    pub(crate) mod golden;
    pub(crate) mod hostile;
    pub(crate) mod round_trip;
    pub(crate) mod spelling;
}
