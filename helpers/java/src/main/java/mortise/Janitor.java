package mortise;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** Repeats commands that a server has to answer, until it does. It has a thread of its own, because a client may block it. */
final class Janitor implements AutoCloseable {
    private final Locks locks;
    private final ScheduledThreadPoolExecutor executor = Threads.executor("mortise-janitor");

    Janitor(Locks locks) {
        this.locks = locks;
    }

    void tell(String key, Supplier<String[]> words) {
        locks.job(+1);
        executor.execute(() -> tell(key, words, Locks.FIRST_PAUSE));
    }

    private void tell(String key, Supplier<String[]> words, long pause) {
        CompletableFuture<Object> told;
        try {
            told = locks.node(key).send(words.get());
        } catch (LockException e) {
            told = CompletableFuture.completedFuture(e);
        }
        told.thenAccept(reply -> {
            if (reply instanceof LockException e && e.passes() && !locks.isStopped()) {
                locks.refresh();
                executor.schedule(() -> tell(key, words, Math.min(2 * pause, Locks.LAST_PAUSE)), pause, TimeUnit.MILLISECONDS);
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
