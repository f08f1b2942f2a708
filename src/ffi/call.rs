//! What the module asks the server for: calls of its own commands and of one that a command carries, for its caller; fields of INFO, and
//! settings.

use std::ffi::{CStr, CString};
use std::os::raw::{c_int, c_longlong};
use std::ptr::{self, NonNull};
use std::{io, slice};

use redis_module::raw;

use super::args::{Args, own_string};
use super::context::Context;
use crate::decimal::decimal;
use crate::error::{Error, shown};

/// Why the server refused a write that the module called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It refuses writes now: too few replicas, a failed save, a cluster that is down.
    Gate,
    /// The key's slot is not this server's.
    SlotElsewhere,
    /// Any other reason, as the server or the command replied it: as far as the module knows it concerns this key alone.
    Failed(String),
}

/// A reply to a call, freed with this.
pub(super) struct Reply(NonNull<raw::RedisModuleCallReply>);

impl Reply {
    /// `None` where the server did not even make a reply.
    ///
    /// SAFETY: `reply` is what a call has just returned.
    pub(super) unsafe fn new(reply: *mut raw::RedisModuleCallReply) -> Option<Self> {
        NonNull::new(reply).map(Self)
    }

    pub(super) fn as_ptr(&self) -> *mut raw::RedisModuleCallReply {
        self.0.as_ptr()
    }

    /// The text of the reply if it is an error.
    pub(super) fn error(&self) -> Option<Vec<u8>> {
        // SAFETY: the reply lives for as long as this does.
        unsafe { text(self.as_ptr(), raw::REDISMODULE_REPLY_ERROR) }
    }

    /// The text of the reply if it is a string.
    pub(super) fn text(&self) -> Option<Vec<u8>> {
        // SAFETY: as above.
        unsafe { text(self.as_ptr(), raw::REDISMODULE_REPLY_STRING) }
    }

    /// The text of an element if the reply is an array that has a string there.
    pub(super) fn text_at(&self, index: usize) -> Option<Vec<u8>> {
        // SAFETY: as above; the element goes with the reply.
        unsafe {
            let element = api!(RedisModule_CallReplyArrayElement, self.as_ptr(), index);
            text(element, raw::REDISMODULE_REPLY_STRING)
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: the reply is ours to free.
        unsafe { api!(RedisModule_FreeCallReply, self.as_ptr()) };
    }
}

/// SAFETY: `reply` is null or lives for the call.
unsafe fn text(reply: *mut raw::RedisModuleCallReply, kind: isize) -> Option<Vec<u8>> {
    // SAFETY: promised by the caller; the text belongs to the reply.
    unsafe {
        if reply.is_null() || api!(RedisModule_CallReplyType, reply) != kind as c_int {
            return None;
        }
        let mut len = 0;
        let text = api!(RedisModule_CallReplyStringPtr, reply, &raw mut len);
        match text.is_null() {
            true => Some(Vec::new()),
            false => Some(slice::from_raw_parts(text.cast(), len).to_vec()),
        }
    }
}

impl Context<'_> {
    /// Calls `command number key…` inside the server, through every gate that a client's write would have to pass: too few
    /// replicas, a failed save, a slot that is elsewhere.
    ///
    /// `was_refused`: whether the command did not run.
    ///
    /// # Errors
    /// If the server has not called the command, or the command has replied with an error.
    pub(crate) fn call_write(
        &self,
        command: &CStr,
        number: u64,
        keys: &mut dyn Iterator<Item = &[u8]>,
        was_refused: impl FnOnce() -> bool,
    ) -> Result<(), Refusal> {
        let keys: Vec<_> = keys.map(own_string).collect();
        let mut names: Vec<_> = keys.iter().map(|key| key.inner).collect();
        // `E` makes a refusal an error reply, `S` asks the gates, `!` lets through what the command
        // replicates.
        // SAFETY: the format names a number and an array of strings with its length. The reply is this call's.
        let reply = unsafe {
            Reply::new(api!(
                RedisModule_Call,
                self.as_ptr(),
                command.as_ptr(),
                c"E!Slv".as_ptr(),
                number as c_longlong,
                names.as_mut_ptr(),
                names.len(),
            ))
        };
        // The text of a refusal may be worded in any way.
        let errno = io::Error::last_os_error().raw_os_error();
        let was_refused = was_refused();
        let why = match &reply {
            None => "the server has not replied".into(),
            Some(reply) => match reply.error() {
                None => return Ok(()),
                Some(error) => String::from_utf8_lossy(&error).into_owned(),
            },
        };
        Err(match errno.filter(|_| was_refused) {
            Some(libc::EPERM) => Refusal::SlotElsewhere,
            Some(libc::ESPIPE | libc::ENETDOWN | libc::EROFS | libc::ENOSPC) => Refusal::Gate,
            _ => Refusal::Failed(why),
        })
    }

