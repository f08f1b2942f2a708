package mortise;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;

/**
 * Milliseconds that go on while the machine sleeps, as the server's leases do. On Linux Java's own clock stands still then:
 * {@link #look} compares it with the uptime, in hundredths of a second, and adds what is missing. On Windows Java's clock
 * goes on. On macOS it stands still, and Java has nothing to compare it with.
 */
final class Clock {
    static final Clock SYSTEM = new Clock(() -> System.nanoTime() / 1_000_000, Path.of("/proc/uptime"));
    private static final long NO_UPTIME = Long.MIN_VALUE;

    private final LongSupplier ticks;
    private final Path uptime;
    private final long offset; // of the uptime from the ticks
    private final AtomicLong asleep = new AtomicLong();

    Clock(LongSupplier ticks, Path uptime) {
        this.ticks = ticks;
        this.uptime = uptime;
        long up = uptime();
        offset = up == NO_UPTIME ? NO_UPTIME : up - ticks.getAsLong();
    }

    /** The clock's time, as of the last {@link #look}. */
    long now() {
        return ticks.getAsLong() + asleep.get();
    }

    /** Checks whether the machine has slept. Takes some microseconds. */
    void look() {
        long up = offset == NO_UPTIME ? NO_UPTIME : uptime();
        long slept = up == NO_UPTIME ? 0 : up - ticks.getAsLong() - offset;
        if (slept > asleep.get() + 50) {
            asleep.accumulateAndGet(slept, Math::max);
        }
    }

    private long uptime() {
        try {
            String text = Files.readString(uptime);
            return (long) (Double.parseDouble(text.substring(0, text.indexOf(' '))) * 1000);
        } catch (IOException | RuntimeException e) {
            return NO_UPTIME;
        }
    }
}
