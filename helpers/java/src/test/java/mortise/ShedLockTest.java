package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.text.MessageFormat;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import javax.tools.ToolProvider;
import mortise.jedis.JedisClient;
import mortise.shedlock.MortiseLockProvider;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** ShedLock's own executor on our provider. */
class ShedLockTest {
    private static final TestServer server = new TestServer();
    private static final MortiseLockProvider provider = new MortiseLockProvider(JedisClient.of("127.0.0.1", server.port));
    private static final Duration HOUR = Duration.ofHours(1);

    @AfterAll
    static void close() {
        provider.close();
        server.close();
    }

    @BeforeEach
    void empty() {
        server.run("FLUSHALL");
    }

    private static LockConfiguration configuration(Duration atMost, Duration atLeast) {
        return new LockConfiguration(Instant.now(), "report", atMost, atLeast);
    }

    private static Optional<SimpleLock> lock(Duration atMost, Duration atLeast) {
        return provider.lock(configuration(atMost, atLeast));
    }

    private static boolean isFree() {
        return server.isFree("shedlock:report");
    }

    @Test
    void one_node_acquires_the_lock_and_releases_it() {
        SimpleLock lock = lock(HOUR, Duration.ZERO).orElseThrow();
        assertTrue(lock(HOUR, Duration.ZERO).isEmpty());
        lock.unlock();
        assertTrue(isFree());
        lock(HOUR, Duration.ZERO).orElseThrow().unlock();
    }

