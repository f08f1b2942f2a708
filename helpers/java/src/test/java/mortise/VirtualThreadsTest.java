package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

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
import mortise.EachClient.Via;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Virtual threads wait without a platform thread each. These tests run on JDK 21 and later, which `./interop test` searches for. */
class VirtualThreadsTest {
    private static ExecutorService virtualThreads() throws ReflectiveOperationException {
        Assumptions.assumeTrue(Runtime.version().feature() >= 21, "no virtual threads before JDK 21");
        return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    }

    /** All share one carrier (pom.xml): if a waiter kept it, none would continue. */
    @ParameterizedTest
    @EnumSource
    void waiting_virtual_threads_block_no_other_and_can_be_interrupted(Via via) throws Exception {
        var executor = virtualThreads();
        try (var server = new TestServer(); var locks = new Locks(via.connect(server.port))) {
            Held held = locks.take("k").acquire();
            for (int i = 0; i < 50; i++) {
                executor.submit(() -> {
                    locks.lock("k").lockInterruptibly();
                    return null;
                });
            }
            eventually("all wait", () -> server.waiters("k") == 50);
            executor.submit(() -> {
                locks.take("other").acquire().unlock();
                return null;
            }).get();
            executor.shutdownNow();
            eventually("nobody waits", () -> server.waiters("k") == 0);
            held.unlock();
            assertTrue(server.isFree("k"));
        }
    }

    /** JDK 21 and later record pinned threads. */
    @ParameterizedTest
    @EnumSource
    void a_thousand_virtual_threads_wait_for_one_lock_and_pin_no_carrier(Via via) throws Exception {
        var executor = virtualThreads();
        var pinned = new ConcurrentLinkedQueue<String>();
        var inside = new AtomicInteger();
        var flushes = new AtomicInteger();
        try (var server = new TestServer(); var record = new RecordingStream();
                var locks = new Locks(via.connect(server.port))) {
            record.enable("jdk.VirtualThreadPinned").withoutThreshold().withStackTrace();
            record.onEvent("jdk.VirtualThreadPinned", event -> pinned.add(event.toString()));
            record.onFlush(flushes::incrementAndGet);
            record.startAsync();
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

    /** On JDK 21 to 23, a monitor pins a virtual thread. */
    @Test
    void nothing_here_is_synchronized() throws IOException {
        try (var files = Files.walk(Path.of("src/main/java"))) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                assertFalse(Files.readString(file).matches("(?s).*\\b(synchronized|\\.wait\\(\\)|notifyAll)\\b.*"), file.toString());
            }
        }
    }
}
