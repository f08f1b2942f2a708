package mortise.shedlock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import mortise.Client;
import mortise.Held;
import mortise.LockException;
import mortise.Locks;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * ShedLock's provider: a scheduled job's lock is the key {@code prefix:name}. Its lease is {@code lockAtMostFor}; it is not renewed
 * but where ShedLock extends it. A job that ends before {@code lockAtLeastFor} passes the lock to a name that nobody uses, for the
 * rest of that time. Both are measured by the server's clock that does not step, not by the nodes' wall clocks.
 *
 * <p>A request that is not answered is left, or repeated, in the background until it is answered.
 */
public final class MortiseLockProvider implements ExtensibleLockProvider, AutoCloseable {
    private static final System.Logger LOG = System.getLogger(MortiseLockProvider.class.getName());

    private final Locks locks;
    private final String prefix;

    /** Locks under {@code shedlock:name}. */
    public MortiseLockProvider(Client client) {
        this(client, "shedlock");
    }

    public MortiseLockProvider(Client client, String prefix) {
        this.locks = new Locks(client);
        this.prefix = prefix;
    }

    /** Ends the background work, and closes the client. Locks stay for as long as they were taken. */
    @Override
    public void close() {
        locks.close();
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        String key = prefix + ":" + configuration.getName();
        try {
            Held held = locks.take(key).fixed().lease(atLeast(configuration.getLockAtMostFor())).wait(Duration.ZERO).acquire();
            return Optional.of(new Lock(configuration, held));
        } catch (LockException.Busy e) {
            return Optional.empty();
        } catch (LockException e) {
            throw new net.javacrumbs.shedlock.support.LockException("nobody knows who holds " + key, e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new net.javacrumbs.shedlock.support.LockException("interrupted while it asked for " + key, e);
        }
    }

    /** The shortest lease, if that is shorter. */
    private static Duration atLeast(Duration time) {
        return time.compareTo(Locks.LEAST_LEASE) < 0 ? Locks.LEAST_LEASE : time;
    }

    private static final class Lock extends AbstractSimpleLock {
        private final Held held;
        private final long taken = System.nanoTime(); // not before the grant

        Lock(LockConfiguration configuration, Held held) {
            super(configuration);
            this.held = held;
        }

        @Override
        protected void doUnlock() {
            Duration left = lockConfiguration.getLockAtLeastFor().minusNanos(System.nanoTime() - taken);
            try {
                if (left.isNegative()) {
                    held.unlock();
                } else {
                    held.keepFor(atLeast(left));
                }
            } catch (LockException.Lost e) {
                LOG.log(System.Logger.Level.WARNING, "{0} took longer than its lockAtMostFor: its lock was over before it ended", held.key());
            } catch (LockException e) {
                LOG.log(System.Logger.Level.WARNING, "{0} could not be unlocked: {1}", held.key(), e.getMessage());
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration extended) {
            try {
                held.extend(atLeast(extended.getLockAtMostFor()));
                return Optional.of(new Lock(extended, held));
            } catch (LockException.Lost e) {
                return Optional.empty();
            } catch (LockException e) {
                throw new net.javacrumbs.shedlock.support.LockException("nobody knows whether " + held.key() + " was extended", e);
            }
        }
    }
}
