package mortise;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Has every hold renewed in time, all of one server together, and notices lost ones. It sends and never waits. */
final class Keeper {
    private static final long LONGEST = 1000; // ms between two looks

    private final Locks locks;
    private final Set<Held> holds = ConcurrentHashMap.newKeySet();
    private long lookAt = Long.MAX_VALUE; // when it looks next; under the mutex

    Keeper(Locks locks) {
        this.locks = locks;
    }

    /** Keeps the granted lock from now on, and returns null; if the locks are closed, it returns that error instead. */
    LockException start(Held held) {
        return locks.get(() -> {
            if (locks.closing) {
                return new LockException.Closed();
            }
            locks.job(+1);
            holds.add(held);
            lookBy(held.nextLook());
            return null;
        });
    }

    void forget(Held held) {
        if (holds.remove(held)) {
            locks.job(-1);
        }
    }

    void endAll() {
        holds.forEach(Held::abandon);
    }

    /** Makes it look at that moment at the latest. Under the mutex. */
    void lookBy(long at) {
        if (at < lookAt) {
            lookAt = at;
            locks.later(Math.max(1, at - Clock.SYSTEM.now()), this::look);
        }
    }

    private void look() {
        Clock.SYSTEM.look();
        locks.with(() -> {
            if (Clock.SYSTEM.now() >= lookAt) { // else an earlier look has made this one needless
                lookAt = Long.MAX_VALUE;
                lookBy(Clock.SYSTEM.now() + LONGEST); // also where the rest fails
                lookBy(holds.stream().mapToLong(Held::keep).min().orElse(Long.MAX_VALUE));
            }
        });
    }
}
