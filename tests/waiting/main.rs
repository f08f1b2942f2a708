//! Requests that wait: whose turn it is, how a wait ends, and what the server, its keys and its clients do meanwhile.

mod bounds;
mod closed;
mod cluster;
mod databases;
mod deadlock;
mod deadlock_none;
mod deadlock_tasks;
mod expiry;
mod gates;
mod grace;
mod info;
mod keyspace;
mod leaving;
mod limits;
mod lost_grants;
mod order;
mod owners;
mod passing;
mod pauses;
mod revoked;
mod roles;
mod set_aside;
mod subscribed;
mod threads;
mod time_to_live;
mod transactions;
