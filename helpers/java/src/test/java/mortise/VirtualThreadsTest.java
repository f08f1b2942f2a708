package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.lettuce.core.RedisURI;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import jdk.jfr.consumer.RecordingStream;
import mortise.lettuce.LettuceClient;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Virtual threads wait without a platform thread each. */
@Timeout(120)
class VirtualThreadsTest {
    /** Only where the tests run on JDK 21 or later, which records what is pinned. */
    @Test
    void a_thousand_virtual_threads_wait_for_one_lock_and_pin_no_carrier() throws Exception {
        Assumptions.assumeTrue(Runtime.version().feature() >= 21, "no virtual threads before JDK 21");
        var pinned = new ConcurrentLinkedQueue<String>();
        var inside = new AtomicInteger();
        var flushes = new AtomicInteger();
        try (var server = new TestServer(); var record = new RecordingStream();
                var locks = new Locks(LettuceClient.of(RedisURI.create("127.0.0.1", server.port)))) {
            record.enable("jdk.VirtualThreadPinned").withoutThreshold().withStackTrace();
            record.onEvent("jdk.VirtualThreadPinned", event -> pinned.add(event.toString()));
            record.onFlush(flushes::incrementAndGet);
            record.startAsync();
            var executor = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
            var tasks = new ArrayList<Future<?>>();
            for (int i = 0; i < 1000; i++) {
                tasks.add(executor.submit(() -> {
                    var lock = locks.lock("k");
                    lock.lock();
                    assertEquals(1, inside.incrementAndGet());
                    Thread.yield();
                    inside.decrementAndGet();
                    lock.unlock();
                }));
            }
            for (var task : tasks) {
                task.get();
            }
            executor.shutdown();
            int before = flushes.get();
            eventually("all is recorded", () -> flushes.get() > before + 1);
        }
        assertEquals(List.of(), pinned.stream().filter(event -> event.contains("mortise.")).toList());
    }

    /** What pins on JDK 21 to 23 is a monitor. */
    @Test
    void nothing_here_is_synchronized() throws IOException {
        try (var files = Files.walk(Path.of("src/main/java"))) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                assertFalse(Files.readString(file).matches("(?s).*\\b(synchronized|\\.wait\\(\\)|notifyAll)\\b.*"), file.toString());
            }
        }
    }
}
