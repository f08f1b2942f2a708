//! Which names of keys may be shown to an ACL user that did not name them itself.

use std::cell::Cell;
use std::os::raw::c_int;
use std::ptr::NonNull;
use std::sync::OnceLock;

use mortise_core::{Db, KeyRef};
use redis_module::raw;

use super::args::OwnString;
use super::context::{Context, number_of};

/// The user that a command runs for, or that a reply goes to.
#[derive(Debug)]
pub(crate) struct Viewer {
    rights: Rights,
    /// The database that was last checked, and whether the user may use it.
    db: Cell<Option<(Db, bool)>>,
}

#[derive(Debug)]
enum Rights {
    /// No user: a link to the primary, or the module itself. It may see everything.
    All,
    Of(NonNull<raw::RedisModuleUser>),
    /// A user that no longer exists.
    None,
}

impl Context<'_> {
    /// The ACL user that runs the command, a script's caller in a script.
    pub(crate) fn viewer(&self) -> Viewer {
        Viewer::named(&self.user_name())
    }
}

impl Viewer {
    /// The ACL user `name`; an empty name stands for no user, and may see all.
    pub(crate) fn named(name: &[u8]) -> Self {
        let rights = if name.is_empty() {
            Rights::All
        } else {
            let name = OwnString::new(name);
            // SAFETY: the string lives for the call; the user that is found is freed once, in `drop`.
            let user = unsafe { api!(RedisModule_GetModuleUserFromUserName, name.as_ptr()) };
            NonNull::new(user).map_or(Rights::None, Rights::Of)
        };
        Self {
            rights,
            db: Cell::new(None),
        }
    }

    /// True if the key would be no reason to refuse the user a command that reads it.
    pub(crate) fn may_read(&self, key: KeyRef<'_>) -> bool {
        self.allows(key, raw::REDISMODULE_CMD_KEY_ACCESS as c_int)
    }

    /// The user may do something with the key, whatever it is.
    pub(crate) fn may_name(&self, key: KeyRef<'_>) -> bool {
        self.allows(key, 0)
    }

    fn allows(&self, key: KeyRef<'_>, access: c_int) -> bool {
        let user = match self.rights {
            Rights::All => return true,
            Rights::None => return false,
            Rights::Of(user) => user.as_ptr(),
        };
        let name = OwnString::new(key.name);
        // SAFETY: the user lives for as long as this does, the string for the call.
        let checked = unsafe {
            api!(
                RedisModule_ACLCheckKeyPermissions,
                user,
                name.as_ptr(),
                access
            )
        };
        checked == raw::REDISMODULE_OK as c_int && self.may_use(user, key.db)
    }

    /// From Valkey 9.1 on a user may be kept out of databases.
    fn may_use(&self, user: *mut raw::RedisModuleUser, db: Db) -> bool {
        if let Some((asked, may)) = self.db.get()
            && asked == db
        {
            return may;
        }
        let may = check_database().is_none_or(|check| {
            let (mut reason, db) = (0, number_of(db));
            let name = OwnString::new(LISTING);
            let mut command = [name.as_ptr()];
            // SAFETY: the user lives for as long as this does, the command for the call.
            let checked = unsafe { check(user, command.as_mut_ptr(), 1, db, &raw mut reason) };
            // If the command was refused, that says nothing about the database.
            checked == raw::REDISMODULE_OK as c_int || reason != FOR_DATABASE
        });
        self.db.set(Some((db, may)));
        may
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        if let Rights::Of(user) = self.rights {
            // SAFETY: it was made by `named`, and nobody else has it.
            unsafe { api!(RedisModule_FreeModuleUser, user.as_ptr()) };
        }
    }
}

/// A command without a key, to check the rights to a database alone.
const LISTING: &[u8] = b"LOCK.TOP";

/// Why a command is not allowed: the user has no rule that allows anything in that database.
const FOR_DATABASE: c_int = 4;

/// May a user run a command in a database, and if not, why.
type CheckPermissions = unsafe extern "C" fn(
    *mut raw::RedisModuleUser,
    *mut *mut raw::RedisModuleString,
    c_int,
    c_int,
    *mut c_int,
) -> c_int;

/// The server's own function, if it has one. Not in the crate's header.
fn check_database() -> Option<CheckPermissions> {
    static FOUND: OnceLock<Option<CheckPermissions>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut found: Option<CheckPermissions> = None;
        let name = c"ValkeyModule_ACLCheckPermissions";
        // SAFETY: the server stores a function of this type where it has one of this name, and nothing else.
        unsafe { api!(RedisModule_GetApi, name.as_ptr(), (&raw mut found).cast()) };
        found
    })
}
