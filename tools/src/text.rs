//! Bytes, times and numbers as people read them. Whatever a server sent passes here before it is shown.

use std::fmt::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The bytes as text that is harmless to a terminal: invisible characters are written `\n`, `\x1b` or `\u{202e}`.
pub fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            push_escaped(&mut text, char);
        }
        for byte in chunk.invalid() {
            push_byte(&mut text, *byte);
        }
    }
    text
}

/// The same as one word: spaces are escaped, too, and nothing at all is `""`.
pub fn escaped_word(bytes: &[u8]) -> String {
    match bytes {
        [] => "\"\"".to_owned(),
        _ => escaped(bytes).replace(' ', "\\x20"),
    }
}

/// The bytes that [`escaped`] shows like this; a backslash that begins no escape stands for itself.
pub fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend(before.as_bytes());
        rest = match unescape(after, &mut bytes) {
            Some(behind) => behind,
            None => {
                bytes.push(b'\\');
                after
            }
        };
    }
    bytes.extend(rest.as_bytes());
    bytes
}

/// Takes what stands for one character off the front of `text`, behind its backslash; what is left.
fn unescape<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let (kind, rest) = (text.get(..1)?, text.get(1..)?);
    match kind {
        "\\" => bytes.push(b'\\'),
        "n" => bytes.push(b'\n'),
        "r" => bytes.push(b'\r'),
        "t" => bytes.push(b'\t'),
        "x" => {
            bytes.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
            return rest.get(2..);
        }
        "u" => {
            let (digits, rest) = rest.strip_prefix('{')?.split_once('}')?;
            let char = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
            bytes.extend(char.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(rest);
        }
        _ => return None,
    }
    Some(rest)
}

fn push_escaped(text: &mut String, char: char) {
    match char {
        '\\' => text.push_str("\\\\"),
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        ' '..='~' => text.push(char),
        _ if char.is_ascii() => push_byte(text, char as u8),
        // Characters without width, such as marks that change the direction of writing, would change how the rest looks.
        _ if char.is_control() || char.is_whitespace() || char.width().unwrap_or(0) == 0 => {
            push(text, format_args!("\\u{{{:x}}}", u32::from(char)));
        }
        _ => text.push(char),
    }
}

fn push_byte(text: &mut String, byte: u8) {
    push(text, format_args!("\\x{byte:02x}"));
}

fn push(text: &mut String, args: std::fmt::Arguments<'_>) {
    text.write_fmt(args).expect("a string takes all");
}

/// How many columns a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The text in at most `columns`, its middle left out if it is too long: names differ at both ends.
pub fn shortened(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    if columns == 0 {
        return String::new();
    }
    let back = (columns - 1) / 2;
    let front = columns - 1 - back;
    let tail = fitting(text.chars().rev(), back);
    let tail: String = tail.chars().rev().collect();
    format!("{}…{tail}", fitting(text.chars(), front))
}

/// The text in lines of at most `columns`, broken between words where it can be.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let cut = lines.into_iter().map(|line| shortened(&line, columns));
    cut.collect()
}

fn fitting(chars: impl Iterator<Item = char>, columns: usize) -> String {
    let mut left = columns;
    let fits = chars.take_while(|char| {
        let width = char.width().unwrap_or(0);
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    });
    fits.collect()
}

/// Milliseconds in the unit that suits them: `870 ms`, `3.2 s`, `4 m 10 s`, `2 h 05 m`, `3 d 04 h`.
pub fn time(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..=59 => format!("{seconds}.{} s", ms % 1000 / 100),
        60..=3599 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{} h {:02} m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A number in few places: `812`, `12.3k`, `4.6M`.
pub fn count(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => scaled(number, 1_000, 'k'),
        1_000_000..1_000_000_000 => scaled(number, 1_000_000, 'M'),
        _ => scaled(number, 1_000_000_000, 'G'),
    }
}

fn scaled(number: u64, unit: u64, letter: char) -> String {
    format!("{}.{}{letter}", number / unit, number % unit * 10 / unit)
}

/// A rate per second.
pub fn rate(per_second: f64) -> String {
    if per_second <= 0.0 {
        "0".to_owned()
    } else if per_second < 9.95 {
        format!("{per_second:.1}")
    } else {
        // Never negative, and far below the largest number.
        count(per_second.round() as u64)
    }
}

/// `1 lock`, `2 locks`.
pub fn plural(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{} {one}s", count(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_no_control_characters_for_a_terminal() {
        assert_eq!(escaped(b"stock:42"), "stock:42");
        assert_eq!(escaped(b"a\x1b[2J\x07b\n"), "a\\x1b[2J\\x07b\\n");
        assert_eq!(
            escaped("caf\u{e9} \u{202e}x".as_bytes()),
            "caf\u{e9} \\u{202e}x"
        );
        assert_eq!(escaped(b"\xff\xfe\x80"), "\\xff\\xfe\\x80");
        assert_eq!(escaped("\u{9b}31m".as_bytes()), "\\u{9b}31m");
        assert_eq!(escaped(b"back\\slash"), "back\\\\slash");
        for byte in 0..=u8::MAX {
            assert!(!escaped(&[byte, b'[']).chars().any(char::is_control));
        }
    }

    #[test]
    fn typing_a_name_as_it_is_shown_gives_that_name() {
        let names: [&[u8]; 4] = [
            b"stock:42",
            b"a\x1b[2J\x07b\n\t\r\\",
            "caf\u{e9} \u{202e}x".as_bytes(),
            b"\xff\xfe\x80",
        ];
        for name in names {
            assert_eq!(unescaped(&escaped(name)), name);
        }
        for typed in ["a\\", "\\q", "\\x4", "\\xzz", "\\u{zz}", "\\u{41", "\\é"] {
            assert_eq!(unescaped(typed), typed.as_bytes());
        }
    }

    #[test]
    fn a_word_has_no_space_in_it() {
        assert_eq!(escaped_word(b"a b"), "a\\x20b");
        assert_eq!(escaped_word(b""), "\"\"");
    }

    #[test]
    fn a_long_name_keeps_both_its_ends() {
        assert_eq!(shortened("abcdefghij", 10), "abcdefghij");
        assert_eq!(shortened("abcdefghij", 7), "abc…hij");
        assert_eq!(shortened("abcdefghij", 2), "a…");
        assert_eq!(shortened("abcdefghij", 0), "");
        assert_eq!(shortened("日本語日本語", 7), "日…語");
    }

    #[test]
    fn a_sentence_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("one twothree four", 6), ["one", "two…ee", "four"]);
        assert_eq!(wrapped("", 5), [""]);
    }

    #[test]
    fn times_and_numbers_have_a_fitting_unit() {
        let times = [0, 870, 3_290, 250_000, 7_500_000, 273_600_000].map(time);
        assert_eq!(
            times,
            [
                "0 ms", "870 ms", "3.2 s", "4 m 10 s", "2 h 05 m", "3 d 04 h"
            ]
        );
        let counts = [812, 12_345, 4_600_000, 7_000_000_000].map(count);
        assert_eq!(counts, ["812", "12.3k", "4.6M", "7.0G"]);
        let rates = [0.0, 0.25, 9.9, 120.4].map(rate);
        assert_eq!(rates, ["0", "0.2", "9.9", "120"]);
    }
}
