//! Redlock: votes, rounds and tokens over several servers. Each server's part of a lock is a guard of that server's, as any
//! caller has one. Nothing below knows of this.

mod acquire;
mod ballot;
pub(crate) mod builder;
pub(crate) mod clocks;
mod member;
mod quorum_hold;
mod released;
pub(crate) mod servers;
pub(crate) mod votes;

#[expect(clippy::module_inception, reason = "it is the quorum itself")]
pub(crate) mod quorum;
#[cfg(all(test, not(simulated)))]
mod tests;

pub(crate) use ballot::Ballot;
pub(crate) use member::Member;
pub(crate) use quorum_hold::QuorumHold;
pub(crate) use servers::Servers;
