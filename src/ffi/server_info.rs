//! What the server says of itself in INFO.

use std::ffi::CStr;

use super::context::Context;

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
}
