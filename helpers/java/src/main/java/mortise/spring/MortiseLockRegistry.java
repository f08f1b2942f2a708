package mortise.spring;

import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import mortise.LockException;
import mortise.Locks;
import mortise.ThreadLock;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.integration.support.locks.LockRegistry;

/**
 * Spring's {@link LockRegistry}: the locks are those of the keys {@code prefix:lockKey}. They throw what those of Spring's
 * registries for Redis and JDBC throw: {@link CannotAcquireLockException} where the server cannot be asked or refuses,
 * {@link IllegalStateException} for unlocking what the thread does not hold, {@link ConcurrentModificationException} for
 * unlocking what was lost.
 */
public final class MortiseLockRegistry implements LockRegistry {
    private final Locks locks;
    private final String prefix;
    private final Duration lease;
    private final Map<String, Obtained> obtained = new ConcurrentHashMap<>();
    private final ReferenceQueue<Lock> dropped = new ReferenceQueue<>();

    /** With a lease of 30 s. */
    public MortiseLockRegistry(Locks locks, String prefix) {
        this(locks, prefix, Duration.ofSeconds(30));
    }

    /** The lease is how long a lock outlives a holder that is gone; it is renewed while the lock is held. */
    public MortiseLockRegistry(Locks locks, String prefix, Duration lease) {
        this.locks = locks;
        this.prefix = prefix;
        this.lease = lease;
    }

    /** The lock of that key: the same object for as long as anybody has it. */
    @Override
    public Lock obtain(Object lockKey) {
        for (Object gone; (gone = dropped.poll()) != null; ) {
            obtained.remove(((Obtained) gone).key, gone);
        }
        String key = prefix + ":" + lockKey;
        var made = new RegistryLock(key, locks.lock(key, lease));
        while (true) {
            Lock lock = obtained.compute(key, (k, there) -> there == null || there.get() == null ? new Obtained(key, made) : there).get();
            if (lock != null) { // else it was dropped in this moment
                return lock;
            }
        }
    }

    /** A lock that somebody may have. */
    private final class Obtained extends WeakReference<Lock> {
        private final String key;

        Obtained(String key, Lock lock) {
            super(lock, dropped);
            this.key = key;
        }
    }

    private record RegistryLock(String key, ThreadLock ofThread) implements Lock {
        @Override
        public void lock() {
            try {
                ofThread.lock();
            } catch (LockException e) {
                throw notAcquired(e);
            }
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            try {
                ofThread.lockInterruptibly();
            } catch (LockException e) {
                throw notAcquired(e);
            }
        }

        @Override
        public boolean tryLock() {
            try {
                return ofThread.tryLock();
            } catch (LockException e) {
                throw notAcquired(e);
            }
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            try {
                return ofThread.tryLock(time, unit);
            } catch (LockException e) {
                throw notAcquired(e);
            }
        }

        private CannotAcquireLockException notAcquired(RuntimeException e) {
            return new CannotAcquireLockException("the lock " + key + " cannot be acquired", e);
        }

        @Override
        public void unlock() {
            try {
                ofThread.unlock();
            } catch (LockException.Lost e) {
                throw new ConcurrentModificationException("the lock " + key + " was lost: what it protects may have been changed meanwhile", e);
            } catch (LockException e) {
                throw e;
            } catch (IllegalMonitorStateException e) {
                throw new IllegalStateException(e.getMessage(), e);
            }
        }

        @Override
        public Condition newCondition() {
            return ofThread.newCondition();
        }

        @Override
        public String toString() {
            return ofThread.toString();
        }
    }
}
