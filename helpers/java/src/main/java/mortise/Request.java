package mortise;

import java.time.Duration;

/** How a lock is to be taken. */
public final class Request {
    private final Locks locks;
    final String key;
    boolean read;
    boolean interruptible = true;
    long lease;
    long wait = Locks.FOREVER;
    long maxHold = Locks.FOREVER;
    String task;

    Request(Locks locks, String key, long lease) {
        this.locks = locks;
        this.key = key;
        this.lease = lease;
    }

    /** To read, beside other readers. */
    public Request read() {
        read = true;
        return this;
    }

    /** How long the lock outlives a holder that is gone: 30 s unless told. It is renewed at a third of that. */
    public Request lease(Duration lease) {
        this.lease = Locks.millis(lease);
        return this;
    }

    /** How long to queue for it; without limit unless told. */
    public Request wait(Duration wait) {
        this.wait = wait.isNegative() || wait.isZero() ? 0 : Locks.millis(wait);
        return this;
    }

    /** How long it is held in all: it is lost then, however healthy everything is. */
    public Request maxHold(Duration maxHold) {
        this.maxHold = Locks.millis(maxHold);
        return this;
    }

    /** The task that takes it, so that deadlocks among tasks with several locks are found. Unique among programs. */
    public Request task(String task) {
        this.task = task;
        return this;
    }

    /** As a {@link ThreadLock} takes it: threads that wait for each other are a deadlock. */
    Request forThread(boolean read, long lease, long wait, boolean interruptible) {
        this.read = read;
        this.lease = lease;
        this.wait = wait;
        this.interruptible = interruptible;
        return task(locks.threadTask());
    }

    /**
     * Takes the lock. A thread that is interrupted waits no longer, and leaves nothing behind.
     *
     * @throws LockException.Busy if it is held by others for that long
     */
    public Held acquire() throws InterruptedException {
        locks.job(+1);
        try {
            return locks.acquire(this);
        } finally {
            locks.job(-1);
        }
    }
}
