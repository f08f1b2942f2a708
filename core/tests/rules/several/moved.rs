//! A request that moves ahead to end a cycle makes others wait for its task.

use mortise_core::{
    Instant, Member, Mode, Observed, OwnerRef, Queues, Rank, Sharing, Wait, Waiter,
};

use super::server::{NOW, key_id, terms};

fn waiter(queues: &mut Queues, owner: &str, sharing: Sharing) -> Waiter {
    Waiter {
        id: queues.next_id(),
        owner: OwnerRef::new(owner.as_bytes()).expect("short").to_owner(),
        terms: terms(sharing),
        since: NOW,
        until: Instant::NEVER,
    }
}

fn push_both(queues: &mut Queues, owner: &str) {
    let waiter = waiter(queues, owner, Sharing::several(2));
    let keys = [key_id(0), key_id(1)];
    let members = keys.each_ref().map(|key| Member {
        key: key.as_ref(),
        ready: false,
    });
    queues.push_several(&members, &waiter);
}

#[test]
fn when_a_request_moves_ahead_its_task_also_passes_the_overtaken_requests_elsewhere() {
    let (mut queues, [first, second]) = (Queues::new(), [key_id(0), key_id(1)]);
    push_both(&mut queues, "ahead");
    let of_task = waiter(&mut queues, "task##0", Mode::Write.into());
    queues.push(first.as_ref(), of_task.clone(), Rank::Line);
    push_both(&mut queues, "behind");
    // The task waits for "behind" at the second key, and "behind" for the task at the first one.
    let mut wait = Wait {
        key: second,
        owner: OwnerRef::new(b"task##1").expect("short").to_owner(),
        terms: terms(Mode::Write.into()),
        rank: Rank::Line,
    };
    let ended = queues.end_cycles(&mut wait, &Observed::default(), NOW);
    assert_eq!((ended.deadlock, wait.rank), (None, Rank::Head));
    // "ahead" waits for the task at the second key now, so the task may not wait for it at the first one.
    let queue = queues.get(first.as_ref()).expect("three wait there");
    let foremost = queue.iter().next().map(|waiter| waiter.id);
    assert_eq!(foremost, Some(of_task.id));
    assert_eq!(ended.moved, [first]);
}
