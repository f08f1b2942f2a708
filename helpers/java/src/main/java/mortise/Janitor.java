package mortise;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Repeats LOCK.LEAVE until a server answers it. It has a thread of its own, because a client may block it. */
final class Janitor implements AutoCloseable {
    /** For how long late requests under a name that has left change nothing. */
    private static final String AWAY = "60000";

    private final Locks locks;
    private final ScheduledThreadPoolExecutor executor = Threads.executor("mortise-janitor");

    Janitor(Locks locks) {
        this.locks = locks;
    }

    void leave(String key, String owner) {
        locks.job(+1);
        executor.execute(() -> leave(key, owner, Locks.FIRST_PAUSE));
    }

    private void leave(String key, String owner, long pause) {
        CompletableFuture<Object> told;
        try {
            told = locks.node(key).send("LOCK.LEAVE", key, owner, "FOR", AWAY);
        } catch (LockException e) {
            told = CompletableFuture.completedFuture(e);
        }
        told.thenAccept(reply -> {
            if (reply instanceof LockException e && e.passes() && !locks.isStopped()) {
                locks.refresh();
                executor.schedule(() -> leave(key, owner, Math.min(2 * pause, Locks.LAST_PAUSE)), pause, TimeUnit.MILLISECONDS);
            } else {
                locks.job(-1);
            }
        });
    }

    @Override
    public void close() {
        executor.shutdownNow();
    }
}
