//! The arguments of a command: byte strings that live as long as the call.

use std::os::raw::c_int;
use std::{ptr, slice};

use redis_module::{RedisString, raw};

/// One argument. Its bytes are fetched once, because a command uses its key several times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg<'c> {
    string: *mut raw::RedisModuleString,
    bytes: &'c [u8],
}

impl<'c> Arg<'c> {
    /// SAFETY: `string` is a string of the server that lives for `'c`.
    pub(super) unsafe fn new(string: *mut raw::RedisModuleString) -> Self {
        let mut len = 0;
        // SAFETY: `string` lives for 'c, and so do the bytes: arguments are not changed in place.
        let bytes = unsafe {
            let bytes = api!(RedisModule_StringPtrLen, string, &raw mut len);
            slice::from_raw_parts(bytes.cast(), len)
        };
        Self { string, bytes }
    }

    /// The bytes of the argument.
    pub(crate) fn bytes(self) -> &'c [u8] {
        self.bytes
    }

    pub(super) fn as_ptr(self) -> *mut raw::RedisModuleString {
        self.string
    }
}

/// The arguments, the command's name first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'c> {
    strings: &'c [*mut raw::RedisModuleString],
}

impl<'c> Args<'c> {
    /// SAFETY: `argv` points to `argc` strings that live for `'c`.
    pub(super) unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Self {
        let argc = usize::try_from(argc).unwrap_or(0);
        // Without strings the pointer may be null.
        let strings = if argc == 0 {
            &[]
        } else {
            // SAFETY: promised by the caller.
            unsafe { slice::from_raw_parts(argv, argc) }
        };
        Self { strings }
    }

    /// How many arguments there are, the command's name included.
    pub(crate) fn len(self) -> usize {
        self.strings.len()
    }

    /// The arguments from `index` on. Where they are a command that another one carries, its name comes first.
    pub(crate) fn from(self, index: usize) -> Args<'c> {
        Args {
            strings: self.strings.get(index..).unwrap_or_default(),
        }
    }

    /// Each argument.
    pub(crate) fn iter(self) -> impl Iterator<Item = Arg<'c>> {
        (0..self.len()).filter_map(move |index| self.get(index))
    }

    pub(super) fn as_slice(self) -> &'c [*mut raw::RedisModuleString] {
        self.strings
    }

    /// The argument at `index`; 0 is the command's name.
    pub(crate) fn get(self, index: usize) -> Option<Arg<'c>> {
        // SAFETY: it lives for 'c, as promised to `new`.
        self.strings
            .get(index)
            .map(|string| unsafe { Arg::new(*string) })
    }
}

/// A string of the server, made here without a context that would manage it, and freed when it is dropped.
pub(super) fn own_string(bytes: &[u8]) -> RedisString {
    RedisString::create_from_slice(ptr::null_mut(), bytes)
}