    /// Calls a command that changes nothing, with up to two arguments; `None` if the server has no such command.
    pub(super) fn ask(&self, command: &CStr, args: &[&CStr]) -> Option<Reply> {
        let format = [c"", c"c", c"cc"].get(args.len())?;
        let arg = |index: usize| args.get(index).map_or(ptr::null(), |arg| arg.as_ptr());
        let (command, format) = (command.as_ptr(), format.as_ptr());
        // SAFETY: the format names as many C strings as there are; the server ignores what follows. The reply is this call's.
        unsafe {
            let reply = api!(
                RedisModule_Call,
                self.as_ptr(),
                command,
                format,
                arg(0),
                arg(1)
            );
            Reply::new(reply)
        }
    }
}

/// Redis 7.0's text, instead of NOPERM, if a module runs a command for a user who may not run it.
const ACL_REFUSAL: &[u8] = b"ERR acl verification failed, ";

impl Context<'_> {
    /// Runs `command`, its name first, as the client that sent ours: with its rights, in its database and its protocol,
    /// and replies what it replies. No key of ours may be open, and no borrow held: the command may be one of ours.
    ///
    /// # Errors
    /// An unknown command for a name that no command can have; what the server cannot do.
    pub(crate) fn run_for_caller(&self, command: Args<'_>) -> Result<(), Error> {
        let Some(name) = command.get(0) else {
            return Err(Error::BUG);
        };
        let unknown = |_| Error::new(format!("ERR unknown command {}", shown(name.bytes())));
        let name = CString::new(name.bytes()).map_err(unknown)?;
        if self.breaks_in_script(command) {
            return Err(Error::not_inside("WAIT in a script"));
        }
        let args = command.from(1).as_slice();
        // `E` makes a refusal an error reply, `!` lets through what the command replicates, `C` asks for the caller's
        // rights, `S` refuses what scripts may not call, `M` what needs memory when there is none; `0` is the caller's
        // protocol.
        // SAFETY: the format names a vector with its length. The reply is this call's, and freed after it has been passed on.
        unsafe {
            let reply = self.carrying(|| {
                Reply::new(api!(
                    RedisModule_Call,
                    self.as_ptr(),
                    name.as_ptr(),
                    c"vE!CSM0".as_ptr(),
                    args.as_ptr(),
                    args.len(),
                ))
            });
            let Some(reply) = reply else {
                return Err(Error::BUG);
            };
            let error = reply.error();
            match error
                .as_ref()
                .and_then(|error| error.strip_prefix(ACL_REFUSAL))
            {
                Some(why) => {
                    self.reply_error(&format!("NOPERM {}", String::from_utf8_lossy(why)));
                }
                None => {
                    api!(
                        RedisModule_ReplyWithCallReply,
                        self.as_ptr(),
                        reply.as_ptr()
                    );
                }
            }
        }
        Ok(())
    }
}

impl Context<'_> {
    /// Whether the command would stop the server. Valkey 8 stops at an assertion when a script runs WAIT or WAITAOF by way of a module.
    fn breaks_in_script(&self, command: Args<'_>) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_LUA as c_int != 0
            && self.is_valkey_8()
            && waits_for_replicas(command)
    }
}

/// Whether `command` is WAIT or WAITAOF, by whatever name the configuration gave it: a user's rights name commands as the server does.
fn waits_for_replicas(command: Args<'_>) -> bool {
    let strings = command.as_slice();
    // SAFETY: the user is made and freed here. The strings live for the call, which does not change them.
    unsafe {
        let user = api!(RedisModule_CreateModuleUser, c"waits".as_ptr());
        for right in [c"+wait", c"+waitaof"] {
            api!(RedisModule_SetModuleUserACL, user, right.as_ptr());
        }
        let (command, len) = (strings.as_ptr().cast_mut(), strings.len() as c_int);
        let may = api!(RedisModule_ACLCheckCommandPermissions, user, command, len);
        api!(RedisModule_FreeModuleUser, user);
        may == raw::REDISMODULE_OK as c_int
    }
}

