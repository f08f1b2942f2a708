//! Whole numbers as clients and the server write them.

/// A plain decimal, or one below zero with a minus sign before it.
pub(crate) fn signed_decimal(bytes: &[u8]) -> Option<i64> {
    match bytes.strip_prefix(b"-") {
        Some(digits) => 0_i64.checked_sub_unsigned(decimal(digits)?),
        None => i64::try_from(decimal(bytes)?).ok(),
    }
}

/// A plain decimal: digits alone, no sign, no leading zero.
pub(crate) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.len() > 1 && bytes[0] == b'0' || bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}
