//! Reads replies: short functions for the kind of [`redis::Value`] that a test expects. Each panics with the value that it got, so that a
//! failed test shows what the server replied.

use std::collections::BTreeMap;

use redis::Value;

/// The integer in `value`.
///
/// # Panics
/// If it is anything else.
#[track_caller]
pub fn int(value: &Value) -> i64 {
    match value {
        Value::Int(n) => *n,
        other => panic!("expected an integer, got {other:?}"),
    }
}

/// Whether `value` is null (RESP2's null bulk and null array and RESP3's null are the same thing here).
pub fn is_nil(value: &Value) -> bool {
    matches!(value, Value::Nil)
}

/// The text in `value`: a bulk, simple or verbatim string, bytes outside UTF-8 replaced.
///
/// # Panics
/// If it is no string.
#[track_caller]
pub fn text(value: &Value) -> String {
    String::from_utf8_lossy(&bytes(value)).into_owned()
}

/// The bytes of a bulk, simple or verbatim string.
///
/// # Panics
/// If it is no string.
#[track_caller]
pub fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes.clone(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone().into_bytes(),
        Value::Okay => b"OK".to_vec(),
        other => panic!("expected a string, got {other:?}"),
    }
}

/// The elements of an array or set.
///
/// # Panics
/// If it is neither.
#[track_caller]
pub fn array(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("expected an array, got {other:?}"),
    }
}

/// A map by its keys: RESP3 maps and RESP2's flat arrays (`key, value, key, value, …`) read the same.
///
/// # Panics
/// If it is neither, has an odd length, a key that is no string, or a key twice.
#[track_caller]
pub fn as_map(value: &Value) -> BTreeMap<String, Value> {
    let pairs: Vec<(&Value, &Value)> = match value {
        Value::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
        Value::Array(flat) if flat.len().is_multiple_of(2) => flat
            .chunks_exact(2)
            .map(|pair| (&pair[0], &pair[1]))
            .collect(),
        other => panic!("expected a map, got {other:?}"),
    };
    let mut map = BTreeMap::new();
    for (key, item) in pairs {
        let key = text(key);
        assert!(
            map.insert(key.clone(), item.clone()).is_none(),
            "the key {key:?} is twice in {value:?}"
        );
    }
    map
}

/// The error line in `value`, as it was on the wire without its leading `-`; `None` if it is no error.
///
/// Errors arrive as values inside arrays (`EXEC`); [`Conn`](crate::Conn) turns one on the top level into `Err`.
pub fn error_line(value: &Value) -> Option<String> {
    match value {
        Value::ServerError(error) => Some(match error.details() {
            Some(details) => format!("{} {details}", error.code()),
            None => error.code().to_owned(),
        }),
        _ => None,
    }
}

/// The line of an error reply that has to begin with `start`, its code for example.
///
/// # Panics
/// If the reply is no error, or another one.
#[track_caller]
pub fn assert_error(reply: Result<Value, String>, start: &str) -> String {
    match reply {
        Err(line) if line.starts_with(start) => line,
        other => panic!("expected the error {start:?}, got {other:?}"),
    }
}

/// The lines `name:value` of an `INFO` reply.
///
/// # Panics
/// If `value` is no string.
#[track_caller]
pub fn info(value: &Value) -> BTreeMap<String, String> {
    text(value)
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
        .collect()
}
