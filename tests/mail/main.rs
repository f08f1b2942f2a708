//! Waiting by mail, LEAVE, and TOKEN of acquiring commands: for clients whose connections are shared, or break.

mod boxes;
mod closed;
mod keyspace;
mod leave;
mod leave_permits;
mod letters;
mod limits;
mod lost;
mod other_module;
mod requests;
mod token;
