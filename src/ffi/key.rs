//! An opened key.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::raw::c_int;
use std::ptr;

use redis_module::raw;

use super::args::{Arg, OwnString};
use super::context::Context;
use super::main_thread::MainThread;
use super::native_type;
use super::value::Value;

/// What an opened key may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    pub(super) fn mode(self) -> c_int {
        match self {
            Self::Read => raw::REDISMODULE_READ as c_int,
            Self::Write => (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int,
        }
    }
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Empty,
    Lock,
    Other,
}

/// Whether a key is open whose value can be borrowed.
static IS_OPEN: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// The right to borrow a value of the key space. There is one, so no two keys give out the same value.
#[derive(Debug)]
struct Claim(&'static Cell<bool>);

impl Claim {
    /// # Panics
    /// If another key is open: a bug, of which the command replies an error.
    fn take(ctx: &Context<'_>) -> Self {
        let is_open = IS_OPEN.get(ctx);
        assert!(!is_open.replace(true), "a key is open already");
        Self(is_open)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// A key, open until it is dropped.
#[derive(Debug)]
pub(crate) struct Key<'c> {
    key: *mut raw::RedisModuleKey,
    kind: Kind,
    /// `None` once it has no value to borrow: `delete` and `set` may lead to other commands, which open keys.
    claim: Option<Claim>,
    /// The lock it holds, null if it holds none. The server does not move or free it while the key is open, for
    /// nothing is called then that could change the key, but in `delete` and `set`.
    value: *mut Value,
    /// A name that was made for this key.
    own_name: Option<OwnString>,
    call: PhantomData<&'c ()>,
}

impl Context<'_> {
    /// Opens the key, while no other one is open.
    pub(crate) fn open(&self, name: Arg<'_>, access: Access) -> Key<'_> {
        let claim = Claim::take(self);
        // SAFETY: the name outlives the call; the key is closed before the context ends, for it
        // borrows from it.
        unsafe {
            let key = api!(
                RedisModule_OpenKey,
                self.as_ptr(),
                name.as_ptr(),
                access.mode()
            );
            Key::new(key, claim)
        }
    }

    /// Opens a key whose name is not an argument.
    pub(crate) fn open_named(&self, name: &[u8], access: Access) -> Key<'_> {
        let claim = Claim::take(self);
        let name = OwnString::new(name);
        // SAFETY: the name is freed after the key is closed.
        unsafe {
            let key = api!(
                RedisModule_OpenKey,
                self.as_ptr(),
                name.as_ptr(),
                access.mode()
            );
            let mut key = Key::new(key, claim);
            key.own_name = Some(name);
            key
        }
    }
}

impl<'c> Key<'c> {
    /// SAFETY: `key` was opened just now (null for an absent key opened to read), and is closed
    /// by this value alone.
    unsafe fn new(key: *mut raw::RedisModuleKey, claim: Claim) -> Self {
        // SAFETY: promised by the caller.
        let (kind, value) = unsafe { inspect(key) };
        Self {
            key,
            kind,
            claim: Some(claim),
            value,
            own_name: None,
            call: PhantomData,
        }
    }

    /// What it holds.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The lock it holds.
    pub(crate) fn value(&mut self) -> Option<&mut Value> {
        // SAFETY: null or a boxed `Value`, put there by `set` or by `rdb_load`. Nobody else refers
        // to it while the key is borrowed: no other key is open (`claim`), and callbacks get it only from calls that take the key by
        // value or happen outside any command.
        unsafe { self.value.as_mut() }
    }

    /// Puts a lock into an empty key that is open for writing. The server notifies other modules of the new key at once, so
    /// by then it may hold something else: this value no longer refers to it.
    pub(crate) fn set(&mut self, value: Box<Value>) {
        self.value = ptr::null_mut();
        self.claim = None;
        let value = Box::into_raw(value);
        // SAFETY: on success the server owns the value, and gives it back to our `free`.
        unsafe {
            let set = api!(
                RedisModule_ModuleTypeSetValue,
                self.key,
                native_type::get(),
                value.cast()
            );
            if set != raw::REDISMODULE_OK as c_int {
                drop(Box::from_raw(value));
            }
        }
    }

    /// Removes the TTL that a client gave the key. True if there was one.
    pub(crate) fn persist(&mut self) -> bool {
        let none = i64::from(raw::REDISMODULE_NO_EXPIRE);
        // SAFETY: the key is open for writing.
        unsafe {
            api!(RedisModule_GetExpire, self.key) != none
                && api!(RedisModule_SetExpire, self.key, none) == raw::REDISMODULE_OK as c_int
        }
    }

    /// Deletes what it holds. Our `unlink` callback runs inside.
    pub(crate) fn delete(&mut self) {
        self.kind = Kind::Empty;
        self.value = ptr::null_mut();
        self.claim = None;
        // SAFETY: open for writing, and no borrow of its value is left.
        unsafe { api!(RedisModule_DeleteKey, self.key) };
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        if !self.key.is_null() {
            // SAFETY: opened by `new`'s caller and closed only here.
            unsafe { api!(RedisModule_CloseKey, self.key) };
        }
    }
}

/// SAFETY: `key` is null or open.
unsafe fn inspect(key: *mut raw::RedisModuleKey) -> (Kind, *mut Value) {
    if key.is_null() {
        return (Kind::Empty, ptr::null_mut());
    }
    // SAFETY: promised by the caller. An empty key has no module type.
    unsafe {
        let found = api!(RedisModule_ModuleTypeGetType, key);
        if !found.is_null() && found == native_type::get() {
            let value = api!(RedisModule_ModuleTypeGetValue, key);
            (Kind::Lock, value.cast())
        } else if api!(RedisModule_KeyType, key) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int {
            (Kind::Empty, ptr::null_mut())
        } else {
            (Kind::Other, ptr::null_mut())
        }
    }
}
