package mortise;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.lettuce.core.RedisURI;
import java.util.ArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import mortise.lettuce.LettuceClient;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A thousand virtual threads wait without a platform thread each: only where the tests run on JDK 21 or later. */
@Timeout(120)
class VirtualThreadsTest {
    @Test
    void a_thousand_virtual_threads_wait_for_one_lock() throws Exception {
        Assumptions.assumeTrue(Runtime.version().feature() >= 21, "no virtual threads before JDK 21");
        var inside = new AtomicInteger();
        try (var server = new TestServer(); var locks = new Locks(LettuceClient.of(RedisURI.create("127.0.0.1", server.port)))) {
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
        }
    }
}
