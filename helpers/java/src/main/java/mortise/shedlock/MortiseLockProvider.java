package mortise.shedlock;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import mortise.Client;
import mortise.LockException;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * ShedLock's provider: a scheduled job's lock is the key {@code prefix:name}. Its lease is {@code lockAtMostFor}; it is not renewed
 * but where ShedLock extends it. A job that ends before {@code lockAtLeastFor} passes the lock to a name that nobody uses, for the
 * rest of that time. Both are measured by the server's clock that does not step, not by the nodes' wall clocks.
 *
 * <p>A request that is not answered is left, or repeated, in the background until it is answered or the lease is over.
 */
public final class MortiseLockProvider implements ExtensibleLockProvider, AutoCloseable {
    private static final System.Logger LOG = System.getLogger(MortiseLockProvider.class.getName());
    private static final Duration TIMEOUT = Duration.ofSeconds(2);
    private static final long PAUSE = 200;
    private static final String AWAY = "60000";

    private final Client client;
    private final String prefix;
    private final String uuid = UUID.randomUUID().toString();
    private final AtomicLong count = new AtomicLong();
    private final ScheduledExecutorService background = Executors.newSingleThreadScheduledExecutor(run -> {
        var thread = new Thread(run, "mortise-shedlock");
        thread.setDaemon(true);
        return thread;
    });

    /** Locks under {@code shedlock:name}. */
    public MortiseLockProvider(Client client) {
        this(client, "shedlock");
    }

    public MortiseLockProvider(Client client, String prefix) {
        this.client = client;
        this.prefix = prefix;
    }

    /** Ends the background work, and closes the client. Locks stay for as long as they were taken. */
    @Override
    public void close() {
        background.shutdownNow();
        client.close();
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        String key = prefix + ":" + configuration.getName();
        String owner = newName();
        long lease = Math.max(1, configuration.getLockAtMostFor().toMillis());
        Object token;
        try {
            token = send("LOCK.ACQUIRE", key, owner, "" + lease, "HOLDS", "1");
        } catch (RuntimeException e) {
            repeat(() -> send("LOCK.LEAVE", key, owner, "FOR", AWAY), now() + lease);
            throw new net.javacrumbs.shedlock.support.LockException("nobody knows who holds " + key, e);
        }
        return token == null ? Optional.empty() : Optional.of(new Held(configuration, key, owner, (Long) token));
    }

    private String newName() {
        return uuid + ":" + Long.toString(count.incrementAndGet(), 36);
    }

    /** Milliseconds that do not step. */
    private static long now() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }

    /** The reply. Throws what the server refused, and whatever kept it from replying. */
    private Object send(String... words) {
        Object reply = client.send(client.node(words[1]), List.of(List.of(words)), Client.Use.COMMANDS, TIMEOUT).get(0);
        if (reply instanceof LockException.Refused refused) {
            throw refused;
        }
        return reply;
    }

    /** Sends it again until it is answered. After {@code end} it would change nothing. */
    private void repeat(Supplier<Object> command, long end) {
        background.schedule(() -> {
            try {
                client.refresh();
                command.get();
            } catch (RuntimeException e) {
                if (now() < end) {
                    repeat(command, end);
                }
            }
        }, PAUSE, TimeUnit.MILLISECONDS);
    }

    private final class Held extends AbstractSimpleLock {
        private final String key;
        private final String owner;
        private final long token;
        private final long taken = now(); // not before the grant

        Held(LockConfiguration configuration, String key, String owner, long token) {
            super(configuration);
            this.key = key;
            this.owner = owner;
            this.token = token;
        }

        @Override
        protected void doUnlock() {
            long stays = taken + lockConfiguration.getLockAtLeastFor().toMillis();
            String nobody = newName();
            Supplier<Object> end = () -> {
                long left = stays - now();
                return left > 0
                    ? send("LOCK.PASS", key, owner, nobody, "" + left, "TOKEN", "" + token)
                    : send("LOCK.RELEASE", key, owner, "ALL", "TOKEN", "" + token);
            };
            try {
                if (end.get() == null) {
                    LOG.log(System.Logger.Level.WARNING, "{0} took longer than its lockAtMostFor: its lock was over before it ended", key);
                }
            } catch (RuntimeException e) {
                if (e instanceof LockException.Refused refused && refused.code().equals("NOPERM")) {
                    LOG.log(System.Logger.Level.WARNING, "{0} stays locked until its lockAtMostFor is over: {1}", key, e.getMessage());
                    return;
                }
                repeat(end, taken + lockConfiguration.getLockAtMostFor().toMillis());
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration extended) {
            try {
                Object reply = send("LOCK.RENEW", key, owner, "" + Math.max(1, extended.getLockAtMostFor().toMillis()), "TOKEN", "" + token);
                return reply == null ? Optional.empty() : Optional.of(new Held(extended, key, owner, token));
            } catch (RuntimeException e) {
                throw new net.javacrumbs.shedlock.support.LockException("nobody knows whether " + key + " was extended", e);
            }
        }
    }
}
