//! Reads fields of INFO, and settings.

use std::ffi::{CStr, CString};
use std::os::raw::c_int;
use std::slice;

use redis_module::raw;

use super::context::Context;
use crate::decimal;

/// A replica as INFO shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replica {
    /// It has finished its sync and follows the stream.
    pub(crate) online: bool,
    /// Up to where it has acknowledged the stream.
    pub(crate) acknowledged: u64,
    /// For how many seconds it has not; below zero after a backward step of the wall clock.
    pub(crate) lag: i64,
}

/// The stream to the replicas.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replication {
    /// How long it is by now.
    pub(crate) offset: u64,
    /// How many replicas the server counts for `min-replicas-to-write`.
    pub(crate) good: u64,
    pub(crate) replicas: Vec<Replica>,
}

impl Context<'_> {
    /// Numbers of INFO `section`, in the order of `fields`; `None` for one that is not there.
    pub(crate) fn server_info<const N: usize>(
        &self,
        section: &CStr,
        fields: [&CStr; N],
    ) -> [Option<u64>; N] {
        // SAFETY: the data is freed below, once, and nothing of it is kept.
        unsafe {
            let data = api!(RedisModule_GetServerInfo, self.as_ptr(), section.as_ptr());
            let values = fields.map(|field| {
                let mut missing = 0;
                let get = redis_module::raw::RedisModule_ServerInfoGetFieldUnsigned?;
                let value = get(data, field.as_ptr(), &raw mut missing);
                (missing == 0).then_some(value)
            });
            api!(RedisModule_FreeServerInfo, self.as_ptr(), data);
            values
        }
    }

    /// The server is a replica that accepts writes only from its primary.
    pub(crate) fn is_read_only_replica(&self) -> bool {
        self.server_info(c"replication", [c"slave_read_only"]) == [Some(1)]
    }

    /// A setting of the server that is a whole number; `None` if it cannot be read.
    pub(crate) fn setting(&self, name: &CStr) -> Option<u64> {
        decimal::parse(&self.setting_text(name)?)
    }

    /// A setting of the server as `CONFIG GET` shows it; `None` if it cannot be read.
    pub(crate) fn setting_text(&self, name: &CStr) -> Option<Vec<u8>> {
        self.ask(c"CONFIG", &[c"GET", name], |reply| {
            // SAFETY: the reply is not freed before this returns, and its element goes with it.
            unsafe { text(api!(RedisModule_CallReplyArrayElement, reply, 1)) }
        })
    }

    /// The server is Valkey 8.0 or 8.1.
    pub(super) fn is_valkey_8(&self) -> bool {
        let version = self.server_text(c"server", c"valkey_version");
        version.is_some_and(|version| version.starts_with(b"8."))
    }

    /// A text of INFO `section`; `None` if it is not there.
    pub(crate) fn server_text(&self, section: &CStr, field: &CStr) -> Option<Vec<u8>> {
        // SAFETY: the data is freed below, once; the text is copied before.
        unsafe {
            let data = api!(RedisModule_GetServerInfo, self.as_ptr(), section.as_ptr());
            let text = api!(RedisModule_ServerInfoGetFieldC, data, field.as_ptr());
            let text = (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes().to_vec());
            api!(RedisModule_FreeServerInfo, self.as_ptr(), data);
            text
        }
    }

    /// The text of CLUSTER NODES; `None` if it cannot be read.
    pub(crate) fn cluster_nodes(&self) -> Option<Vec<u8>> {
        // SAFETY: the reply is not freed before this returns.
        self.ask(c"CLUSTER", &[c"NODES"], |reply| unsafe { text(reply) })
    }

    /// Calls a command that changes nothing, with up to three arguments, and reads its reply.
    fn ask<T>(
        &self,
        command: &CStr,
        args: &[&CStr],
        read: impl FnOnce(*mut raw::RedisModuleCallReply) -> Option<T>,
    ) -> Option<T> {
        let format = [c"", c"c", c"cc", c"ccc"].get(args.len())?;
        let arg = |index: usize| args.get(index).map_or(std::ptr::null(), |arg| arg.as_ptr());
        // SAFETY: the format names as many C strings as there are; the server ignores what follows.
        // The reply is ours to free, after it was read.
        unsafe {
            let reply = api!(
                RedisModule_Call,
                self.as_ptr(),
                command.as_ptr(),
                format.as_ptr(),
                arg(0),
                arg(1),
                arg(2),
            );
            if reply.is_null() {
                return None;
            }
            let value = read(reply);
            api!(RedisModule_FreeCallReply, reply);
            value
        }
    }

    /// How far the stream to the replicas is, and how far each has acknowledged it.
    pub(crate) fn replication(&self) -> Replication {
        // SAFETY: the data is freed below, once; the texts are copied before.
        unsafe {
            let data = api!(
                RedisModule_GetServerInfo,
                self.as_ptr(),
                c"replication".as_ptr()
            );
            let mut replication = Replication::default();
            for (field, number) in [
                (c"master_repl_offset", &mut replication.offset),
                (c"min_slaves_good_slaves", &mut replication.good),
            ] {
                let text = api!(RedisModule_ServerInfoGetFieldC, data, field.as_ptr());
                if !text.is_null() {
                    let text = CStr::from_ptr(text).to_bytes();
                    *number = decimal::parse(text).unwrap_or(0);
                }
            }
            for index in 0.. {
                let Ok(field) = CString::new(format!("slave{index}")) else {
                    break;
                };
                let text = api!(RedisModule_ServerInfoGetFieldC, data, field.as_ptr());
                if text.is_null() {
                    break;
                }
                let text = CStr::from_ptr(text).to_string_lossy();
                replication.replicas.push(Replica::read(&text));
            }
            api!(RedisModule_FreeServerInfo, self.as_ptr(), data);
            replication
        }
    }
}

impl Replica {
    /// `ip=…,port=…,state=online,offset=…,lag=…`
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
            lag: field("lag").and_then(|text| text.parse().ok()).unwrap_or(0),
        }
    }
}

/// SAFETY: `reply` is null or a reply that lives for the call.
unsafe fn text(reply: *mut raw::RedisModuleCallReply) -> Option<Vec<u8>> {
    let string = raw::REDISMODULE_REPLY_STRING as c_int;
    // SAFETY: promised by the caller; the text belongs to the reply.
    unsafe {
        if reply.is_null() || api!(RedisModule_CallReplyType, reply) != string {
            return None;
        }
        let mut len = 0;
        let text = api!(RedisModule_CallReplyStringPtr, reply, &raw mut len);
        Some(slice::from_raw_parts(text.cast(), len).to_vec())
    }
}
