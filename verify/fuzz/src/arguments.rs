//! The arguments of commands: each is accepted as it is, or refused in one short printable line.

use mortise_core::{Count, Lease, OwnerRef, Token};

use crate::error::Error;
use crate::ffi::Args;
use crate::parse::Parse;

/// The options that a command may have.
#[derive(Default)]
struct Taken<'c> {
    wait: Option<u64>,
    holds: Option<Count>,
    limit: Option<Count>,
    left: Option<u32>,
    fence: Option<Token>,
    token: Option<Token>,
    count: Option<usize>,
    mailbox: Option<&'c [u8]>,
    stay: Option<u64>,
    after: Option<(u64, u64)>,
    owner: Option<OwnerRef<'c>>,
}

/// Runs a command. The bytes are its arguments, separated by line feeds.
pub fn arguments(bytes: &[u8]) {
    let words: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    match take(&words) {
        Ok(taken) => assert_given(&taken, &words),
        Err(error) => {
            let line = error.text();
            assert!(line.len() < 1_000, "{line}");
            assert!(
                line.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                "{line}"
            );
            assert!(
                line.starts_with(|first: char| first.is_ascii_uppercase()),
                "{line}"
            );
        }
    }
}

fn take<'c>(words: &'c [&'c [u8]]) -> Result<Taken<'c>, Error> {
    let mut parse = Parse::new(Args(words));
    let (key, owner, lease) = (parse.key()?, parse.owner("owner")?, parse.lease()?);
    assert_eq!(key.bytes(), words[1]);
    assert_eq!(&*owner.text(), words[2]);
    assert_spelled(lease.as_millis(), words[3]);
    assert!(Lease::from_millis(lease.as_millis()).is_some());
    let mut taken = Taken::default();
    parse.options(|parse| {
        Ok(parse.option("WAIT", &mut taken.wait, Parse::wait)?
            || parse.option("HOLDS", &mut taken.holds, Parse::count)?
            || parse.option("LIMIT", &mut taken.limit, Parse::count)?
            || parse.option("LEFT", &mut taken.left, Parse::count_left)?
            || parse.option("FENCE", &mut taken.fence, Parse::token)?
            || parse.option("TOKEN", &mut taken.token, Parse::token)?
            || parse.option("COUNT", &mut taken.count, Parse::shown)?
            || parse.option("MAIL", &mut taken.mailbox, Parse::mailbox)?
            || parse.option("FOR", &mut taken.stay, Parse::stay)?
            || parse.option("AFTER", &mut taken.after, Parse::after)?
            || parse.option("OWNER", &mut taken.owner, Parse::owner)?)
    })?;
    Ok(taken)
}

/// Checks that the arguments contain each parsed option once, with its value, and nothing else.
fn assert_given(taken: &Taken<'_>, words: &[&[u8]]) {
    let mut given = 4;
    let mut number = |name: &str, value: Option<u64>| {
        if let Some(value) = value {
            assert_spelled(value, value_of(name, words, 1));
            given += 2;
        }
    };
    number("WAIT", taken.wait);
    number("HOLDS", taken.holds.map(|count| u64::from(count.get())));
    number("LIMIT", taken.limit.map(|count| u64::from(count.get())));
    number("LEFT", taken.left.map(u64::from));
    number("FENCE", taken.fence.map(Token::get));
    number("TOKEN", taken.token.map(Token::get));
    number("COUNT", taken.count.map(|count| count as u64));
    number("FOR", taken.stay);
    if let Some((since, number)) = taken.after {
        assert_spelled(since, value_of("AFTER", words, 1));
        assert_spelled(number, value_of("AFTER", words, 2));
        given += 3;
    }
    if let Some(mailbox) = taken.mailbox {
        assert_eq!(mailbox, value_of("MAIL", words, 1));
        given += 2;
    }
    if let Some(owner) = taken.owner {
        assert_eq!(&*owner.text(), value_of("OWNER", words, 1));
        given += 2;
    }
    assert_eq!(given, words.len());
}

/// The word `places` after the option's name.
fn value_of<'c>(name: &str, words: &[&'c [u8]], behind: usize) -> &'c [u8] {
    let mut at = 4;
    while !words[at].eq_ignore_ascii_case(name.as_bytes()) {
        at += match words[at].eq_ignore_ascii_case(b"AFTER") {
            true => 3,
            false => 2,
        };
    }
    words[at + behind]
}

/// Checks that a number was given in its only spelling.
fn assert_spelled(number: u64, word: &[u8]) {
    assert_eq!(number.to_string().as_bytes(), word);
}
