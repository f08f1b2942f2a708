package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Several locks at once: all or none. */
class SeveralLocksTest extends EachClient {
    private boolean areFree(String... keys) {
        return List.of(keys).stream().allMatch(server::isFree);
    }

    @ParameterizedTest
    @EnumSource
    void several_locks_are_acquired_at_once_by_one_token_and_released_together(Via via) throws Exception {
        var locks = locks(via);
        try (Held several = locks.take("a").acquireWith("b", "c")) {
            assertTrue(several.isHeld() && several.check() == several.token());
            assertEquals(List.of("a", "b", "c"), several.keys());
            for (String key : several.keys()) {
                assertEquals(several.token(), locks.holds(key).get(0).get("token"));
                assertThrows(LockException.Busy.class, () -> locks.take(key).wait(Duration.ZERO).acquire());
            }
        }
        assertTrue(areFree("a", "b", "c"));
        assertThrows(IllegalArgumentException.class, () -> locks.take("a").read().acquireWith("b"));
        assertThrows(LockException.Refused.class, () -> locks.take("a").acquireWith("a"));
    }

    @ParameterizedTest
    @EnumSource
    void a_request_that_took_several_locks_takes_one_when_it_is_used_again(Via via) throws Exception {
        var request = locks(via).take("a");
        request.acquireWith("b").unlock();
        request.acquire().unlock();
        assertTrue(areFree("a", "b"));
    }

    @ParameterizedTest
    @EnumSource
    void a_waiter_for_several_locks_holds_none_and_is_granted_all_when_the_last_is_free(Via via) throws Exception {
        var locks = locks(via);
        Held b = locks.take("b").acquire();
        assertThrows(LockException.Busy.class, () -> locks.take("a").wait(Duration.ofMillis(50)).acquireWith("b"));
        var waiting = start(() -> locks.take("a").acquireWith("b"));
        eventually("it waits", () -> server.waiters("a") == 1);
        assertEquals(List.of(), locks.holds("a"));
        b.unlock();
        assertTrue(waiting.get().token() > b.token());
        waiting.get().unlock();
        assertTrue(areFree("a", "b"));
    }

    @ParameterizedTest
    @EnumSource
    void each_of_several_locks_is_renewed_and_the_loss_of_one_is_reported(Via via) throws Exception {
        Held several = locks(via).take("a").lease(Duration.ofSeconds(3)).acquireWith("b");
        long before = server.calls("lock.renew") + server.calls("LOCK.RENEW");
        eventually("both are renewed", () -> server.calls("lock.renew") + server.calls("LOCK.RENEW") >= before + 6);
        assertTrue(several.isHeld());
        server.run("DEL", "b");
        several.lost().get();
        assertFalse(several.isHeld());
        assertThrows(LockException.Lost.class, several::unlock);
        // What is left of a lost hold is released in the background.
        eventually("both are free", () -> areFree("a", "b"));
    }

    @ParameterizedTest
    @EnumSource
    void several_locks_are_kept_together_and_not_passed_on(Via via) throws Exception {
        var locks = locks(via);
        Held both = locks.take("a").acquireWithAsync("b").get();
        assertThrows(IllegalStateException.class, () -> both.passTo("job", Duration.ofMinutes(1)));
        assertTrue(both.isHeld());
        both.keepFor(Duration.ofHours(1));
        assertTrue(Stream.of("a", "b").allMatch(key -> (Long) locks.holds(key).get(0).get("lease") > 3_500_000));
    }

    @ParameterizedTest
    @EnumSource
    void closing_ends_a_wait_for_several_locks_and_leaves_every_queue(Via via) throws Exception {
        var locks = locks(via);
        Held b = locks(via).take("b").acquire();
        var waiting = start(() -> assertThrows(LockException.class, () -> locks.take("a").acquireWith("b", "c")));
        eventually("it waits", () -> server.waiters("c") == 1);
        locks.close(Duration.ofSeconds(10));
        waiting.get();
        eventually("nobody waits", () -> areFree("a", "c") && server.waiters("b") == 0);
        b.unlock();
    }

    @ParameterizedTest
    @EnumSource
    void an_acquire_of_several_locks_without_a_reply_leaves_no_key_taken(Via via) throws Exception {
        var locks = locks(via);
        try (var silence = server.freeze()) {
            assertThrows(LockException.class, () -> locks.take("a").wait(Duration.ZERO).acquireWith("b"));
        }
        eventually("nothing is left", () -> areFree("a", "b"));
    }
}
