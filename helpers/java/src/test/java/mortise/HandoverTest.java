package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Locks that are passed on, revoked, or kept for a while after the work; permits; and the holders that operators see. */
class HandoverTest extends EachClient {
    private static final Duration MINUTE = Duration.ofMinutes(1);

    private List<Map<String, Object>> holds(String key) {
        var info = (List<?>) server.run("LOCK.INFO", key);
        return info == null ? List.of() : ((List<?>) info.get(info.indexOf("holds") + 1)).stream().map(hold -> Mailbox.fields((List<?>) hold)).toList();
    }

    private String owner(String key) {
        assertEquals(1, holds(key).size());
        return (String) holds(key).get(0).get("owner");
    }

    @ParameterizedTest
    @EnumSource
    void a_takeover_by_a_thread_that_is_interrupted_already_leaves_the_lock_where_it_is(Via via) throws Exception {
        var locks = locks(via);
        long token = (Long) server.run("LOCK.WLOCK", "job", "queue", "600000");
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> locks.take("job").takeOver("queue", token));
        locks.take("job").takeOver("queue", token).unlock();
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_is_passed_on_and_one_of_two_runners_takes_it_over(Via via) throws Exception {
        var locks = locks(via);
        Held enqueued = locks.take("import").acquire();
        long token = enqueued.passTo("job:7", Duration.ofMinutes(10));
        assertTrue(token > enqueued.token());
        assertFalse(enqueued.isHeld() || enqueued.lost().isDone());
        enqueued.unlock(); // is no error, and changes nothing
        assertEquals("job:7", owner("import"));
        Held runner = locks.take("import").takeOver("job:7", token);
        assertTrue(runner.isHeld() && runner.token() > token);
        assertThrows(LockException.Lost.class, () -> locks.take("import").takeOver("job:7", token));
        runner.unlock();
        assertTrue(server.isFree("import"));
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_that_was_taken_over_is_renewed(Via via) throws Exception {
        var locks = locks(via);
        long token = locks.take("job").acquire().passTo("queue", MINUTE);
        Held runner = locks.take("job").lease(Duration.ofSeconds(3)).takeOver("queue", token);
        long before = server.calls("lock.renew") + server.calls("LOCK.RENEW");
        eventually("it is renewed", () -> server.calls("lock.renew") + server.calls("LOCK.RENEW") >= before + 2);
        runner.unlock();
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_whose_pass_is_refused_stays_held_and_renewed(Via via) throws Exception {
        Held held = locks(via).take("job").lease(Duration.ofSeconds(3)).acquire();
        server.run("LOCK.LEAVE", "job", "gone", "FOR", "60000");
        assertEquals("LEFT", assertThrows(LockException.Refused.class, () -> held.passTo("gone", MINUTE)).code());
        long before = server.calls("lock.renew") + server.calls("LOCK.RENEW");
        eventually("it is renewed", () -> server.calls("lock.renew") + server.calls("LOCK.RENEW") >= before + 2);
        held.unlock();
        assertThrows(LockException.Lost.class, () -> held.passTo("queue", MINUTE));
    }

    @ParameterizedTest
    @EnumSource
    void a_pass_that_cannot_be_asked_for_leaves_the_lock_as_it_was(Via via) throws Exception {
        Held held = locks(via).take("job").acquire();
        assertThrows(IllegalArgumentException.class, () -> held.passTo("queue", Duration.ZERO));
        assertThrows(NullPointerException.class, () -> held.passTo(null, MINUTE));
        assertTrue(held.isHeld());
        held.passTo("queue", MINUTE);
    }

    @ParameterizedTest
    @EnumSource
    void a_pass_without_a_reply_frees_the_lock_under_both_names(Via via) throws Exception {
        Held held = locks(via).take("job").acquire();
        try (var frozen = server.freeze()) {
            assertThrows(LockException.Unanswered.class, () -> held.passTo("unheard", MINUTE));
        }
        held.lost().get(10, TimeUnit.SECONDS);
        eventually("it is free", () -> server.isFree("job"));
        eventually("the name is left", () -> {
            try {
                return server.run("LOCK.ACQUIRE", "job", "unheard", "1") == null;
            } catch (RuntimeException e) {
                return e.getMessage().startsWith("LEFT");
            }
        });
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_stays_taken_for_a_while_after_short_work(Via via) throws Exception {
        var locks = locks(via);
        try (Held held = locks.take("report").holder("billing-7").acquire()) {
            assertTrue(owner("report").startsWith("billing-7:"));
            assertThrows(LockException.Refused.class, () -> held.keepFor(Duration.ofDays(400)), "longer than the server allows");
            assertTrue(held.isHeld());
            held.keepFor(Duration.ofSeconds(3));
            assertFalse(held.isHeld());
        }
        assertThrows(LockException.Busy.class, () -> locks.take("report").wait(Duration.ZERO).acquire());
        locks.take("report").acquire().unlock();
        assertTrue(server.isFree("report"));
        assertThrows(IllegalArgumentException.class, () -> locks.take("report").holder("a##b"));
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_that_another_program_took_is_resumed_under_its_name(Via via) throws Exception {
        var locks = locks(via);
        long token = (Long) server.run("LOCK.WLOCK", "import", "job:7", "600000");
        assertThrows(LockException.Lost.class, () -> locks.take("import").resume("job:7", token + 1));
        try (Held held = locks.take("import").lease(Duration.ofSeconds(3)).resume("job:7", token)) {
            assertEquals(token, held.check());
            long before = server.calls("LOCK.RENEW");
            eventually("it is renewed", () -> server.calls("LOCK.RENEW") > before);
        }
        assertTrue(server.isFree("import"));
    }

    @ParameterizedTest
    @EnumSource
    void a_revoked_holder_notices_at_its_next_renewal_and_leaves(Via via) throws Exception {
        var locks = locks(via);
        Held held = locks.take("stock").lease(Duration.ofSeconds(3)).acquire();
        assertEquals(Duration.ZERO, locks.revoke("stock", "nobody"));
        Duration left = locks.revoke("stock", owner("stock"));
        assertTrue(left.toMillis() > 0 && left.toMillis() <= 3000);
        held.lost().get(60, TimeUnit.SECONDS);
        eventually("it is free", () -> server.isFree("stock"));
        assertThrows(LockException.Lost.class, held::unlock);
    }

    @ParameterizedTest
    @EnumSource
    void a_revoked_lock_is_free_when_it_is_unlocked(Via via) throws Exception {
        var locks = locks(via);
        Held held = locks.take("report").lease(MINUTE).acquire();
        assertTrue(locks.revoke("report").toSeconds() >= 50);
        assertEquals(Duration.ZERO, locks.revoke("other"));
        held.unlock();
        assertTrue(server.isFree("report"));
    }

    @ParameterizedTest
    @EnumSource
    void never_more_permits_are_held_than_there_are(Via via) throws Exception {
        var pool = locks(via).semaphore("pool", 5);
        var inside = new AtomicInteger();
        var most = new AtomicInteger();
        var tasks = new ArrayList<java.util.concurrent.FutureTask<Void>>();
        for (int i = 0; i < 20; i++) {
            int permits = 1 + i % 3;
            tasks.add(start(() -> {
                pool.acquire(permits);
                most.accumulateAndGet(inside.addAndGet(permits), Math::max);
                Thread.sleep(1);
                inside.addAndGet(-permits);
                pool.release(permits);
                return null;
            }));
        }
        for (var task : tasks) {
            task.get();
        }
        assertTrue(most.get() <= 5 && most.get() >= 4, "" + most);
        assertEquals(5, pool.availablePermits());
        assertTrue(server.isFree("pool"));
    }

    @ParameterizedTest
    @EnumSource
    void permits_are_released_one_by_one_and_missing_ones_waited_for(Via via) throws Exception {
        var locks = locks(via);
        var pool = locks.semaphore("pool", 3);
        assertTrue(pool.tryAcquire(3));
        assertFalse(pool.tryAcquire() || pool.tryAcquire(10, TimeUnit.MILLISECONDS));
        var waiting = start(() -> {
            pool.acquire(2);
            return null;
        });
        eventually("it waits", () -> server.waiters("pool") == 1);
        pool.release();
        assertEquals(1, pool.availablePermits());
        assertFalse(pool.tryAcquire(), "it overtook a waiter");
        pool.release();
        waiting.get();
        assertEquals(0, pool.availablePermits());
        pool.release(3);
        assertTrue(server.isFree("pool"));
        Held writer = locks.take("pool").acquire();
        assertEquals(0, pool.availablePermits(), "a writer keeps all out");
        writer.unlock();
        assertThrows(IllegalMonitorStateException.class, pool::release);
        for (int wrong : new int[] {0, -1, 4}) {
            assertThrows(LockException.Refused.class, () -> pool.tryAcquire(wrong), "the server names the bound");
        }
        assertThrows(LockException.Refused.class, () -> locks.semaphore("pool", 0).tryAcquire());
        pool.acquireUninterruptibly();
        server.run("DEL", "pool");
        assertThrows(LockException.Lost.class, pool::release);
    }

    @ParameterizedTest
    @EnumSource
    void a_thread_whose_permit_was_lost_gives_back_no_other_threads_permit(Via via) throws Exception {
        var pool = locks(via).semaphore("pool", 2);
        pool.acquire();
        server.run("DEL", "pool"); // the permit of this thread is lost
        start(() -> {
            pool.acquire();
            return null;
        }).get();
        assertThrows(LockException.Lost.class, pool::release);
        assertEquals(1, pool.availablePermits(), "the other thread is inside");
        pool.release();
        assertEquals(2, pool.availablePermits());
    }

    @ParameterizedTest
    @EnumSource
    void a_permit_that_a_server_without_replicas_takes_not_back_comes_back_later_and_the_others_stay_taken(Via via) throws Exception {
        var pool = locks(via).semaphore("pool", 3);
        pool.acquire(3);
        server.run("CONFIG", "SET", "min-replicas-to-write", "1");
        pool.release();
        assertEquals(3, (Long) holds("pool").get(0).get("read"));
        server.run("CONFIG", "SET", "min-replicas-to-write", "0");
        eventually("it is back", () -> pool.availablePermits() > 0);
        assertEquals(1, pool.availablePermits());
        pool.release(2);
        assertTrue(server.isFree("pool"));
    }
}
