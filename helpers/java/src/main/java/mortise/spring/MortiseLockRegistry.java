package mortise.spring;

import java.util.concurrent.locks.Lock;
import java.util.function.Function;
import mortise.Locks;
import org.springframework.integration.support.locks.LockRegistry;

/** Spring's {@link LockRegistry}: the locks are those of the keys {@code prefix:lockKey}. */
public final class MortiseLockRegistry implements LockRegistry {
    private final Function<String, Lock> locks;
    private final String prefix;

    public MortiseLockRegistry(Locks locks, String prefix) {
        this.locks = locks::lock;
        this.prefix = prefix;
    }

    @Override
    public Lock obtain(Object lockKey) {
        return locks.apply(prefix + ":" + lockKey);
    }
}
