package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Locks as futures: no thread waits for them. */
class AsyncTest extends EachClient {
    @ParameterizedTest
    @EnumSource
    void many_futures_wait_without_a_thread_each_and_are_granted_one_after_the_other(Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("k").acquire();
        int threads = Thread.activeCount();
        var futures = new ArrayList<CompletableFuture<Long>>();
        for (int i = 0; i < 500; i++) {
            futures.add(locks.take("k").acquireAsync().thenApply(held -> {
                held.unlock(); // what depends on a lock may block
                return held.token();
            }));
        }
        eventually("all wait", () -> server.waiters("k") == 500);
        assertTrue(Thread.activeCount() < threads + 100, Thread.activeCount() + " threads");
        first.unlock();
        CompletableFuture.allOf(futures.toArray(CompletableFuture[]::new)).get();
        assertEquals(500, futures.stream().map(CompletableFuture::join).distinct().count());
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_future_that_is_cancelled_leaves_nothing(Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("k").acquire();
        var waiting = locks.take("k").acquireAsync();
        eventually("it waits", () -> server.waiters("k") == 1);
        assertTrue(waiting.cancel(true));
        eventually("nobody waits", () -> server.waiters("k") == 0);
        first.unlock();
        for (int i = 0; i < 200; i++) { // at any moment
            var future = locks.take("k").acquireAsync();
            Thread.sleep(0, 1 + i * 5_000);
            if (!future.cancel(true)) {
                future.get().unlock();
            }
        }
        eventually("it is free", () -> server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_future_fails_as_the_blocking_call_does(Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("k").acquire();
        var busy = locks.take("k").wait(Duration.ofMillis(50)).acquireAsync();
        assertTrue(assertThrows(ExecutionException.class, busy::get).getCause() instanceof LockException.Busy);
        var waiting = locks.take("k").acquireAsync();
        eventually("it waits", () -> server.waiters("k") == 1);
        locks.close(Duration.ofSeconds(10));
        assertTrue(assertThrows(ExecutionException.class, waiting::get).getCause() instanceof LockException.Closed);
        assertFalse(first.isHeld());
    }

    @ParameterizedTest
    @EnumSource
    void a_future_whose_time_is_over_leaves_nothing(Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("k").acquire();
        var failing = locks.take("k").acquireAsync().orTimeout(100, TimeUnit.MILLISECONDS);
        var ending = locks.take("k").acquireAsync().completeOnTimeout(null, 100, TimeUnit.MILLISECONDS);
        assertTrue(assertThrows(ExecutionException.class, failing::get).getCause() instanceof TimeoutException);
        assertNull(ending.get());
        eventually("nobody waits", () -> server.waiters("k") == 0);
        first.unlock();
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void what_depends_on_many_futures_may_wait_for_other_locks(Via via) throws Exception {
        var locks = locks(via);
        Held other = locks.take("other").acquire();
        var futures = new ArrayList<CompletableFuture<Void>>();
        try (var frozen = server.freeze()) { // what depends on a future that is complete already runs here
            for (int i = 0; i < 100; i++) {
                futures.add(locks.take("k" + i).acquireAsync().thenAccept(held -> {
                    locks.take("other").acquireAsync().join().unlock();
                    held.unlock();
                }));
            }
        }
        eventually("all wait", () -> server.waiters("other") == 100);
        other.unlock();
        CompletableFuture.allOf(futures.toArray(CompletableFuture[]::new)).get(60, TimeUnit.SECONDS);
    }
}