/// A replica as INFO shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replica {
    /// It has finished its sync and follows the stream.
    pub(crate) online: bool,
    /// Up to where it has acknowledged the stream.
    pub(crate) acknowledged: u64,
}

/// The stream to the replicas.
#[derive(Clone, Debug)]
pub(crate) struct Replication {
    /// How long it is by now.
    pub(crate) offset: u64,
    /// How many replicas the server counts for `min-replicas-to-write`.
    pub(crate) good: u64,
    pub(crate) replicas: Vec<Replica>,
}

impl Context<'_> {
    /// Reads fields of INFO `section`: `read` gets a function that returns the text of one, if it is there.
    fn with_info<T>(
        &self,
        section: &CStr,
        read: impl FnOnce(&dyn Fn(&CStr) -> Option<Vec<u8>>) -> T,
    ) -> T {
        // SAFETY: the data is freed below, once; each text is copied before.
        unsafe {
            let data = api!(RedisModule_GetServerInfo, self.as_ptr(), section.as_ptr());
            let outcome = read(&|field| {
                let text = api!(RedisModule_ServerInfoGetFieldC, data, field.as_ptr());
                (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes().to_vec())
            });
            api!(RedisModule_FreeServerInfo, self.as_ptr(), data);
            outcome
        }
    }

    /// Numbers of INFO `section`, in the order of `fields`; `None` for one that is not there.
    pub(crate) fn server_info<const N: usize>(
        &self,
        section: &CStr,
        fields: [&CStr; N],
    ) -> [Option<u64>; N] {
        self.with_info(section, |text| fields.map(|field| decimal(&text(field)?)))
    }

    /// A text of INFO `section`; `None` if it is not there.
    pub(crate) fn server_text(&self, section: &CStr, field: &CStr) -> Option<Vec<u8>> {
        self.with_info(section, |text| text(field))
    }

    /// Whether the server, a replica, accepts writes only from its primary.
    pub(crate) fn is_read_only_replica(&self) -> bool {
        self.server_info(c"replication", [c"slave_read_only"]) == [Some(1)]
    }

    /// A setting of the server that is a whole number; `None` if it cannot be read.
    pub(crate) fn setting(&self, name: &CStr) -> Option<u64> {
        decimal(&self.ask(c"CONFIG", &[c"GET", name])?.text_at(1)?)
    }

    /// Whether the server is Valkey 8.0 or 8.1.
    pub(super) fn is_valkey_8(&self) -> bool {
        let version = self.server_text(c"server", c"valkey_version");
        version.is_some_and(|version| version.starts_with(b"8."))
    }

    /// The text of CLUSTER NODES; `None` if it cannot be read.
    pub(crate) fn cluster_nodes(&self) -> Option<Vec<u8>> {
        self.ask(c"CLUSTER", &[c"NODES"])?.text()
    }

    /// How far the stream to the replicas is, and how far each has acknowledged it.
    pub(crate) fn replication(&self) -> Replication {
        self.with_info(c"replication", |text| {
            let number = |field| text(field).and_then(|text| decimal(&text)).unwrap_or(0);
            let replicas = (0..).map_while(|index| {
                let line = text(&CString::new(format!("slave{index}")).ok()?)?;
                Some(Replica::read(&String::from_utf8_lossy(&line)))
            });
            Replication {
                offset: number(c"master_repl_offset"),
                good: number(c"min_slaves_good_slaves"),
                replicas: replicas.collect(),
            }
        })
    }
}

impl Replica {
    /// `ip=…,port=…,state=online,offset=…`
    fn read(line: &str) -> Self {
        let field = |name: &str| {
            let mut parts = line.split(',').filter_map(|part| part.split_once('='));
            parts.find_map(|(found, value)| (found == name).then_some(value))
        };
        Self {
            online: field("state") == Some("online"),
            acknowledged: field("offset")
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
        }
    }
}
