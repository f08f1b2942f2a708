//! The rules of locks without a server: random programs compared with models of the contract, the bytes of saved locks, and
//! the cost of it all.

mod admission;
mod allocations;
mod codec;
mod crowds;
mod deadlock;
mod keys;
mod lease_order;
mod lease_tables;
mod locks;
mod mail;
mod observed;
mod queues;
mod random;
mod requests;
mod several;
mod steps;
mod undelivered;
