//! What tasks do with locks of others: share them by permits, pass them on to a job, take over a job, revoke.

use std::time::Duration;

use super::{Any, POOL, Task, within};
use crate::error::Error;
use crate::guard::Guard;
use crate::held::Held;
use crate::name::Mode;
use crate::parts::Permits;
use crate::referee;
use crate::world::{Job, with};

impl Task {
    /// Takes some permits of a pool.
    pub(super) async fn use_pool(&mut self) -> Result<(), Error> {
        self.kept = None;
        let dice = &mut self.dice;
        let limit = self.plan.permits;
        let count = dice.within(1..=limit.into()) as u32;
        let lock = self.client.lock(POOL).auto_renew(dice.percent(75));
        let lock = lock.lease(Duration::from_millis(dice.pick(&self.plan.leases)));
        let lock = lock.wait(Duration::from_millis(dice.within(0..=1_500)));
        let patience = dice.percent(25).then(|| dice.within(0..=400));
        let pool = lock.permits(count, limit);
        let guard = match within(patience, pool.acquire()).await {
            None | Some(Err(Error::Busy { .. })) => return Ok(()),
            Some(taken) => taken?,
        };
        let permits = Some(Permits { count, limit });
        let ticket = referee::enter(Held::of(&guard), guard.mode(), permits);
        self.hold(guard, ticket, permits).await
    }

    /// Takes over the lock of a job, which may be delivered twice.
    pub(super) async fn run_job(&mut self) -> Result<(), Error> {
        self.kept = None;
        let dice = &mut self.dice;
        let is_delivered_again = dice.percent(60);
        let Some(job) = with(|world| {
            let last = world.jobs.len().checked_sub(1)?;
            let at = dice.within(0..=last as u64) as usize;
            Some(match is_delivered_again {
                true => world.jobs[at].clone(),
                false => world.jobs.swap_remove(at),
            })
        }) else {
            return Ok(());
        };
        let lock = self.client.lock(&job.key).auto_renew(dice.percent(75));
        let lock = lock.lease(Duration::from_millis(dice.pick(&self.plan.leases)));
        let lock = lock.wait(Duration::from_millis(dice.within(0..=1_500)));
        let patience = dice.percent(25).then(|| dice.within(0..=100));
        let taken = within(patience, lock.take_over(&job.owner, job.token)).await;
        let guard = match taken {
            None | Some(Err(Error::Lost(_))) => return Ok(()),
            Some(taken) => taken?,
        };
        let ticket = referee::enter(Held::of(&guard), guard.mode(), job.permits);
        self.hold(guard, ticket, job.permits).await
    }

    /// Revokes the hold of a random current holder.
    pub(super) async fn revoke(&mut self) -> Result<(), Error> {
        let Some((key, owner)) = referee::pick(&mut self.dice) else {
            return Ok(());
        };
        if let Any::One(client) = &self.client
            && let Some(left) = client.revoke(&key, &owner).await?
        {
            referee::revoked(&key, &owner, left);
        }
        Ok(())
    }

    /// Passes the lock on to the runner of a new job. False if the guard is lost then.
    pub(super) async fn pass_on(&mut self, guard: &Guard, permits: Option<Permits>) -> bool {
        let lease = Duration::from_millis(self.dice.pick(&self.plan.leases));
        let patience = self.dice.percent(25).then(|| self.dice.within(0..=20));
        let owner = format!("job{}", with(|world| world.names.next()));
        let passed = within(patience, guard.pass_to(&owner, lease)).await;
        if let Some(Ok(token)) = passed {
            let key = String::from_utf8_lossy(guard.key()).into_owned();
            let job = Job {
                key,
                owner,
                token,
                permits: permits.filter(|_| guard.mode() == Mode::Read),
            };
            with(|world| {
                world.jobs_ever.insert(job.owner.clone().into_bytes());
                world.jobs.push(job);
            });
        }
        guard.is_valid()
    }
}
