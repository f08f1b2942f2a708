//! Redis Cluster: routing, slots that move, and failover.

mod clients;
mod failover;
mod hidden;
mod importing;
mod late;
mod load;
mod routing;
mod several;
mod slots;
mod waiting;
