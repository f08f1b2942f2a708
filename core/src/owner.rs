//! Owners, and how they are kept.
//!
//! An owner is text that its caller chose, mostly a UUID, alone or followed by a task's number. A million locks are kept in memory, so the
//! UUID is kept as its 16 bytes instead of its 36 characters. Nobody outside sees that: the text comes out as it went in, and sorts as
//! text.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::short::ShortBytes;
use crate::uuid::Uuid;

/// The longest text after a UUID that is kept together with it.
const SUFFIX: usize = 6;

/// A borrowed owner: 1 to 255 bytes, any bytes.
#[derive(Clone, Copy)]
pub struct OwnerRef<'a>(Ref<'a>);

/// Each owner has one form only, so that two of different forms differ.
#[derive(Clone, Copy)]
enum Ref<'a> {
    /// A UUID in lower case with up to [`SUFFIX`] bytes after it.
    Uuid(Tagged),
    /// Anything else.
    Text(&'a [u8]),
}

impl<'a> OwnerRef<'a> {
    /// The longest owner, in bytes.
    pub const MAX_LEN: usize = 255;

    /// The owner `bytes`; `None` if empty or longer than [`Self::MAX_LEN`].
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > Self::MAX_LEN {
            return None;
        }
        Some(Self(match Tagged::read(bytes) {
            Some(tagged) => Ref::Uuid(tagged),
            None => Ref::Text(bytes),
        }))
    }

    /// Its bytes, 1 to 255.
    pub fn text(self) -> Text<'a> {
        Text(match self.0 {
            Ref::Text(bytes) => TextRepr::Borrowed(bytes),
            Ref::Uuid(tagged) => {
                let (bytes, len) = tagged.write();
                TextRepr::Written { bytes, len }
            }
        })
    }

    /// The owner that is named like its task, which is its bytes up to and including the last `##`, or all of them if it has none. So an owner
    /// without `##` shares its task with no other one.
    pub(crate) fn task_owner(self) -> Self {
        match self.0 {
            Ref::Uuid(tagged) => Self(Ref::Uuid(tagged.task())),
            // A task's name is part of an owner's, and not empty. It may have the other form.
            Ref::Text(bytes) => end_of_mark(bytes)
                .and_then(|end| Self::new(&bytes[..end]))
                .unwrap_or(self),
        }
    }

    /// A copy of its own.
    pub fn to_owner(self) -> Owner {
        Owner(match self.0 {
            Ref::Uuid(Tagged { uuid, suffix }) => {
                let [suffix @ .., _] = suffix.to_be_bytes();
                let uuid = uuid.to_bytes();
                Repr::Uuid { suffix, uuid }
            }
            Ref::Text(bytes) => Repr::Text(bytes.into()),
        })
    }
}

/// Where the last `##` ends.
fn end_of_mark(text: &[u8]) -> Option<usize> {
    let is_mark = |end: &usize| text[end - 1] == b'#' && text[end - 2] == b'#';
    (2..=text.len()).rev().find(is_mark)
}

impl PartialEq for OwnerRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Ref::Uuid(a), Ref::Uuid(b)) => a == b,
            (Ref::Text(a), Ref::Text(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for OwnerRef<'_> {}

impl PartialOrd for OwnerRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By bytes.
impl Ord for OwnerRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0, other.0) {
            (Ref::Uuid(a), Ref::Uuid(b)) => a.cmp(&b),
            _ => self.text().cmp(&other.text()),
        }
    }
}

impl fmt::Debug for OwnerRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.text().escape_ascii())
    }
}

/// An owner: 1 to 255 bytes, any bytes. A UUID with up to 6 bytes behind it and anything else of
/// up to 22 bytes live in the value itself: the common lock needs no allocation for its owner.
#[derive(Clone)]
pub struct Owner(Repr);

