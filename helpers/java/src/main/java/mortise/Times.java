package mortise;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** Times that callers give, in ms. */
final class Times {
    static final long LEAST_LEASE = 3;

    private Times() {}

    /** Of a shorter lease nothing would be left, after {@link Held#extend} has subtracted what clocks may differ by. */
    static long lease(Duration lease) {
        return atLeast("lease", LEAST_LEASE, lease);
    }

    /** Refuses a time by which no lock could be held, such as a computed one that has passed. */
    static long atLeast(String name, long least, Duration given) {
        if (given.compareTo(Duration.ofMillis(least)) < 0) {
            throw new IllegalArgumentException(name + " must be at least " + least + " ms, got " + given);
        }
        return millis(given);
    }

    /** A wait as those of {@code java.util.concurrent} are given. */
    static long wait(long wait, TimeUnit unit) {
        return wait <= 0 ? 0 : Math.min(Locks.FOREVER, Math.max(1, unit.toMillis(wait)));
    }

    /** Rounded up: a wait of 0 would be none. */
    static long millis(Duration d) {
        return d.compareTo(Duration.ofMillis(Locks.FOREVER)) < 0 ? d.plusNanos(999_999).toMillis() : Locks.FOREVER;
    }
}
