//! An opened key.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::raw::c_int;
use std::ptr;

use redis_module::{RedisString, raw};

use super::args::{Arg, own_string};
use super::context::Context;
use super::context::MainThread;
use super::native_type;
use super::value::Value;
use crate::error::Error;

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
    /// `None` once it has no value to borrow: `delete` and `set` may lead to other commands, which open keys.
    claim: Option<Claim>,
    /// The lock it holds, null if it holds none. The server does not move or free it while the key is open, for
    /// nothing is called then that could change the key, but in `delete` and `set`.
    value: *mut Value,
    /// A name that was made for this key.
    own_name: Option<RedisString>,
    call: PhantomData<&'c ()>,
}

impl Context<'_> {
    /// Opens the key, while no other one is open.
    ///
    /// # Errors
    /// [`Error::WRONG_TYPE`] if it holds something else than a lock.
    pub(crate) fn open(&self, name: Arg<'_>, access: Access) -> Result<Key<'_>, Error> {
        // SAFETY: the name outlives the call.
        let key = unsafe { Key::new(self, name.as_ptr(), access) };
        match key.has_other_type() {
            true => Err(Error::WRONG_TYPE),
            false => Ok(key),
        }
    }

    /// Opens a key whose name is not an argument. If it holds something else than a lock, it has no value.
    pub(crate) fn open_named(&self, name: &[u8], access: Access) -> Key<'_> {
        let name = own_string(name);
        // SAFETY: the name is freed after the key is closed.
        let mut key = unsafe { Key::new(self, name.inner, access) };
        key.own_name = Some(name);
        key
    }
}

impl<'c> Key<'c> {
    /// SAFETY: `name` is a string of the server that outlives the key.
    unsafe fn new(ctx: &'c Context<'_>, name: *mut raw::RedisModuleString, access: Access) -> Self {
        let claim = Some(Claim::take(ctx));
        // SAFETY: promised by the caller. The key, null if it is absent and opened to read, is closed by this value alone, before the
        // context ends, for it borrows from it. An empty key has no module type.
        let (key, value) = unsafe {
            let key = api!(RedisModule_OpenKey, ctx.as_ptr(), name, access.mode());
            let is_lock = !key.is_null() && {
                let found = api!(RedisModule_ModuleTypeGetType, key);
                !found.is_null() && found == native_type::get()
            };
            match is_lock {
                true => (key, api!(RedisModule_ModuleTypeGetValue, key).cast()),
                false => (key, ptr::null_mut()),
            }
        };
        Self {
            key,
            claim,
            value,
            own_name: None,
            call: PhantomData,
        }
    }

    /// Whether the key holds something else than a lock.
    fn has_other_type(&self) -> bool {
        // SAFETY: the key is open, unless it is null.
        self.value.is_null()
            && !self.key.is_null()
            && unsafe {
                api!(RedisModule_KeyType, self.key) != raw::REDISMODULE_KEYTYPE_EMPTY as c_int
            }
    }

    /// What the key holds; `None` if that is no lock.
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

    /// Deletes the key. Our `unlink` callback runs inside.
    pub(crate) fn delete(&mut self) {
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
