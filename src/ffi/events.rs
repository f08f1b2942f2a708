//! Events of the server, and the module's part of INFO.

use std::os::raw::{c_int, c_void};

use redis_module::raw;

use super::context::{Context, db_of};
use super::handlers::{self, Event};
use super::log::{c_string, catch};

const EVENTS: [u64; 7] = [
    raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    raw::REDISMODULE_EVENT_LOADING,
    raw::REDISMODULE_EVENT_CRON_LOOP,
    raw::REDISMODULE_EVENT_FLUSHDB,
    raw::REDISMODULE_EVENT_SWAPDB,
    raw::REDISMODULE_EVENT_FORK_CHILD,
    raw::REDISMODULE_EVENT_CONFIG,
];

/// Subscribes to the events; false if the server refuses.
pub(super) fn subscribe(ctx: &Context<'_>) -> bool {
    EVENTS.iter().all(|&id| {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the callback is a function of ours, good for as long as the module is loaded.
        let done = unsafe {
            api!(
                RedisModule_SubscribeToServerEvent,
                ctx.as_ptr(),
                event,
                Some(on_event)
            )
        };
        done == raw::REDISMODULE_OK as c_int
    })
}

unsafe extern "C" fn on_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    catch("an event", || {
        // SAFETY: the server's context for this call; `data` is what it documents for the event.
        let (ctx, event) = unsafe { (Context::new(ctx), decode(event.id, subevent, data)) };
        if let Some(event) = event {
            (handlers::get().on_event)(&ctx, event);
        }
    });
}

/// SAFETY: `data` belongs to the event as the server's documentation says.
unsafe fn decode(id: u64, subevent: u64, data: *mut c_void) -> Option<Event> {
    match id {
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => Some(Event::Role {
            primary: subevent == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER,
        }),
        raw::REDISMODULE_EVENT_FLUSHDB if subevent == raw::REDISMODULE_SUBEVENT_FLUSHDB_START => {
            // SAFETY: a FLUSHDB event carries this struct.
            let info = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() };
            Some(Event::Flush {
                db: (info.dbnum >= 0).then(|| db_of(info.dbnum)),
            })
        }
        raw::REDISMODULE_EVENT_SWAPDB => {
            // SAFETY: a SWAPDB event carries this struct.
            let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
            let (one, other) = (db_of(info.dbnum_first), db_of(info.dbnum_second));
            Some(Event::SwapDb(one, other))
        }
        raw::REDISMODULE_EVENT_LOADING if subevent == raw::REDISMODULE_SUBEVENT_LOADING_ENDED => {
            Some(Event::Loaded)
        }
        raw::REDISMODULE_EVENT_LOADING
            if subevent == raw::REDISMODULE_SUBEVENT_LOADING_REPL_START =>
        {
            Some(Event::Syncing)
        }
        raw::REDISMODULE_EVENT_CRON_LOOP => Some(Event::Cron),
        raw::REDISMODULE_EVENT_FORK_CHILD
            if subevent == raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN =>
        {
            Some(Event::Forked)
        }
        raw::REDISMODULE_EVENT_CONFIG => Some(Event::Config),
        _ => None,
    }
}

pub(super) unsafe extern "C" fn on_info(info: *mut raw::RedisModuleInfoCtx, crashing: c_int) {
    if crashing != 0 {
        // The state may be what crashed; a report must not touch it.
        return;
    }
    catch("INFO", || {
        // SAFETY: an empty name makes the section be called after the module: `lock`. The server puts that before the name of each
        // field, and copies names and texts. It calls this with its lock held.
        unsafe {
            if api!(RedisModule_InfoAddSection, info, c"".as_ptr()) != raw::REDISMODULE_OK as c_int
            {
                return;
            }
            for (name, value) in (handlers::get().info)(&Context::detached()) {
                let (name, value) = (c_string(&name), c_string(&value));
                let (name, value) = (name.as_ptr(), value.as_ptr());
                api!(RedisModule_InfoAddFieldCString, info, name, value);
            }
        }
    });
}
