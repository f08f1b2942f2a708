package mortise;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A lock that a thread holds, as {@link java.util.concurrent.locks.ReentrantReadWriteLock}'s are: re-entrant, writer to
 * reader and back. A reader that asks to write waits for the other readers; where two do, one is refused with a deadlock.
 * Every object for the same key of the same {@link Locks} is the same lock.
 *
 * <p>What the thread has lost it is told by {@link LockException.Lost}, on the next re-entry and on unlocking.
 */
public final class ThreadLock implements Lock {
    private final Locks locks;
    private final String key;
    private final long lease;
    private final boolean read;

    ThreadLock(Locks locks, String key, long lease, boolean read) {
        this.locks = locks;
        this.key = key;
        this.lease = lease;
        this.read = read;
    }

    @Override
    public void lock() {
        try {
            take(Locks.FOREVER, false);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e); // is not thrown
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        take(Locks.FOREVER, true);
    }

    @Override
    public boolean tryLock() {
        try {
            return take(0, false);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e); // is not thrown
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return take(time <= 0 ? 0 : Math.max(1, unit.toMillis(time)), true);
    }

    private boolean take(long wait, boolean interruptible) throws InterruptedException {
        if (interruptible && Thread.interrupted()) {
            throw new InterruptedException();
        }
        ThreadHold hold = locks.ofThread().get(key);
        if (hold == null) {
            try {
                hold = new ThreadHold(locks.take(key).forThread(read, lease, wait, interruptible).acquire());
            } catch (LockException.Busy e) {
                return false;
            }
            locks.ofThread().put(key, hold);
        } else {
            hold.held.check();
            if (!read && hold.writes == 0 && !hold.held.upgrade(wait, interruptible)) {
                return false;
            }
        }
        if (read) {
            hold.reads++;
        } else {
            hold.writes++;
        }
        return true;
    }

    /** @throws LockException.Lost if the lock was lost meanwhile; then it has to be unlocked as often all the same */
    @Override
    public void unlock() {
        ThreadHold hold = locks.ofThread().get(key);
        if (hold == null || (read ? hold.reads : hold.writes) == 0) {
            throw new IllegalMonitorStateException("this thread does not hold the lock " + key);
        }
        if (read) {
            hold.reads--;
        } else {
            hold.writes--;
        }
        if (hold.reads + hold.writes == 0) {
            locks.ofThread().remove(key);
            hold.held.unlock();
        } else if (!read && hold.writes == 0) {
            hold.held.check();
            hold.held.downgrade();
        } else {
            hold.held.check();
        }
    }

    /** There are none: a condition would have to be signalled to other machines. */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("newCondition: a lock on a server has no conditions");
    }

    /** The fencing token of what this thread holds, if that is held at this moment: see {@link Held#token}. */
    public long token() {
        ThreadHold hold = locks.ofThread().get(key);
        if (hold == null) {
            throw new IllegalMonitorStateException("this thread does not hold the lock " + key);
        }
        return hold.held.check();
    }

    /** Whether this thread holds the lock in this mode at this moment. */
    public boolean isHeldByCurrentThread() {
        ThreadHold hold = locks.ofThread().get(key);
        return hold != null && (read ? hold.reads : hold.writes) > 0 && hold.held.isHeld();
    }
}
