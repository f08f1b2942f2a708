//! Real servers with the module loaded.