#[derive(Clone)]
enum Repr {
    /// A [`Tagged`] in bytes, so that the tag of this enum finds room beside them.
    Uuid {
        suffix: [u8; SUFFIX + 1],
        uuid: [u8; 16],
    },
    Text(ShortBytes),
}

impl Owner {
    /// Borrowed.
    pub fn as_ref(&self) -> OwnerRef<'_> {
        OwnerRef(match &self.0 {
            Repr::Uuid { suffix, uuid } => {
                let [a, b, c, d, e, f, len] = *suffix;
                Ref::Uuid(Tagged {
                    uuid: Uuid::from_bytes(*uuid),
                    suffix: u64::from_be_bytes([a, b, c, d, e, f, len, 0]),
                })
            }
            Repr::Text(bytes) => Ref::Text(bytes),
        })
    }

    /// Its bytes, 1 to 255.
    pub fn text(&self) -> Text<'_> {
        self.as_ref().text()
    }

    /// Bytes it has allocated outside itself.
    pub fn heap_size(&self) -> usize {
        match &self.0 {
            Repr::Uuid { .. } => 0,
            Repr::Text(bytes) => bytes.heap_size(),
        }
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for Owner {}

impl PartialOrd for Owner {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By bytes.
impl Ord for Owner {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(&other.as_ref())
    }
}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

impl Hash for OwnerRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.0 {
            Ref::Uuid(tagged) => tagged.hash(state),
            Ref::Text(bytes) => bytes.hash(state),
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

/// The bytes of an owner, written out if they are kept in another form.
#[derive(Clone)]
pub struct Text<'a>(TextRepr<'a>);

#[derive(Clone)]
enum TextRepr<'a> {
    Borrowed(&'a [u8]),
    Written {
        bytes: [u8; Uuid::TEXT + SUFFIX],
        len: usize,
    },
}

impl Deref for Text<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            TextRepr::Borrowed(bytes) => bytes,
            TextRepr::Written { bytes, len } => &bytes[..*len],
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

/// A UUID with a few bytes behind it. Sorts as its text does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Tagged {
    uuid: Uuid,
    /// The bytes after it, filled up with zeros to [`SUFFIX`] bytes, and then how many they are: from the top.
    suffix: u64,
}

impl Tagged {
    fn read(text: &[u8]) -> Option<Self> {
        let (uuid, suffix) = text.split_first_chunk()?;
        let mut bytes = [0; 8];
        if suffix.len() > SUFFIX {
            return None;
        }
        if !suffix.is_empty() {
            bytes[..suffix.len()].copy_from_slice(suffix);
            // At most SUFFIX, so the length fits.
            bytes[SUFFIX] = suffix.len() as u8;
        }
        Some(Self {
            uuid: Uuid::read(uuid)?,
            suffix: u64::from_be_bytes(bytes),
        })
    }

    /// The same up to the last `##`.
    fn task(self) -> Self {
        let mut bytes = self.suffix.to_be_bytes();
        let Some(end) = end_of_mark(&bytes[..usize::from(bytes[SUFFIX])]) else {
            return self;
        };
        bytes[end..].fill(0);
        bytes[SUFFIX] = end as u8;
        let suffix = u64::from_be_bytes(bytes);
        Self { suffix, ..self }
    }

