package mortise.spring;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import mortise.LockException;
import mortise.Locks;
import mortise.ThreadLock;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.util.ConcurrentReferenceHashMap;

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
    private final Map<String, Lock> obtained = new ConcurrentReferenceHashMap<>(); // for as long as there is memory

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

    /** The lock of that key. All objects for it are the same lock. */
    @Override
    public Lock obtain(Object lockKey) {
        return obtained.computeIfAbsent(prefix + ":" + lockKey, key -> new RegistryLock(key, locks.lock(key, lease)));
    }

    private record RegistryLock(String key, ThreadLock ofThread) implements Lock {
        /** A way to acquire it. */
        private interface Acquire<E extends Exception> {
            boolean call() throws E;
        }

        private <E extends Exception> boolean acquire(Acquire<E> how) throws E {
            try {
                return how.call();
            } catch (LockException e) {
                throw new CannotAcquireLockException("the lock " + key + " cannot be acquired", e);
            }
        }

        @Override
        public void lock() {
            acquire(() -> {
                ofThread.lock();
                return true;
            });
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            tryLock(Long.MAX_VALUE, TimeUnit.DAYS);
        }

        @Override
        public boolean tryLock() {
            return acquire(ofThread::tryLock);
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            return acquire(() -> ofThread.tryLock(time, unit));
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
