//! What `COMMAND DOCS` shows about each command. redis-cli shows it as a hint while the user types.

use std::ffi::CStr;

use crate::ffi::{ArgDoc, ArgKind, Docs, KeyAccess};

const fn needed(name: &'static CStr, kind: ArgKind) -> ArgDoc {
    ArgDoc {
        name,
        kind,
        token: None,
        optional: false,
        repeated: false,
    }
}

const fn option(token: &'static CStr, name: &'static CStr, kind: ArgKind) -> ArgDoc {
    ArgDoc {
        name,
        kind,
        token: Some(token),
        optional: true,
        repeated: false,
    }
}

const fn either(name: &'static CStr, docs: &'static [ArgDoc]) -> ArgDoc {
    ArgDoc {
        name,
        kind: ArgKind::OneOf(docs),
        token: None,
        optional: true,
        repeated: false,
    }
}

const fn choice(token: &'static CStr, name: &'static CStr, kind: ArgKind) -> ArgDoc {
    ArgDoc {
        name,
        kind,
        token: Some(token),
        optional: false,
        repeated: false,
    }
}

const KEY: ArgDoc = needed(c"key", ArgKind::Key);
const OWNER: ArgDoc = needed(c"owner", ArgKind::Text);
const LEASE: ArgDoc = needed(c"lease", ArgKind::Integer);
const TOKEN: ArgDoc = option(c"TOKEN", c"token", ArgKind::Integer);
/// Only a request that waits gets a letter.
const WAIT_OPTION: ArgDoc = option(
    c"WAIT",
    c"wait",
    ArgKind::Block(&[
        needed(c"milliseconds", ArgKind::Integer),
        option(c"MAIL", c"box", ArgKind::Text),
    ]),
);
const HOLDS_OPTION: ArgDoc = option(c"HOLDS", c"holds", ArgKind::Integer);
const FENCE_OPTION: ArgDoc = option(c"FENCE", c"fence", ArgKind::Integer);
const COUNT: ArgDoc = option(c"COUNT", c"count", ArgKind::Integer);

const ACQUIRE_ARGS: &[ArgDoc] = &[
    KEY,
    OWNER,
    LEASE,
    WAIT_OPTION,
    HOLDS_OPTION,
    FENCE_OPTION,
    TOKEN,
];

const RLOCK_ARGS: &[ArgDoc] = &[
    KEY,
    OWNER,
    LEASE,
    WAIT_OPTION,
    HOLDS_OPTION,
    option(c"LIMIT", c"limit", ArgKind::Integer),
    FENCE_OPTION,
    TOKEN,
];

const fn acquire(summary: &'static CStr, args: &'static [ArgDoc]) -> Docs {
    Docs {
        summary,
        complexity:
            c"O(log N) with N the number of holders and waiters, plus O(M log N) where it waits and others wait for its task, with M the owners that the search for deadlocks reaches, 1000 at most",
        key: KeyAccess::Write,
        open_ended: true,
        args,
        categories: c"lock write fast blocking",
    }
}

pub(crate) static ACQUIRE: Docs = acquire(
    c"Takes a lock exclusively, at once or after a wait, and returns its fencing token.",
    ACQUIRE_ARGS,
);

pub(crate) static RLOCK: Docs = acquire(
    c"Takes a lock shared with other readers, at once or after a wait, and returns its fencing token. With a limit, a lock is a semaphore.",
    RLOCK_ARGS,
);

pub(crate) static MACQUIRE: Docs = Docs {
    summary: c"Takes several locks exclusively, all or none, and returns one fencing token for all.",
    complexity:
        c"O(K log N) with K the number of keys and N that of holders and waiters, plus what LOCK.ACQUIRE adds for each key where it waits",
    key: KeyAccess::WriteNumbered,
    open_ended: true,
    args: &[
        OWNER,
        LEASE,
        needed(c"numkeys", ArgKind::Integer),
        ArgDoc {
            name: c"key",
            kind: ArgKind::Key,
            token: None,
            optional: false,
            repeated: true,
        },
        WAIT_OPTION,
        FENCE_OPTION,
    ],
    categories: c"lock write fast blocking",
};

pub(crate) static RELEASE: Docs = Docs {
    summary: c"Gives up one hold, or more, of an owner and returns how many it has left.",
    complexity:
        c"O(log N) with N the number of holders and waiters, plus O(M) for M readers granted",
    key: KeyAccess::Write,
    open_ended: true,
    args: &[
        KEY,
        OWNER,
        either(
            c"mode",
            &[
                choice(c"READ", c"read", ArgKind::Flag),
                choice(c"WRITE", c"write", ArgKind::Flag),
            ],
        ),
        either(
            c"how-much",
            &[
                choice(c"HOLDS", c"holds", ArgKind::Integer),
                choice(c"ALL", c"all", ArgKind::Flag),
            ],
        ),
        TOKEN,
    ],
    categories: c"lock write fast",
};

