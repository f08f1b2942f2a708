//! Replies, as the client reads them: any bytes are refused, or are a reply of the length that it states.

use crate::value::BootInstant;
use crate::wire::reply::{checked, parse, token};
use crate::wire::{Mailbox, Reply};

/// Replies in a stream of bytes.
pub fn replies(bytes: &[u8]) {
    let mut rest = bytes;
    let mut mailbox = Mailbox::default();
    while let Ok(Some((reply, len))) = parse(rest) {
        assert!(0 < len && len <= rest.len());
        // No reply is complete before its last byte.
        assert!(matches!(parse(&rest[..len - 1]), Ok(None)));
        let _ = checked(Ok(reply.clone()), "server").and_then(token);
        if matches!(reply, Reply::Array(_)) {
            let sent = BootInstant::now();
            mailbox.queued(b"owner", &reply);
            mailbox.on_answer(Ok(reply), sent, false);
        }
        rest = &rest[len..];
    }
}
