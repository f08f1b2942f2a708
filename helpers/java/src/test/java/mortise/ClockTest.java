package mortise;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The clock by which locks are believed: on Linux, and on a system that does not report sleep. */
class ClockTest {
    private final AtomicLong ticks = new AtomicLong(1000);
    @TempDir private Path dir;

    private Path uptime(String text) throws IOException {
        return Files.writeString(dir.resolve("uptime"), text);
    }

    @Test
    void the_time_of_a_sleeping_machine_counts_once_the_uptime_is_read() throws Exception {
        var clock = new Clock(ticks::get, uptime("100.00 7.00"));
        ticks.addAndGet(10);
        uptime("160.00 7.00");
        assertEquals(1010, clock.now());
        clock.look();
        assertEquals(61_000, clock.now());
        clock.look();
        assertEquals(61_000, clock.now());
        uptime("160.04 7.00"); // only the uptime's own resolution
        clock.look();
        assertEquals(61_000, clock.now());
    }

    @Test
    void without_the_systems_uptime_javas_clock_is_used() throws Exception {
        var clock = new Clock(ticks::get, dir.resolve("none"));
        ticks.addAndGet(10);
        clock.look();
        assertEquals(1010, clock.now());
        Files.writeString(dir.resolve("none"), "160.00 7.00"); // there is nothing to compare that with
        clock.look();
        assertEquals(1010, clock.now());
    }
}