pub(crate) static LEAVE: Docs = Docs {
    summary: c"Ends all that an owner holds and waits for at a key, and returns whether there was anything.",
    complexity:
        c"O(log N) with N the number of holders and waiters, plus O(M) for M readers granted",
    key: KeyAccess::Write,
    open_ended: true,
    args: &[KEY, OWNER, option(c"FOR", c"milliseconds", ArgKind::Integer)],
    categories: c"lock write fast",
};

pub(crate) static MAIL: Docs = Docs {
    summary: c"Collects the answers of requests that wait by mail.",
    complexity: c"O(N log M) with N the letters delivered and deleted, and M those of all boxes",
    key: KeyAccess::Route,
    open_ended: true,
    args: &[
        needed(c"box", ArgKind::Text),
        ArgDoc {
            name: c"after",
            kind: ArgKind::Block(&[
                needed(c"since", ArgKind::Integer),
                needed(c"number", ArgKind::Integer),
            ]),
            token: Some(c"AFTER"),
            optional: true,
            repeated: false,
        },
        option(c"WAIT", c"wait", ArgKind::Integer),
        COUNT,
    ],
    categories: c"lock read fast blocking",
};

pub(crate) static RENEW: Docs = Docs {
    summary: c"Lengthens the lease of an owner's hold and returns its fencing token.",
    complexity: c"O(log N) with N the number of holders",
    key: KeyAccess::Write,
    open_ended: true,
    args: &[KEY, OWNER, LEASE, TOKEN],
    categories: c"lock write fast",
};

pub(crate) static PASS: Docs = Docs {
    summary: c"Passes an owner's whole hold on to another owner and returns the new fencing token.",
    complexity:
        c"O(log N) with N the number of holders and waiters, plus O(M) for M requests of the new owner",
    key: KeyAccess::Write,
    open_ended: true,
    args: &[
        KEY,
        OWNER,
        needed(c"newowner", ArgKind::Text),
        LEASE,
        TOKEN,
    ],
    categories: c"lock write fast",
};

pub(crate) static REVOKE: Docs = Docs {
    summary:
        c"Makes an owner's hold end with its current lease and returns how much of that is left.",
    complexity:
        c"O(log N) with N the number of holders and waiters, plus O(M) for M waiters answered",
    key: KeyAccess::Write,
    open_ended: true,
    args: &[KEY, OWNER, TOKEN],
    categories: c"lock write fast",
};

pub(crate) static FENCE: Docs = Docs {
    summary: c"Raises the fencing token of an owner's hold, and every later token with it.",
    complexity: c"O(log N) with N the number of holders",
    key: KeyAccess::Write,
    open_ended: false,
    args: &[KEY, OWNER, needed(c"token", ArgKind::Integer)],
    categories: c"lock write fast",
};

pub(crate) static GUARD: Docs = Docs {
    summary: c"Runs a command if an owner holds the lock by a fencing token, at this very moment.",
    complexity: c"O(log N) with N the number of holders, plus that of the command inside",
    key: KeyAccess::ReadAndMore,
    open_ended: true,
    args: &[
        KEY,
        OWNER,
        needed(c"token", ArgKind::Integer),
        ArgDoc {
            name: c"guarded",
            kind: ArgKind::Block(&[
                needed(c"command", ArgKind::Text),
                ArgDoc {
                    name: c"arg",
                    kind: ArgKind::Text,
                    token: None,
                    optional: true,
                    repeated: true,
                },
            ]),
            token: None,
            optional: true,
            repeated: false,
        },
    ],
    categories: c"lock write slow",
};

pub(crate) static INFO: Docs = Docs {
    summary: c"Shows who holds a lock and who waits for it.",
    complexity: c"O(N) with N the number of holds and waiters shown",
    key: KeyAccess::Read,
    open_ended: true,
    args: &[KEY, option(c"OWNER", c"owner", ArgKind::Text), COUNT],
    categories: c"lock read slow",
};

pub(crate) static TOP: Docs = Docs {
    summary: c"Shows which locks have the most waiters, of those that the user may read.",
    complexity:
        c"O(N + M log N) with N the number of locks with waiters, and M those shown, or passed over for the user's key patterns (10000 at most)",
    key: KeyAccess::None,
    open_ended: true,
    args: &[COUNT],
    categories: c"lock read slow",
};

pub(crate) static APPLY: Docs = Docs {
    summary: c"Internal: carries effects to replicas and into the AOF.",
    complexity: c"O(log N) with N the number of holders",
    key: KeyAccess::Write,
    open_ended: false,
    args: &[KEY, needed(c"effect", ArgKind::Text)],
    categories: c"lock write slow",
};

pub(crate) static SETTLE: Docs = Docs {
    summary: c"Internal: how the module's timers change a lock.",
    complexity: c"O(log N) with N the number of holders and waiters",
    key: KeyAccess::WriteAll,
    open_ended: true,
    args: &[
        needed(c"waiter", ArgKind::Integer),
        ArgDoc {
            name: c"key",
            kind: ArgKind::Key,
            token: None,
            optional: false,
            repeated: true,
        },
    ],
    categories: c"lock write slow",
};
