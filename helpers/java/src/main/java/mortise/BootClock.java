package mortise;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Milliseconds that go on while the machine sleeps, as the server's leases do. Java's own clock may stand still then:
 * {@link #look} compares it with what Linux says of its uptime, in hundredths of a second, and adds what is missing.
 */
final class BootClock {
    private static final Path UPTIME = Path.of("/proc/uptime");
    private static final AtomicLong asleep = new AtomicLong();
    private static final long offset = uptime() - ticks();

    private BootClock() {}

    private static long ticks() {
        return System.nanoTime() / 1_000_000;
    }

    /** What the clock shows, as far as {@link #look} has looked. */
    static long now() {
        return ticks() + asleep.get();
    }

    /** Looks whether the machine has slept. Takes some microseconds. */
    static long look() {
        long slept = uptime() - ticks() - offset;
        if (offset > -Long.MAX_VALUE / 4 && slept > asleep.get() + 50) {
            asleep.accumulateAndGet(slept, Math::max);
        }
        return now();
    }

    private static long uptime() {
        try {
            String text = Files.readString(UPTIME);
            return (long) (Double.parseDouble(text.substring(0, text.indexOf(' '))) * 1000);
        } catch (IOException | RuntimeException e) {
            return Long.MIN_VALUE / 2; // no Linux
        }
    }
}
