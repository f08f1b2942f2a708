package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What threads do to each other: those of the library, and those of a program. */
class ThreadsTest extends EachClient {
    private static final Duration MINUTE = Duration.ofMinutes(1);

    @ParameterizedTest
    @EnumSource
    void a_loss_is_told_by_a_thread_of_the_library(Via via) throws Exception {
        Held held = locks(via).take("k").lease(Duration.ofSeconds(3)).acquire();
        var told = new CompletableFuture<String>();
        held.lost().thenRun(() -> told.complete(Thread.currentThread().getName()));
        server.run("DEL", "k");
        assertEquals("mortise-lost", told.get(60, TimeUnit.SECONDS), "the common pool is the program's, which may block it");
    }

    @ParameterizedTest
    @EnumSource
    void close_in_a_thread_that_is_interrupted_unlocks_and_keeps_the_interrupt(Via via) throws Exception {
        var locks = locks(via);
        locks.take("k").acquire();
        Thread.currentThread().interrupt();
        locks.close();
        assertTrue(Thread.interrupted());
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_is_passed_on_by_one_thread_at_a_time(Via via) throws Exception {
        Held held = locks(via).take("k").acquire();
        try (var frozen = server.freeze()) {
            var first = start(() -> held.passTo("one", MINUTE));
            eventually("it is being passed on", () -> !held.isHeld());
            var refused = assertThrows(RuntimeException.class, () -> held.passTo("two", MINUTE));
            assertTrue(refused instanceof IllegalStateException || first.isDone(), () -> "" + refused);
        }
    }

    @ParameterizedTest
    @EnumSource
    void close_ends_a_wait_that_begins_at_the_same_moment(Via via) throws Exception {
        var locks = locks(via);
        server.run("LOCK.WLOCK", "k", "somebody", "600000");
        var earlier = locks.take("k").acquireAsync();
        eventually("it waits", () -> server.waiters("k") == 1);
        locks.job(+1); // close waits for that
        var request = new AbstractList<String>() { // reading it closes the locks
            private final List<String> words = List.of("LOCK.WLOCK", "k", "later", "60000");

            @Override
            public Object[] toArray() {
                start(() -> {
                    locks.close();
                    return null;
                });
                assertThrows(CompletionException.class, earlier::join);
                return words.toArray();
            }

            @Override
            public String get(int index) {
                return words.get(index);
            }

            @Override
            public int size() {
                return words.size();
            }
        };
        var answer = locks.node("k").ask(request, "later", Locks.FOREVER, new CompletableFuture<>());
        assertTrue(answer.get(30, TimeUnit.SECONDS).error() instanceof LockException.Closed);
        locks.job(-1);
    }

    @ParameterizedTest
    @EnumSource
    void close_ends_waits_though_the_server_is_gone_and_it_has_no_time(Via via) throws Exception {
        var client = new Between(via.connect(server.port), (words, real) -> real.apply(words));
        var locks = new Locks(client);
        locks.take("first").acquire().unlock();
        server.kill();
        var waiting = new ArrayList<CompletableFuture<Held>>();
        for (int i = 0; i < 100; i++) { // most of them pause before their next attempt
            waiting.add(locks.take("k").acquireAsync());
        }
        eventually("they have asked again", () -> client.looks.get() > 500);
        locks.close(Duration.ZERO);
        for (var future : waiting) {
            assertThrows(ExecutionException.class, () -> future.get(30, TimeUnit.SECONDS));
        }
    }

    @ParameterizedTest
    @EnumSource
    void close_ends_though_everything_that_depends_on_locks_blocks(Via via) throws Exception {
        var locks = locks(via);
        var inside = new AtomicInteger();
        var never = new CompletableFuture<Void>();
        try (var frozen = server.freeze()) { // what depends on a future that is complete already runs here
            for (int i = 0; i < 100; i++) {
                locks.take("k" + i).acquireAsync().thenAccept(held -> {
                    inside.incrementAndGet();
                    never.join();
                });
            }
        }
        eventually("most are inside", () -> inside.get() >= 64);
        try {
            assertTimeoutPreemptively(Duration.ofSeconds(30), () -> locks.close());
        } finally {
            never.complete(null);
        }
    }

    @ParameterizedTest
    @EnumSource
    void close_ends_in_time_though_the_client_does_not_close(Via via) throws Exception {
        Client real = via.connect(server.port);
        var closed = new CompletableFuture<Void>();
        var stuck = new Client() {
            @Override
            public String node(String key) {
                return real.node(key);
            }

            @Override
            public Channel connect(String node) {
                return real.connect(node);
            }

            @Override
            public void refresh() {
                real.refresh();
            }

            @Override
            public void close() {
                closed.join();
                real.close();
            }
        };
        var locks = new Locks(stuck);
        locks.take("k").acquire();
        try {
            assertTimeoutPreemptively(Duration.ofSeconds(30), () -> locks.close(Duration.ofSeconds(1)));
            assertTrue(server.isFree("k"));
        } finally {
            closed.complete(null);
        }
    }
}
