//! Reads fields of INFO, and settings.

use std::ffi::{CStr, CString};

use super::args::decimal;
use super::context::Context;

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

    /// The server is a replica that accepts writes only from its primary.
    pub(crate) fn is_read_only_replica(&self) -> bool {
        self.server_info(c"replication", [c"slave_read_only"]) == [Some(1)]
    }

    /// A setting of the server that is a whole number; `None` if it cannot be read.
    pub(crate) fn setting(&self, name: &CStr) -> Option<u64> {
        decimal(&self.setting_text(name)?)
    }

    /// A setting of the server as `CONFIG GET` shows it; `None` if it cannot be read.
    pub(crate) fn setting_text(&self, name: &CStr) -> Option<Vec<u8>> {
        self.ask(c"CONFIG", &[c"GET", name])?.text_at(1)
    }

    /// The server is Valkey 8.0 or 8.1.
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
