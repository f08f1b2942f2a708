package mortise;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Has every hold renewed in time, all of one server together, and notices lost ones. It sends and never waits: what a client may keep
 * waiting is the janitor's, in {@link Locks#leave}.
 */
final class Keeper implements AutoCloseable {
    private static final long LONGEST = 1000; // ms between two looks

    private final Locks locks;
    private final ScheduledThreadPoolExecutor executor = Threads.executor("mortise-keeper");
    private final Set<Held> holds = ConcurrentHashMap.newKeySet();
    private ScheduledFuture<?> look; // under the mutex
    private long lookAt; // under the mutex: when it does

    Keeper(Locks locks) {
        this.locks = locks;
    }

    void start() {
        executor.execute(this::keep);
    }

    /** Makes what was granted the caller's, if the locks are not closed. */
    void start(Held held) {
        locks.with(() -> {
            if (locks.isClosing()) {
                throw new LockException.Closed();
            }
            locks.job(+1);
            lookBy(held.nextLook());
            holds.add(held);
        });
    }

    void forget(Held held) {
        holds.remove(held);
        locks.job(-1);
    }

    void releaseAll() {
        holds.forEach(Held::release);
    }

    private void keep() {
        Clock.look();
        holds.forEach(Held::follow);
        locks.with(() -> {
            lookAt = Long.MAX_VALUE;
            lookBy(holds.stream().mapToLong(Held::keep).reduce(Clock.now() + LONGEST, Math::min));
        });
    }

    /** Makes it check at that moment at the latest. Under the mutex. */
    void lookBy(long at) {
        if (at < lookAt && !locks.isStopped()) {
            lookAt = at;
            if (look != null) {
                look.cancel(false);
            }
            look = executor.schedule(this::keep, Math.max(1, at - Clock.now()), TimeUnit.MILLISECONDS);
        }
    }

    @Override
    public void close() {
        executor.shutdownNow();
    }
}
