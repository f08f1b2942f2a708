package mortise;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.concurrent.TimeUnit;

/**
 * Permits that are out at the same time, in all programs together, with the methods of {@link java.util.concurrent.Semaphore}. It is
 * always fair, and nobody overtakes the queue, except that {@link #tryAcquire()} does not wait. As there, any thread may give back
 * what another one has taken from this object; more than was taken cannot be given back. A thread gives back its own permits first, the
 * last first, and then those of others, of which the lost ones go first: so no thread loses a permit because another one's was lost.
 *
 * <p>A permit is a shared hold with a lease that is renewed: those of a program that dies come back. Permits that were lost meanwhile
 * are reported by {@link LockException.Lost} when they are given back.
 */
public final class Semaphore {
    /** What one acquisition took. */
    private record Taken(Held held, int permits, Thread by) {}

    private final Locks locks;
    private final String key;
    private final int limit;
    private final long lease;
    private final ArrayDeque<Taken> taken = new ArrayDeque<>(); // the last first; under the locks' mutex

    Semaphore(Locks locks, String key, int limit, Duration lease) {
        this.locks = locks;
        this.key = key;
        this.limit = limit;
        this.lease = Locks.lease(lease);
    }

    public void acquire() throws InterruptedException {
        acquire(1);
    }

    /** Takes that many at once, or none. */
    public void acquire(int permits) throws InterruptedException {
        take(permits, Locks.FOREVER, true);
    }

    public void acquireUninterruptibly() {
        acquireUninterruptibly(1);
    }

    public void acquireUninterruptibly(int permits) {
        Locks.uninterrupted(() -> take(permits, Locks.FOREVER, false));
    }

    public boolean tryAcquire() {
        return tryAcquire(1);
    }

    public boolean tryAcquire(int permits) {
        return Locks.uninterrupted(() -> take(permits, 0, false));
    }

    public boolean tryAcquire(long timeout, TimeUnit unit) throws InterruptedException {
        return tryAcquire(1, timeout, unit);
    }

    public boolean tryAcquire(int permits, long timeout, TimeUnit unit) throws InterruptedException {
        return take(permits, Locks.wait(timeout, unit), true);
    }

    private boolean take(int permits, long wait, boolean interruptible) throws InterruptedException {
        Held held = take(permits).within(wait, interruptible);
        if (held == null) {
            return false;
        }
        locks.with(() -> taken.push(new Taken(held, permits, Thread.currentThread())));
        return true;
    }

    /**
     * A request for that many permits with all that a {@link Locks.Request} has. What it answers is given back by
     * {@link Held#unlock}, and not by {@link #release}.
     */
    public Locks.Request take(int permits) {
        Locks.Request request = locks.take(key).read();
        request.lease = lease;
        request.permits = permits;
        request.limit = limit;
        return request;
    }

    public void release() {
        release(1);
    }

    /**
     * Releases that many of the permits that this object holds. If a server does not answer, the library repeats the release in the background.
     *
     * @throws LockException.Lost if some of these were lost meanwhile
     * @throws LockException.Refused if the server's user may not release them: the library leaves what was taken with them, if it may
     * @throws IllegalMonitorStateException if there are not as many
     */
    public void release(int permits) {
        var released = new ArrayList<Runnable>();
        locks.with(() -> { // until all is sent: of two that give back parts of the same, the later one leaves less
            if (permits < 1 || permits > taken.stream().mapToInt(Taken::permits).sum()) {
                throw new IllegalMonitorStateException("of the semaphore " + key + " not " + permits + " permits are held here");
            }
            for (int left = permits; left > 0; ) {
                Taken last = next();
                taken.remove(last);
                int kept = Math.max(0, last.permits - left);
                if (kept > 0) {
                    taken.push(new Taken(last.held, kept, last.by));
                }
                var answer = last.held.release(kept);
                released.add(() -> last.held.settle(answer));
                left -= last.permits;
            }
        });
        released.forEach(Runnable::run);
    }

    /** What this thread gives back next. Under the mutex. */
    private Taken next() {
        return taken.stream().filter(one -> one.by == Thread.currentThread()).findFirst()
            .or(() -> taken.stream().filter(one -> !one.held.isHeld()).findFirst())
            .orElseGet(taken::peek);
    }

    /** How many permits are free now: none while a writer holds the lock of this key. Asks the server. */
    public int availablePermits() {
        var holds = locks.holds(key);
        boolean isWritten = holds.stream().anyMatch(hold -> (Long) hold.get("write") > 0);
        long out = holds.stream().mapToLong(hold -> (Long) hold.get("read")).sum();
        return isWritten ? 0 : (int) Math.max(0, limit - out);
    }

    @Override
    public String toString() {
        return "Semaphore[" + key + ", limit " + limit + "]";
    }
}