    fn write(self) -> ([u8; Uuid::TEXT + SUFFIX], usize) {
        let mut text = [0; Uuid::TEXT + SUFFIX];
        let suffix = self.suffix.to_be_bytes();
        text[..Uuid::TEXT].copy_from_slice(&self.uuid.write());
        text[Uuid::TEXT..].copy_from_slice(&suffix[..SUFFIX]);
        (text, Uuid::TEXT + usize::from(suffix[SUFFIX]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    fn kept(text: &str) -> Owner {
        OwnerRef::new(text.as_bytes())
            .expect("in bounds")
            .to_owner()
    }

    fn is_uuid(text: &str) -> bool {
        matches!(kept(text).0, Repr::Uuid { .. })
    }

    #[test]
    fn an_owner_takes_three_words() {
        assert_eq!(size_of::<Owner>(), 24);
        assert_eq!(size_of::<Option<Owner>>(), 24);
    }

    #[test]
    fn uuids_are_stored_as_numbers_and_read_back_unchanged() {
        for text in [
            UUID.to_owned(),
            format!("{UUID}:1"),
            format!("{UUID}\0\0\0\0\0\0"),
            "00000000-0000-0000-0000-000000000000".to_owned(),
            "ffffffff-ffff-ffff-ffff-ffffffffffff".to_owned(),
        ] {
            assert!(is_uuid(&text), "{text}");
            assert_eq!(&*kept(&text).text(), text.as_bytes());
        }
    }

    #[test]
    fn text_similar_to_a_uuid_is_read_back_unchanged() {
        let mut others = vec![
            UUID.to_uppercase(),
            format!("{UUID}:123456"),
            UUID[..35].to_owned(),
            format!("{{{UUID}}}"),
        ];
        for at in 0..UUID.len() {
            for wrong in ["g", "-", "0", "A", "\0", "/", ":", "`"] {
                let mut text = UUID.to_owned();
                text.replace_range(at..=at, wrong);
                others.push(text);
            }
        }
        for text in others {
            assert_eq!(&*kept(&text).text(), text.as_bytes());
        }
    }

    #[test]
    fn every_length_is_read_back_unchanged() {
        for len in 1..=OwnerRef::MAX_LEN {
            let bytes = vec![len as u8; len];
            let owner = OwnerRef::new(&bytes).expect("in bounds").to_owner();
            assert_eq!(*owner.text(), *bytes);
        }
        assert!(OwnerRef::new(&[]).is_none());
        assert!(OwnerRef::new(&[0; OwnerRef::MAX_LEN + 1]).is_none());
    }

    #[test]
    fn owners_with_the_same_text_up_to_the_last_mark_are_one_task() {
        let task = |text: &str| kept(text).as_ref().task_owner().to_owner();
        for (owner, expected) in [
            ("a", "a"),
            ("a#1", "a#1"),
            ("a##1", "a##"),
            ("a##", "a##"),
            ("a##1##2", "a##1##"),
            ("a###1", "a###"),
            ("##", "##"),
            ("#", "#"),
            (UUID, UUID),
            (&format!("{UUID}##1"), &format!("{UUID}##")),
            (&format!("{UUID}##1234"), &format!("{UUID}##")),
            (&format!("{UUID}##12345"), &format!("{UUID}##")),
            (&format!("{UUID}####"), &format!("{UUID}####")),
            (&format!("{UUID}##12##"), &format!("{UUID}##12##")),
            (&format!("{UUID}##12##3"), &format!("{UUID}##12##")),
            (&format!("{UUID}12345##6"), &format!("{UUID}12345##")),
            (&format!("{UUID}#1"), &format!("{UUID}#1")),
        ] {
            assert_eq!(task(owner), kept(expected), "{owner}");
        }
    }

    #[test]
    fn owners_are_ordered_by_their_bytes() {
        let near = |at: usize, wrong: &str| {
            let mut text = UUID.to_owned();
            text.replace_range(at..=at, wrong);
            text
        };
        let texts = [
            UUID.to_owned(),
            format!("{UUID}:1"),
            format!("{UUID}:123456"),
            UUID.to_uppercase(),
            near(0, "f"),
            near(0, "g"),
            near(1, "F"),
            near(14, "a"),
            near(8, "0"),
            near(35, "0"),
            near(35, "d"),
            "0".to_owned(),
            "0f8fad5b-".to_owned(),
            "z".to_owned(),
        ];
        for a in &texts {
            for b in &texts {
                let expected = a.as_bytes().cmp(b.as_bytes());
                assert_eq!(kept(a).cmp(&kept(b)), expected, "{a} and {b}");
                assert_eq!(kept(a) == kept(b), a == b, "{a} and {b}");
            }
        }
    }
}
