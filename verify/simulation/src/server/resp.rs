//! Encodes replies (RESP2).

use mortise_core::mail::BoxId;

/// A reply under construction.
#[derive(Debug, Default)]
pub(crate) struct Out(pub(crate) Vec<u8>);

impl Out {
    pub(crate) fn null() -> Vec<u8> {
        b"$-1\r\n".to_vec()
    }

    pub(crate) fn number(number: u64) -> Vec<u8> {
        let mut out = Out::default();
        out.int(number);
        out.0
    }

    pub(crate) fn number_or_null(number: Option<u64>) -> Vec<u8> {
        number.map_or_else(Out::null, Out::number)
    }

    pub(crate) fn error(line: &str) -> Vec<u8> {
        format!("-{line}\r\n").into_bytes()
    }

    /// The reply of a request that waits by mail in this box.
    pub(crate) fn queued(id: BoxId) -> Vec<u8> {
        let mut out = Out::default();
        out.array(2);
        out.text(b"QUEUED");
        out.int(id.0);
        out.0
    }

    pub(crate) fn bulk(text: &[u8]) -> Vec<u8> {
        let mut out = Out::default();
        out.text(text);
        out.0
    }

    pub(crate) fn array(&mut self, len: usize) {
        self.0.extend(format!("*{len}\r\n").bytes());
    }

    pub(crate) fn int(&mut self, number: u64) {
        self.0.extend(format!(":{number}\r\n").bytes());
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        self.0.extend(format!("${}\r\n", text.len()).bytes());
        self.0.extend(text);
        self.0.extend(b"\r\n");
    }
}
