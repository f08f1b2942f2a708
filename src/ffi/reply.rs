//! Replies.

use std::ffi::{CStr, c_long};

use super::context::Context;
use super::log::c_string;

impl Context<'_> {
    pub(crate) fn reply_integer(&self, value: i64) {
        // SAFETY: see the module's head; the same for every reply below.
        unsafe { api!(RedisModule_ReplyWithLongLong, self.as_ptr(), value) };
    }

    pub(crate) fn reply_null(&self) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_ReplyWithNull, self.as_ptr()) };
    }

    pub(crate) fn reply_bytes(&self, bytes: &[u8]) {
        // SAFETY: the server copies the bytes.
        unsafe {
            let start = bytes.as_ptr().cast();
            api!(
                RedisModule_ReplyWithStringBuffer,
                self.as_ptr(),
                start,
                bytes.len()
            )
        };
    }

    pub(crate) fn reply_text(&self, text: &CStr) {
        self.reply_bytes(text.to_bytes());
    }

    /// A number in a map.
    pub(crate) fn reply_field(&self, field: &CStr, value: i64) {
        self.reply_text(field);
        self.reply_integer(value);
    }

    /// `len` replies follow.
    pub(crate) fn reply_array(&self, len: usize) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_ReplyWithArray, self.as_ptr(), len as c_long) };
    }

    /// `len` pairs of replies follow; a flat array in RESP2.
    pub(crate) fn reply_map(&self, len: usize) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_ReplyWithMap, self.as_ptr(), len as c_long) };
    }

    /// An error: its code, a space and a text, on one line.
    pub(crate) fn reply_error(&self, text: &str) {
        let text = c_string(&text.replace(['\r', '\n'], " "));
        // SAFETY: the server copies the text.
        unsafe { api!(RedisModule_ReplyWithError, self.as_ptr(), text.as_ptr()) };
    }
}
