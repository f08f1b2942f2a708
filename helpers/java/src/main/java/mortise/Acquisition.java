package mortise;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * A request until it is granted, or cannot be: it asks, and asks again where that may help, each time under a name that was never used
 * before. It has no thread of its own and never blocks one.
 */
final class Acquisition {
    /** For how long a server that has never answered is asked again, in ms: more likely it has a wrong address than a problem. */
    private static final long PATIENCE = 10_000;

    private final Locks locks;
    private final Locks.Request r;
    private final long began = Clock.now();
    private final CompletableFuture<Outcome> outcome = new CompletableFuture<>();
    private long pause = Locks.FIRST_PAUSE; // before the next attempt
    private volatile CompletableFuture<Node.Answer> asked; // in the attempt that goes on

    /** What became of it: a lock, or why there is none. */
    private record Outcome(Held held, RuntimeException error) {
        Held get() {
            if (error != null) {
                throw error;
            }
            return held;
        }
    }

    private Acquisition(Locks locks, Locks.Request r) {
        this.locks = locks;
        this.r = r;
    }

    static Acquisition start(Locks locks, Locks.Request r) {
        var started = new Acquisition(locks, r);
        locks.job(+1);
        started.outcome.thenRun(() -> locks.job(-1));
        started.attempt();
        return started;
    }

    /** The lock, when it is granted. A thread that is interrupted leaves nothing behind. */
    Held await() throws InterruptedException {
        try {
            return Node.await(outcome, Locks.FOREVER, r.interruptible).get();
        } catch (InterruptedException e) {
            cancel();
            throw e;
        }
    }

    /** The lock as a future, whose dependents run on threads of their own. If that is cancelled, nothing is left behind. */
    CompletableFuture<Held> future() {
        var given = new CompletableFuture<Held>();
        outcome.thenAcceptAsync(end -> {
            if (end.error != null) {
                given.completeExceptionally(end.error);
            } else if (!given.complete(end.held)) {
                end.held.release();
            }
        }, locks.listeners);
        given.whenComplete((held, failure) -> {
            if (given.isCancelled()) {
                cancel();
            }
        });
        return given;
    }

    private void cancel() {
        var why = new LockException.Unanswered("nobody waits any more", null);
        if (!outcome.complete(new Outcome(null, why))) {
            Held held = outcome.join().held;
            if (held != null) {
                held.release();
            }
        }
        var attempt = asked;
        if (attempt != null) {
            attempt.complete(Node.Answer.failed(why));
        }
    }

    private void attempt() {
        Node node;
        try {
            node = locks.node(r.key);
        } catch (LockException e) {
            failed(e);
            return;
        }
        String owner = locks.newName(r.task, r.holder);
        long sent = Clock.now();
        var answer = node.ask(r.words(owner), owner, Math.max(0, began + r.wait - sent));
        asked = answer;
        if (outcome.isDone()) { // cancelled before it was asked
            answer.complete(Node.Answer.failed(new LockException.Unanswered("nobody waits any more", null)));
        }
        answer.thenAccept(end -> answered(node, owner, sent, end));
    }

    private void answered(Node node, String owner, long sent, Node.Answer answer) {
        if (answer.error() instanceof LockException.Refused refused) {
            failed(refused); // it has changed nothing
        } else if (answer.error() != null) {
            unsure(owner, answer.error());
        } else if (answer.token() == 0) {
            failed(new LockException.Busy(r.key));
        } else {
            var held = new Held(locks, node, r, owner, answer.token());
            held.extend(Math.max(sent, answer.begun()));
            held.confirm().thenAccept(problem -> {
                if (problem == null) {
                    granted(held, owner);
                } else {
                    unsure(owner, problem);
                }
            });
        }
    }

    private void granted(Held held, String owner) {
        try {
            locks.keeper.start(held);
        } catch (LockException.Closed e) {
            unsure(owner, e);
            return;
        }
        if (!outcome.complete(new Outcome(held, null))) { // cancelled meanwhile
            held.release();
        }
    }

    private void unsure(String owner, RuntimeException error) {
        locks.leave(r.keys(), owner);
        failed(error.getCause() instanceof LockException.Refused refused ? refused : error); // who may collect no letters, say
    }

    private void failed(RuntimeException error) {
        boolean passes = error instanceof LockException e && e.passes();
        boolean isThere = locks.answered || Clock.now() - began < PATIENCE;
        if (!passes || !isThere || outcome.isDone() || locks.isClosing() || began + r.wait - Clock.now() <= pause) {
            outcome.complete(new Outcome(null, error));
            return;
        }
        locks.refresh();
        CompletableFuture.delayedExecutor(pause, TimeUnit.MILLISECONDS).execute(this::attempt);
        pause = Math.min(2 * pause, Locks.LAST_PAUSE);
    }
}
