package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.exceptions.JedisDataException;

/** What the locks do, and that they avoid the pitfalls of calling the commands by hand. Each test runs with each client. */
class LocksTest extends EachClient {
    @ParameterizedTest
    @EnumSource
    void a_connection_that_the_server_closed_while_it_was_idle_costs_no_command_its_reply(Via via) throws Exception {
        var locks = locks(via);
        Held held = locks.take("k").lease(Duration.ofHours(1)).acquire();
        server.run("CONFIG", "SET", "timeout", "1");
        eventually("idle connections are closed", () -> server.info("connected_clients") == 1);
        assertTrue(held.passTo("heir", Duration.ofHours(1)) > held.token());
        eventually("idle connections are closed", () -> server.info("connected_clients") == 1);
        locks.take("j").wait(Duration.ZERO).acquire().unlock();
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_keeps_others_out_until_it_is_unlocked(Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("stock:17").acquire();
        assertThrows(LockException.Busy.class, () -> locks.take("stock:17").wait(Duration.ZERO).acquire());
        first.unlock();
        assertTrue(server.isFree("stock:17"));
        try (Held second = locks.take("stock:17").wait(Duration.ZERO).acquire()) {
            assertTrue(second.token() > first.token());
        }
    }

    @ParameterizedTest
    @EnumSource
    void waiters_are_granted_one_after_the_other_over_two_connections(Via via) throws Exception {
        var locks = locks(via);
        var inside = new AtomicInteger();
        var last = new AtomicLong();
        var tasks = new ArrayList<FutureTask<Void>>();
        for (int i = 0; i < 50; i++) {
            tasks.add(start(() -> {
                for (int round = 0; round < 5; round++) {
                    try (Held held = locks.take("k").lease(Duration.ofSeconds(10)).acquire()) {
                        assertEquals(1, inside.incrementAndGet());
                        assertTrue(last.getAndSet(held.token()) < held.token());
                        inside.decrementAndGet();
                    }
                }
                return null;
            }));
        }
        for (var task : tasks) {
            task.get();
        }
        eventually("there are two connections, and the one that asks", () -> server.info("connected_clients") <= 3);
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void an_interrupt_ends_a_wait_and_leaves_nothing(Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("k").acquire();
        var waiting = new Thread(() -> assertThrows(InterruptedException.class, () -> locks.lock("k").lockInterruptibly()));
        waiting.start();
        eventually("it waits", () -> server.waiters("k") == 1);
        waiting.interrupt();
        waiting.join();
        eventually("nobody waits", () -> server.waiters("k") == 0);
        first.unlock();
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void an_interrupt_at_any_moment_leaves_nothing(Via via) throws Exception {
        var locks = locks(via);
        var random = ThreadLocalRandom.current();
        for (int round = 0; round < 40; round++) {
            var threads = new ArrayList<Thread>();
            for (int i = 0; i < 5; i++) {
                threads.add(new Thread(() -> {
                    try (Held held = locks.take("k").lease(Duration.ofHours(1)).acquire()) {
                        Thread.sleep(1);
                    } catch (InterruptedException e) {
                        // that is what is tried
                    }
                }));
            }
            threads.forEach(Thread::start);
            Thread.sleep(random.nextInt(10));
            threads.forEach(Thread::interrupt);
            for (Thread thread : threads) {
                thread.join();
            }
        }
        eventually("nobody holds or waits", () -> server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_wait_that_times_out_leaves_no_request_in_the_queue(Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("k").acquire();
        assertFalse(locks.lock("k").tryLock(100, TimeUnit.MILLISECONDS));
        assertFalse(locks.lock("k").tryLock(300, TimeUnit.MICROSECONDS)); // not for ever
        assertEquals(0, server.waiters("k"));
        first.unlock();
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_wait_lasts_longer_than_the_time_outs_of_the_client_and_is_sent_once(Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("k").acquire();
        var second = start(() -> locks.lock("k").tryLock(30, TimeUnit.SECONDS));
        eventually("it waits", () -> server.waiters("k") == 1);
        locks.take("other").acquire().unlock(); // over the same connection, so earlier replies have been read
        long asked = server.calls("LOCK.WLOCK");
        Thread.sleep(3000); // longer than Jedis waits for a reply
        assertEquals(asked, server.calls("LOCK.WLOCK"));
        first.unlock();
        assertTrue(second.get());
    }

    @ParameterizedTest
    @EnumSource
    void many_waiters_do_not_delay_a_release(Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("k").acquire();
        for (int i = 0; i < 50; i++) {
            start(() -> locks.take("k").lease(Duration.ofHours(1)).acquire());
        }
        eventually("all wait", () -> server.waiters("k") == 50);
        first.unlock();
        assertEquals(49, server.waiters("k"));
    }

    @ParameterizedTest
    @EnumSource
    void deleting_a_lock_is_reported_as_a_loss(Via via) throws Exception {
        Held held = locks(via).take("k").lease(Duration.ofMillis(300)).acquire();
        server.run("DEL", "k");
        held.lost().get();
        assertThrows(LockException.Lost.class, held::unlock);
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_that_is_overwritten_is_lost(Via via) throws Exception {
        var locks = locks(via);
        Held held = locks.take("k").acquire();
        var both = locks.readWriteLock("i");
        both.readLock().lock();
        server.run("MSET", "k", "x", "i", "x");
        assertThrows(LockException.Lost.class, held::unlock);
        assertThrows(LockException.Lost.class, () -> both.writeLock().lock());
        assertThrows(LockException.Lost.class, () -> both.readLock().unlock());
        Held renewed = locks.take("j").lease(Duration.ofSeconds(3)).acquire();
        server.run("CONFIG", "RESETSTAT");
        server.run("SET", "j", "x");
        renewed.lost().get();
        String refused = (String) server.run("INFO", "errorstats");
        assertTrue(refused.contains("errorstat_WRONGTYPE:count=1\r"), "the first refused renewal reports it: " + refused);
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_is_lost_at_its_deadline_when_the_server_does_not_reply(Via via) throws Exception {
        var locks = locks(via);
        Held held = locks.take("k").lease(Duration.ofMillis(500)).acquire();
        var lock = locks.lock("j", Duration.ofMillis(500));
        lock.lock();
        try (var frozen = server.freeze()) {
            held.lost().get();
            assertThrows(LockException.Lost.class, held::check);
            eventually("so is the other one", () -> !lock.isHeldByCurrentThread());
            assertThrows(LockException.Lost.class, lock::lock);
            assertThrows(LockException.Lost.class, lock::unlock);
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_is_renewed_for_as_long_as_it_is_held(Via via) throws Exception {
        Held held = locks(via).take("k").lease(Duration.ofSeconds(3)).acquire();
        eventually("it is renewed for longer than its lease", () -> server.calls("LOCK.RENEW") > 3);
        held.check();
        held.unlock();
    }

    @ParameterizedTest
    @EnumSource
    void an_interrupt_ends_a_wait_for_a_server_that_does_not_reply(Via via) throws Exception {
        var locks = locks(via);
        locks.take("first").acquire();
        try (var frozen = server.freeze()) {
            var waiting = new Thread(() -> assertThrows(InterruptedException.class, () -> locks.take("k").acquire()));
            waiting.start();
            waiting.interrupt();
            waiting.join();
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_waiter_is_granted_after_a_restart_of_the_server(Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("k").lease(Duration.ofSeconds(10)).acquire();
        var second = start(() -> locks.take("k").acquire());
        eventually("it waits", () -> server.waiters("k") == 1);
        server.kill();
        server.start();
        second.get();
        first.lost().get();
    }

    @ParameterizedTest
    @EnumSource
    void closing_unlocks_all_locks_and_ends_all_waits(Via via) throws Exception {
        var locks = locks(via);
        locks(via).take("theirs").acquire();
        locks.take("mine").acquire();
        var waiting = start(() -> locks.take("theirs").acquire());
        eventually("it waits", () -> server.waiters("theirs") == 1);
        locks.close();
        assertThrows(ExecutionException.class, waiting::get);
        assertTrue(server.isFree("mine"));
        assertEquals(0, server.waiters("theirs"));
        assertThrows(LockException.Closed.class, () -> locks.take("mine").acquire());
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_is_held_for_max_hold_at_most(Via via) throws Exception {
        locks(via).take("k").maxHold(Duration.ofMillis(300)).acquire().lost().get();
        eventually("it is free", () -> server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_fixed_lock_lasts_for_its_lease_and_can_be_extended(Via via) throws Exception {
        var locks = locks(via);
        Held held = locks.take("k").lease(Duration.ofSeconds(3)).fixed().acquire();
        held.extend(Duration.ofSeconds(6));
        held.extend(Duration.ofSeconds(1)); // which it has anyway
        assertEquals(2, server.calls("LOCK.RENEW"));
        Thread.sleep(4000);
        assertTrue(held.isHeld());
        held.lost().get();
        assertEquals(2, server.calls("LOCK.RENEW"));
        assertThrows(LockException.Lost.class, () -> held.extend(Duration.ofMinutes(1)));
        Held deleted = locks.take("k").lease(Duration.ofMinutes(1)).fixed().acquire();
        server.run("DEL", "k");
        assertThrows(LockException.Lost.class, () -> deleted.extend(Duration.ofMinutes(1)));
        assertFalse(deleted.isHeld());
    }

    @ParameterizedTest
    @EnumSource
    void closing_unlocks_no_fixed_lock(Via via) throws Exception {
        var locks = locks(via);
        Held held = locks.take("k").fixed().acquire();
        locks.close();
        assertFalse(held.isHeld() || server.isFree("k"));
        held.unlock(); // is over
    }

    @ParameterizedTest
    @EnumSource
    void a_guarded_command_runs_only_while_the_lock_is_held(Via via) throws Exception {
        Held held = locks(via).take("k").acquire();
        var guarded = held.guard("SET", "stock", "5").toArray(String[]::new);
        server.run(guarded);
        assertEquals("5", server.run("GET", "stock"));
        held.unlock();
        var e = assertThrows(JedisDataException.class, () -> server.run(guarded));
        assertTrue(e.getMessage().startsWith("NOTHELD"), e.getMessage());
    }

    @ParameterizedTest
    @EnumSource
    void a_release_that_the_server_forbids_is_reported_and_the_lock_is_left(Via via) throws Exception {
        var locks = locks(via);
        server.run("ACL", "SETUSER", "default", "-lock.release");
        Held held = locks.take("k").lease(Duration.ofHours(1)).acquire();
        forbidden(held::unlock);
        held.unlock(); // is over
        var both = locks.take("k").acquireWith("j");
        forbidden(both::unlock);
        var lock = locks.readWriteLock("k", Duration.ofHours(1));
        lock.readLock().lock();
        forbidden(lock.readLock()::unlock);
        lock.writeLock().lock();
        lock.readLock().lock();
        forbidden(lock.writeLock()::unlock);
        var permits = locks.semaphore("permits", 3, Duration.ofHours(1));
        permits.acquire(3);
        forbidden(permits::release);
        eventually("all are free", () -> server.isFree("k") && server.isFree("j") && server.isFree("permits"));
    }

    private static void forbidden(Executable release) {
        assertEquals("NOPERM", assertThrows(LockException.Refused.class, release).code());
    }

    @ParameterizedTest
    @EnumSource
    void impossible_times_are_refused_by_name(Via via) throws Exception {
        var locks = locks(via);
        refused("lease must be at least 3 ms, got PT0.002S", () -> locks.take("k").lease(Duration.ofMillis(2)).wait(Duration.ZERO).acquire());
        refused("lease must be at least 3 ms, got PT-1M", () -> locks.lock("k", Duration.ofMinutes(-1)).tryLock());
        refused("lease must be at least 3 ms, got PT0S", () -> locks.readWriteLock("k", Duration.ZERO).readLock().tryLock());
        refused("maxHold must be at least 1 ms, got PT-1S", () -> locks.take("k").maxHold(Duration.ofSeconds(-1)).acquire());
        assertThrows(NullPointerException.class, () -> locks.take(null));
        assertEquals(0, server.calls("LOCK.WLOCK") + server.calls("LOCK.RLOCK"));
        locks.take("k").wait(Duration.ofSeconds(Long.MIN_VALUE)).maxHold(Duration.ofSeconds(Long.MAX_VALUE)).acquire().unlock();
    }

    private static void refused(String text, Executable call) {
        assertEquals(text, assertThrows(IllegalArgumentException.class, call).getMessage());
    }
}
