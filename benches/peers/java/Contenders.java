import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import mortise.Locks;
import mortise.jedis.JedisClient;
import mortise.shedlock.MortiseLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/** How each library takes what a case asks for. */
final class Contenders {
    /** Takes the lock of a key, or of several, waiting without a limit; what comes back gives it back. */
    interface Contender {
        Runnable take(List<String> keys, boolean write) throws InterruptedException;
    }

    private static final Duration LEASE = Duration.ofSeconds(30);
    /** ShedLock does not wait: a job whose lock is taken is over, and tries again when it is due the next time. */
    private static final long DUE = 100;

    private Contenders() {}

    /** {@code modes}: of a lock to read and to write; {@code permits}: of a semaphore; {@code several}: keys at once. */
    static Contender of(String name, int port, boolean modes, int permits, boolean several) {
        return switch (name) {
            case "redisson" -> redisson(port, modes, permits, several);
            case "mortise-jedis" -> mortise(port, permits, several);
            case "shedlock" -> shedlock(new RedisLockProvider(connections(port)));
            case "mortise-shedlock" -> shedlock(new MortiseLockProvider(JedisClient.of("127.0.0.1", port)));
            default -> throw new IllegalArgumentException("unknown contender " + name);
        };
    }

    private static Contender mortise(int port, int permits, boolean several) {
        var locks = new Locks(JedisClient.of("127.0.0.1", port));
        if (permits > 0) {
            return (keys, write) -> {
                var semaphore = locks.semaphore(keys.get(0), permits);
                semaphore.acquire();
                return semaphore::release;
            };
        }
        if (several) {
            return (keys, write) -> locks.take(keys.get(0)).acquireWith(keys.subList(1, keys.size()).toArray(String[]::new))::unlock;
        }
        return (keys, write) -> locked(write ? locks.lock(keys.get(0)) : locks.readWriteLock(keys.get(0)).readLock());
    }

    private static Contender redisson(int port, boolean modes, int permits, boolean several) {
        var config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
        RedissonClient redisson = Redisson.create(config);
        if (permits > 0) {
            List.of("warm", "key:0").forEach(key -> redisson.getPermitExpirableSemaphore(key).trySetPermits(permits));
            return (keys, write) -> {
                var semaphore = redisson.getPermitExpirableSemaphore(keys.get(0));
                String permit = semaphore.acquire(LEASE.toSeconds(), TimeUnit.SECONDS);
                return () -> semaphore.release(permit);
            };
        }
        if (several) {
            return (keys, write) -> locked(redisson.getMultiLock(keys.stream().map(redisson::getLock).toArray(RLock[]::new)));
        }
        if (!modes) {
            return (keys, write) -> locked(redisson.getLock(keys.get(0)));
        }
        return (keys, write) -> {
            var both = redisson.getReadWriteLock(keys.get(0));
            return locked(write ? both.writeLock() : both.readLock());
        };
    }

    private static Contender shedlock(LockProvider provider) {
        return (keys, write) -> {
            while (true) {
                var lock = provider.lock(new LockConfiguration(Instant.now(), keys.get(0), LEASE, Duration.ZERO));
                if (lock.isPresent()) {
                    return lock.get()::unlock;
                }
                Thread.sleep(DUE);
            }
        };
    }

    private static Runnable locked(Lock lock) {
        lock.lock();
        return lock::unlock;
    }

    private static LettuceConnectionFactory connections(int port) {
        var connections = new LettuceConnectionFactory("127.0.0.1", port);
        connections.afterPropertiesSet();
        connections.start();
        return connections;
    }
}
