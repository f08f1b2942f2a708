//! Redis Cluster: routing, slots that move, failover and partitions.

mod clients;
mod failover;
mod hidden;
mod importing;
mod late;
mod load;
mod partition;
mod routing;
mod several;
mod slots;
mod waiting;
