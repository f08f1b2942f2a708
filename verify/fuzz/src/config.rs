//! Replaces the module's settings by their defaults.

pub(crate) struct Setting(u64);

impl Setting {
    pub(crate) fn get(&self) -> u64 {
        self.0
    }
}

pub(crate) static MAX_LEASE: Setting = Setting(86_400_000);
