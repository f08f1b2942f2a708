package mortise;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import mortise.Node.Answer;

/**
 * A request until it is granted, or cannot be: it asks, and asks again where that may help, each time under a name that was never used
 * before. It has no thread of its own and never blocks one.
 */
final class Acquisition {
    private final Locks locks;
    private final Locks.Request r;
    private final long began = Clock.SYSTEM.now();
    private final CompletableFuture<Held> outcome = new CompletableFuture<>();
    private long pause = Locks.FIRST_PAUSE; // before the next attempt
    private volatile CompletableFuture<Answer> asked = CompletableFuture.completedFuture(null); // the answer to the last attempt

    /** Starts it with the options as they are now: the request may be changed and used again meanwhile. */
    Acquisition(Locks locks, Locks.Request r) {
        this.locks = locks;
        this.r = r.copy();
        locks.job(+1);
        outcome.whenComplete((held, error) -> {
            asked.complete(Answer.failed(new LockException.Unanswered("nobody waits any more", null))); // if an attempt is under way
            locks.job(-1);
        });
        if (r.reader != null) {
            r.reader.upgradeBy(outcome);
        }
        attempt();
    }

    /** The lock, when it is granted. A thread that is interrupted leaves nothing behind, or waits on. */
    Held await(boolean interruptible) throws InterruptedException {
        try {
            return interruptible ? outcome.get() : outcome.join();
        } catch (ExecutionException | CompletionException e) {
            throw (LockException) e.getCause(); // it fails by nothing else
        } catch (InterruptedException e) {
            if (!cancel()) {
                outcome.thenAccept(held -> held.release(0));
            }
            throw e;
        }
    }

    /** The lock as a future, whose dependents run on threads of their own. If that is cancelled, nothing is left behind. */
    CompletableFuture<Held> future() {
        var given = new CompletableFuture<Held>();
        outcome.whenCompleteAsync((held, error) -> {
            if (error != null) {
                given.completeExceptionally(error);
            } else if (!given.complete(held)) {
                held.release(0);
            }
        }, locks::listen);
        given.whenComplete((held, error) -> cancel()); // by a time-out of the program's, say
        return given;
    }

    /** Whether that ends the request: else it has ended already. */
    private boolean cancel() {
        return outcome.completeExceptionally(new LockException.Unanswered("nobody waits any more", null));
    }

    private void attempt() {
        asked = new CompletableFuture<>();
        if (outcome.isDone()) { // cancelled already; from here on, a cancel completes what is asked
            return;
        }
        Node node;
        try {
            node = locks.node(r.key);
        } catch (LockException e) {
            failed(e);
            return;
        }
        String owner = r.reader == null ? locks.newName(r.task, r.holder) : r.reader.owner;
        long sent = Clock.SYSTEM.now();
        long left = r.from != null ? 0 : Math.max(0, began + r.wait - sent);
        node.ask(r.words(owner), owner, left, asked).thenAccept(end -> answered(owner, sent, end));
    }

    private void answered(String owner, long sent, Answer answer) {
        if (answer.error() != null && answer.error().changedNothing()) {
            failed(answer.error());
        } else if (answer.error() != null) {
            unsure(owner, answer.error());
        } else if (answer.token() == 0 && r.reader != null) {
            r.reader.prolong(r.lease).thenAccept(problem ->
                failed(problem instanceof LockException.Lost ? problem : new LockException.Busy(r.key)));
        } else if (answer.token() == 0) {
            failed(r.from == null ? new LockException.Busy(r.key) : new LockException.Lost(r.key));
        } else {
            var held = new Held(locks, r, owner, answer.token());
            held.confirm(Math.max(sent, answer.begun())).thenAccept(problem -> {
                LockException why = problem == null ? locks.keeper.start(held) : problem;
                if (why instanceof LockException.Lost) {
                    unsure(owner, new LockException.Unanswered("the grant came too late", null));
                } else if (why != null) {
                    unsure(owner, why);
                } else if (!outcome.complete(held)) { // cancelled meanwhile
                    held.release(0);
                }
            });
        }
    }

    private void unsure(String owner, LockException error) {
        locks.leave(r.keys, owner);
        boolean isWrapped = error.getCause() instanceof LockException.Refused && r.reader == null; // who may collect no letters, say
        failed(isWrapped ? (LockException) error.getCause() : error);
    }

    private void failed(LockException error) {
        boolean helps = error.passes() && (error.changedNothing() || r.from == null && r.reader == null); // else it may have the lock
        boolean isThere = locks.answered || Clock.SYSTEM.now() - began < Locks.PATIENCE;
        if (!helps || !isThere || outcome.isDone() || locks.closing || began + r.wait - Clock.SYSTEM.now() <= pause) {
            outcome.completeExceptionally(error);
            return;
        }
        locks.refresh();
        locks.later(pause, this::attempt);
        if (locks.isStopped()) { // the timer may have gone
            outcome.completeExceptionally(new LockException.Closed());
        }
        pause = Math.min(2 * pause, Locks.LAST_PAUSE);
    }
}