    @Test
    void an_unlock_that_the_server_forbids_is_reported() {
        var logger = Logger.getLogger(MortiseLockProvider.class.getName());
        var messages = new ArrayList<String>();
        var handler = new Handler() {
            @Override
            public void publish(LogRecord line) {
                messages.add(MessageFormat.format(line.getMessage(), line.getParameters()));
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        SimpleLock lock = lock(HOUR, Duration.ZERO).orElseThrow();
        server.run("ACL", "SETUSER", "default", "-lock.release");
        logger.addHandler(handler);
        try {
            lock.unlock();
        } finally {
            logger.removeHandler(handler);
            server.run("ACL", "SETUSER", "default", "+@all");
        }
        assertEquals(1, messages.size());
        assertTrue(messages.get(0).contains("shedlock:report") && messages.get(0).contains("NOPERM"), messages.get(0));
    }

    @Test
    void jobs_that_begin_together_open_no_more_connections_than_threads() throws Exception {
        long before = server.info("connected_clients");
        var jobs = new ArrayList<FutureTask<Void>>();
        for (int thread = 0; thread < 8; thread++) {
            var own = new LockConfiguration(Instant.now(), "job:" + thread, HOUR, Duration.ZERO);
            jobs.add(EachClient.start(() -> {
                for (int round = 0; round < 200; round++) {
                    provider.lock(own).orElseThrow().unlock();
                }
                return null;
            }));
        }
        for (var job : jobs) {
            job.get();
        }
        long opened = server.info("connected_clients") - before;
        assertTrue(opened <= 8, "opened " + opened);
    }

    @Test
    void a_job_that_ends_early_keeps_its_lock_for_the_least_time() {
        SimpleLock lock = lock(HOUR, Duration.ofMillis(1500)).orElseThrow();
        lock.unlock();
        assertTrue(lock(HOUR, Duration.ZERO).isEmpty());
        eventually("the lock is free", ShedLockTest::isFree);
        lock(HOUR, Duration.ZERO).orElseThrow().unlock();
    }

    @Test
    void a_node_that_dies_keeps_the_lock_no_longer_than_lock_at_most_for() {
        assertTrue(lock(Duration.ofMillis(300), Duration.ZERO).isPresent());
        eventually("another node gets it", () -> lock(HOUR, Duration.ZERO).isPresent());
    }

    @Test
    void a_job_that_took_too_long_does_not_release_the_next_ones_lock() {
        SimpleLock late = lock(Duration.ofMillis(50), Duration.ZERO).orElseThrow();
        eventually("the lock is free", ShedLockTest::isFree);
        SimpleLock next = lock(HOUR, Duration.ZERO).orElseThrow();
        late.unlock();
        assertFalse(isFree());
        next.unlock();
    }

    @Test
    void a_lock_can_be_extended_once_while_it_lasts() {
        SimpleLock lock = lock(Duration.ofSeconds(10), Duration.ZERO).orElseThrow();
        SimpleLock extended = lock.extend(HOUR, Duration.ZERO).orElseThrow();
        assertThrows(IllegalStateException.class, lock::unlock);
        assertThrows(IllegalStateException.class, () -> lock.extend(HOUR, Duration.ZERO));
        extended.unlock();
        assertTrue(isFree());
        SimpleLock over = lock(Duration.ofMillis(20), Duration.ZERO).orElseThrow();
        eventually("the lock is free", ShedLockTest::isFree);
        assertTrue(over.extend(HOUR, Duration.ZERO).isEmpty());
    }

    @Test
    void a_scheduled_job_on_fifty_nodes_whose_clocks_differ_by_half_a_minute_runs_once_a_period() throws Exception {
        // Half a minute is 300 ms here, and the period thirteen minutes. Each node's schedule fires by its own clock.
        Duration halfMinute = Duration.ofMillis(300), period = halfMinute.multipliedBy(26), least = Duration.ofMillis(4_200);
        var runs = new AtomicInteger();
        int periods = 2, nodes = 50;
        var pool = Executors.newFixedThreadPool(nodes);
        long begin = System.nanoTime();
        var all = new ArrayList<Future<?>>();
        for (int node = 0; node < nodes; node++) {
            Duration ahead = halfMinute.multipliedBy(node).dividedBy(nodes);
            Clock wall = Clock.offset(Clock.systemUTC(), ahead);
            all.add(pool.submit(() -> {
                for (int number = 0; number < periods; number++) {
                    long strikes = begin + halfMinute.plus(period.multipliedBy(number)).minus(ahead).toNanos();
                    Thread.sleep(Math.max(0, (strikes - System.nanoTime()) / 1_000_000));
                    Runnable job = runs::incrementAndGet;
                    new DefaultLockingTaskExecutor(provider).executeWithLock(job, new LockConfiguration(wall.instant(), "report", HOUR, least));
                }
                return null;
            }));
        }
        for (Future<?> node : all) {
            node.get();
        }
        pool.shutdown();
        assertEquals(periods, runs.get());
    }

    @Test
    void the_program_of_the_readme_runs_and_its_job_runs_once() throws Exception {
        String page = Files.readString(Path.of("README.md"));
        String program = page.substring(page.indexOf("```java\n", page.indexOf("## ShedLock")) + 8).split("```")[0].replace("6379", "" + server.port);
        Path folder = Files.createTempDirectory("shedlock");
        Path source = Files.writeString(folder.resolve("Report.java"), program);
        String path = System.getProperty("java.class.path");
        assertEquals(0, ToolProvider.getSystemJavaCompiler().run(null, null, null, "-cp", path, "-d", folder.toString(), source.toString()));
        var run = new ProcessBuilder("java", "-cp", folder + File.pathSeparator + path, "Report").start();
        assertEquals("the report\n", new String(run.getInputStream().readAllBytes()));
    }

    @Test
    void an_unlock_without_a_reply_keeps_the_lock_for_the_least_time() throws Exception {
        try (var own = new TestServer()) {
            var far = new MortiseLockProvider(JedisClient.of("127.0.0.1", own.port));
            SimpleLock lock = far.lock(configuration(HOUR, Duration.ofSeconds(10))).orElseThrow();
            try (var silence = own.freeze()) {
                lock.unlock();
            }
            eventually("it is passed on", () -> own.calls("LOCK.PASS") > 0);
            assertFalse(own.isFree("shedlock:report"));
            eventually("it is free long before an hour", () -> own.isFree("shedlock:report"));
            far.close();
        }
    }

    @Test
    void closing_the_provider_unlocks_no_job() {
        var other = new MortiseLockProvider(JedisClient.of("127.0.0.1", server.port));
        other.lock(configuration(HOUR, Duration.ZERO)).orElseThrow();
        other.close();
        assertFalse(isFree());
    }

    @Test
    void an_unreachable_server_is_an_error_and_nothing_is_left() throws Exception {
        try (var own = new TestServer()) {
            var far = new MortiseLockProvider(JedisClient.of("127.0.0.1", own.port));
            SimpleLock lock = far.lock(configuration(HOUR, Duration.ZERO)).orElseThrow();
            try (var silence = own.freeze()) {
                assertThrows(LockException.class, () -> far.lock(new LockConfiguration(Instant.now(), "other", HOUR, Duration.ZERO)));
                lock.unlock(); // repeated until it gets a reply
            }
            eventually("nothing is left", () -> own.isFree("shedlock:report") && own.isFree("shedlock:other"));
            far.close();
        }
    }
}
