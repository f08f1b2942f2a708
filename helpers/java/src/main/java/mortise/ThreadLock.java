package mortise;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;

/**
 * A lock that a thread holds, as {@link java.util.concurrent.locks.ReentrantReadWriteLock}'s are: re-entrant, writer to
 * reader and back. A reader that asks to write waits for the other readers; where two do, one is refused with a deadlock.
 * Every object for the same key of the same {@link Locks} is the same lock.
 *
 * <p>The thread learns of a loss by {@link LockException.Lost}, on the next re-entry and on unlocking.
 */
public final class ThreadLock implements Lock {
    private final Locks locks;
    private final String key;
    private final long lease;
    private final boolean read;

    /** The two sides of one lock. */
    public record Pair(ThreadLock writeLock, ThreadLock readLock) implements ReadWriteLock {}

    /** What a thread holds of one lock, and how often. The server knows of one hold. */
    static final class Hold {
        private Held held;
        private int reads;
        private int writes;
    }

    ThreadLock(Locks locks, String key, Duration lease, boolean read) {
        this.locks = locks;
        this.key = key;
        this.lease = Locks.lease(lease);
        this.read = read;
    }

    @Override
    public void lock() {
        Locks.uninterrupted(() -> take(Locks.FOREVER, Locks.FOREVER, false));
    }

    @Override
    public boolean tryLock() {
        return Locks.uninterrupted(() -> take(0, Locks.FOREVER, false));
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        take(Locks.FOREVER, Locks.FOREVER, true);
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return take(Locks.wait(time, unit), Locks.FOREVER, true);
    }

    /**
     * Takes the lock as {@link #tryLock(long, TimeUnit)} does, to hold it for {@code lease} at most: then it is lost, as one with
     * {@link Locks.Request#maxHold}. With -1 it is held until it is unlocked. A thread that holds it already keeps the time
     * that it has.
     */
    public boolean tryLock(long wait, long lease, TimeUnit unit) throws InterruptedException {
        long longest = lease == -1 ? Locks.FOREVER : Locks.lease(Duration.ofNanos(unit.toNanos(lease)));
        return take(Locks.wait(wait, unit), longest, true);
    }

    /** Whether it was taken within that wait. A wait without limit ends with the lock, or with an exception. */
    private boolean take(long wait, long longest, boolean interruptible) throws InterruptedException {
        Hold hold = locks.ofThread.get().getOrDefault(key, new Hold());
        Held held = hold.held;
        if (held == null) {
            // The thread is the task, so threads that wait for each other are a deadlock.
            Locks.Request request = locks.take(key).task(locks.uuid + "-" + Thread.currentThread().getId());
            request.read = read;
            request.lease = Math.min(lease, longest);
            request.maxHold = longest;
            held = request.within(wait, interruptible);
        } else if (interruptible && Thread.interrupted()) {
            throw new InterruptedException();
        } else {
            held.check();
            if (!read && hold.writes == 0) {
                held = held.upgrade(wait, interruptible);
            }
        }
        if (held == null) {
            return false;
        }
        hold.held = held;
        locks.ofThread.get().put(key, hold);
        count(hold, +1);
        return true;
    }

    /** How often the thread holds it in this mode, after that many more. */
    private int count(Hold hold, int more) {
        return read ? hold.reads += more : (hold.writes += more);
    }

    /**
     * Unlocks it once.
     *
     * @throws LockException.Lost if the lock was lost meanwhile; then it has to be unlocked as often all the same
     * @throws LockException.Refused if the server refuses that. A writer that was to go on as a reader then keeps everybody else out until
     *     it has unlocked the read lock, too
     */
    @Override
    public void unlock() {
        Hold hold = ofThread();
        int left = count(hold, -1);
        if (hold.reads + hold.writes == 0) {
            locks.ofThread.get().remove(key);
            hold.held.unlock();
            return;
        }
        hold.held.check();
        if (!read && left == 0) {
            hold.held.downgrade();
        }
    }

    /** What this thread holds, in this mode. */
    private Hold ofThread() {
        if (getHoldCount() == 0) {
            throw new IllegalMonitorStateException("this thread does not hold the lock " + key);
        }
        return locks.ofThread.get().get(key);
    }

    /** There are none: a condition would have to be signalled to other machines. */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("newCondition: a lock on a server has no conditions");
    }

    /** The fencing token of what this thread holds, if that is held at this moment: see {@link Held#token}. */
    public long token() {
        Hold hold = locks.ofThread.get().get(key);
        return (hold == null ? ofThread() : hold).held.check();
    }

    /** Whether this thread holds the lock in this mode at this moment. */
    public boolean isHeldByCurrentThread() {
        return getHoldCount() > 0 && ofThread().held.isHeld();
    }

    /** How often this thread has taken the lock in this mode and not unlocked it, also where it was lost meanwhile. */
    public int getHoldCount() {
        Hold hold = locks.ofThread.get().get(key);
        return hold == null ? 0 : count(hold, 0);
    }

    /** Whether anybody anywhere holds the lock in this mode. Asks the server. */
    public boolean isLocked() {
        return !remainingLease().isZero();
    }

    /** How long the lock stays held in this mode if nobody renews it: the longest lease of its holders. Asks the server. */
    public Duration remainingLease() {
        return Duration.ofMillis(locks.holds(key).stream()
            .filter(hold -> (Long) hold.get(read ? "read" : "write") > 0)
            .mapToLong(hold -> (Long) hold.get("lease")).max().orElse(0));
    }

    @Override
    public String toString() {
        return "ThreadLock[" + key + (read ? ", read" : ", write") + ", held " + getHoldCount() + " times by thread "
            + Thread.currentThread().getName() + "]";
    }
}
