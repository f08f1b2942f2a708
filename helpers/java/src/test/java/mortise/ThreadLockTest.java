package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Locks of threads: {@code java.util.concurrent.locks}, and the additions of Redisson's RLock. */
class ThreadLockTest extends EachClient {
    @ParameterizedTest
    @EnumSource
    void a_lock_is_reentrant_by_thread_and_the_server_has_one_hold(Via via) throws Exception {
        var locks = locks(via);
        var lock = locks.lock("k");
        lock.lock();
        locks.lock("k").lock();
        assertTrue(lock.tryLock());
        long token = lock.token();
        assertFalse(start(lock::tryLock).get());
        assertThrows(ExecutionException.class, () -> start(() -> { lock.unlock(); return null; }).get());
        lock.unlock();
        lock.unlock();
        assertEquals(token, lock.token());
        assertTrue(lock.isHeldByCurrentThread());
        lock.unlock();
        assertTrue(server.isFree("k"));
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertEquals(1, server.calls("LOCK.RELEASE"));
    }

    @ParameterizedTest
    @EnumSource
    void readers_share_the_lock_and_a_writer_may_continue_as_a_reader(Via via) throws Exception {
        var both = locks(via).readWriteLock("k");
        both.writeLock().lock();
        both.readLock().lock();
        assertFalse(start(() -> both.readLock().tryLock()).get());
        long token = both.writeLock().token();
        both.writeLock().unlock();
        assertEquals(token, both.readLock().token());
        assertTrue(start(() -> { boolean in = both.readLock().tryLock(); both.readLock().unlock(); return in; }).get());
        assertFalse(start(() -> both.writeLock().tryLock()).get());
        both.readLock().unlock();
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_reader_can_upgrade_once_the_other_readers_have_left(Via via) throws Exception {
        var both = locks(via).readWriteLock("k", Duration.ofSeconds(6));
        var other = locks(via).take("k").read().acquire();
        both.readLock().lock();
        long token = both.readLock().token();
        assertFalse(both.writeLock().tryLock());
        var leaves = start(() -> {
            eventually("it waits", () -> server.waiters("k") == 1);
            long renewed = server.calls("LOCK.RENEW");
            eventually("the read hold is renewed meanwhile", () -> server.calls("LOCK.RENEW") > renewed);
            other.unlock();
            return null;
        });
        both.writeLock().lock();
        leaves.get();
        assertTrue(both.writeLock().token() > token);
        both.readLock().unlock();
        assertFalse(start(() -> both.readLock().tryLock()).get());
        both.writeLock().unlock();
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_reader_that_upgrades_while_its_renewal_is_pending_keeps_the_lock(Via via) throws Exception {
        var renewed = new CountDownLatch(1);
        var answered = new CountDownLatch(1);
        var late = new Between(via.connect(server.port), (words, real) -> { // holds back the reply to a renewal that comes before the upgrade
            Object reply = real.apply(words);
            if (words.get(0).equals("LOCK.RENEW") && server.waiters("k") == 1) {
                renewed.countDown();
                try {
                    answered.await();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }
            return reply;
        });
        var locks = new Locks(late);
        open.add(locks);
        var both = locks.readWriteLock("k", Duration.ofSeconds(12));
        both.readLock().lock();
        var other = locks(via).take("k").read().acquire();
        var leaves = start(() -> {
            renewed.await();
            other.unlock();
            return null;
        });
        both.writeLock().lock();
        leaves.get();
        answered.countDown();
        locks.take("next").acquire().unlock(); // its replies come after that of the renewal
        assertTrue(both.writeLock().token() > 0, "it was lost");
        both.readLock().unlock();
        both.writeLock().unlock();
    }

    @ParameterizedTest
    @EnumSource
    void an_uninterruptible_wait_continues_and_keeps_the_interrupt(Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("k").acquire();
        var kept = new FutureTask<>(() -> {
            locks.lock("k").lock();
            return Thread.currentThread().isInterrupted();
        });
        var waiting = new Thread(kept);
        waiting.start();
        eventually("it waits", () -> server.waiters("k") == 1);
        waiting.interrupt();
        first.unlock();
        assertTrue(kept.get());
    }

    @ParameterizedTest
    @EnumSource
    void conditions_are_refused_by_name(Via via) {
        var e = assertThrows(UnsupportedOperationException.class, () -> locks(via).lock("k").newCondition());
        assertTrue(e.getMessage().contains("newCondition"));
    }

    @ParameterizedTest
    @EnumSource
    void a_deadlock_between_threads_is_reported(Via via) throws Exception {
        var locks = locks(via);
        locks.lock("a").lock();
        start(() -> {
            locks.lock("b").lock();
            locks.lock("a").lock();
            return null;
        });
        eventually("the other thread waits", () -> server.waiters("a") == 1);
        var e = assertThrows(LockException.Refused.class, () -> locks.lock("b").tryLock(10, TimeUnit.SECONDS));
        assertTrue(e.isDeadlock());
        locks.lock("a").unlock();
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_taken_for_a_time_is_held_no_longer(Via via) throws Exception {
        var locks = locks(via);
        var lock = locks.lock("k");
        assertTrue(lock.tryLock(10_000, 300, TimeUnit.MILLISECONDS));
        assertTrue(lock.remainingLease().toMillis() <= 300, "a holder that dies keeps others out no longer than that");
        eventually("its time is over", () -> !lock.isHeldByCurrentThread());
        assertThrows(LockException.Lost.class, lock::unlock);
        assertTrue(lock.tryLock(10, 3600, TimeUnit.SECONDS));
        assertTrue(lock.remainingLease().compareTo(Duration.ofSeconds(30)) <= 0, "it was renewed meanwhile");
        assertFalse(start(() -> locks.lock("k").tryLock(10, 3600, TimeUnit.MILLISECONDS)).get());
        lock.unlock();
        assertThrows(IllegalArgumentException.class, () -> lock.tryLock(0, 0, TimeUnit.SECONDS));
        assertTrue(lock.tryLock(0, -1, TimeUnit.DAYS)); // without limit
        lock.unlock();
        assertTrue(lock.tryLock(Long.MAX_VALUE, Long.MAX_VALUE, TimeUnit.DAYS));
        lock.unlock();
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_shows_its_holder_its_count_and_its_remaining_lease(Via via) throws Exception {
        var locks = locks(via);
        var lock = locks.lock("k", Duration.ofMinutes(1));
        var reads = locks.readWriteLock("k", Duration.ofMinutes(1)).readLock();
        assertFalse(lock.isLocked());
        assertEquals(Duration.ZERO, lock.remainingLease());
        lock.lock();
        lock.lock();
        String here = "ThreadLock[k, write, held 2 times by thread " + Thread.currentThread().getName() + "]";
        assertEquals(here, lock.toString());
        assertEquals(2, lock.getHoldCount());
        assertEquals(0, reads.getHoldCount());
        assertEquals(0, start(lock::getHoldCount).get());
        assertTrue(locks(via).lock("k").isLocked(), "as others see it");
        assertFalse(reads.isLocked());
        var left = lock.remainingLease();
        assertTrue(left.compareTo(Duration.ZERO) > 0 && left.compareTo(Duration.ofMinutes(1)) <= 0, left.toString());
        lock.unlock();
        lock.unlock();
        reads.lock();
        var longer = locks(via).readWriteLock("k", Duration.ofHours(1)).readLock();
        start(() -> { longer.lock(); return null; }).get();
        assertTrue(reads.isLocked());
        assertFalse(lock.isLocked());
        assertTrue(reads.remainingLease().compareTo(Duration.ofMinutes(50)) > 0, "the longest lease among the readers");
        server.run("SET", "j", "x");
        assertThrows(LockException.Refused.class, locks.lock("j")::isLocked);
    }

    @ParameterizedTest
    @EnumSource
    void a_reader_whose_lock_is_gone_learns_that_when_it_asks_to_write(Via via) throws Exception {
        var locks = locks(via);
        for (String key : new String[] {"waits", "tries"}) {
            var both = locks.readWriteLock(key);
            both.readLock().lock();
            server.run("DEL", key);
            server.run("LOCK.WLOCK", key, "somebody", "600000");
            assertThrows(LockException.Lost.class, () -> {
                if (key.equals("waits")) {
                    both.writeLock().lock();
                } else {
                    both.writeLock().tryLock();
                }
            });
            assertFalse(both.writeLock().isHeldByCurrentThread() || both.readLock().isHeldByCurrentThread());
            assertThrows(LockException.Lost.class, both.readLock()::unlock);
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_reader_that_waits_to_write_learns_that_its_lock_is_gone(Via via) throws Exception {
        var locks = locks(via);
        locks.take("k").read().acquire();
        var upgrading = start(() -> {
            var both = locks.readWriteLock("k");
            both.readLock().lock();
            both.writeLock().lock();
            return null;
        });
        eventually("it waits", () -> server.waiters("k") == 1);
        server.run("DEL", "k");
        var e = assertThrows(ExecutionException.class, () -> upgrading.get(30, TimeUnit.SECONDS));
        assertTrue(e.getCause() instanceof LockException.Lost, e.toString());
    }

    @ParameterizedTest
    @EnumSource
    void a_reader_that_waits_to_write_learns_that_its_lock_was_lost(Via via) throws Exception {
        locks(via).take("k").read().acquire();
        var locks = new Locks(new Between(via.connect(server.port), (words, real) ->
            words.get(0).equals("LOCK.RENEW") ? new LockException.Refused("BUSY as if it were") : real.apply(words)));
        open.add(locks);
        var upgrading = start(() -> {
            var both = locks.readWriteLock("k", Duration.ofSeconds(2));
            both.readLock().lock();
            both.writeLock().lock();
            return null;
        });
        var e = assertThrows(ExecutionException.class, () -> upgrading.get(30, TimeUnit.SECONDS));
        assertTrue(e.getCause() instanceof LockException.Lost, e.toString());
    }

    @ParameterizedTest
    @EnumSource
    void a_writer_keeps_the_others_out_where_a_full_server_does_not_let_it_go_on_as_a_reader(Via via) throws Exception {
        var both = locks(via).readWriteLock("k");
        both.writeLock().lock();
        both.readLock().lock();
        server.run("CONFIG", "SET", "maxmemory", "1");
        assertEquals("OOM", assertThrows(LockException.Refused.class, both.writeLock()::unlock).code());
        assertTrue(both.readLock().isHeldByCurrentThread());
        server.run("CONFIG", "SET", "maxmemory", "0");
        assertFalse(start(both.readLock()::tryLock).get());
        both.readLock().unlock();
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_reader_asks_again_to_write_where_a_server_refuses_that_for_now(Via via) throws Exception {
        var locks = locks(via);
        var upgrading = start(() -> {
            var both = locks.readWriteLock("k");
            both.readLock().lock();
            server.run("CONFIG", "SET", "min-replicas-to-write", "1");
            both.writeLock().lock();
            return both.writeLock().isHeldByCurrentThread() && both.readLock().isHeldByCurrentThread();
        });
        eventually("it is refused", () -> server.run("INFO", "errorstats").toString().contains("NOREPLICAS"));
        server.run("CONFIG", "SET", "min-replicas-to-write", "0");
        assertTrue(upgrading.get(60, TimeUnit.SECONDS));
    }

    @Test
    void a_reader_asks_again_to_write_where_no_server_is_known_for_now() throws Exception {
        var client = new Between(Via.JEDIS.connect(server.port), (words, real) -> real.apply(words));
        var locks = new Locks(client);
        open.add(locks);
        var both = locks.readWriteLock("k");
        both.readLock().lock();
        client.unknown.set(3);
        both.writeLock().lock();
        assertTrue(client.unknown.get() <= 0 && both.readLock().isHeldByCurrentThread());
        both.writeLock().unlock();
        both.readLock().unlock();
    }

    @ParameterizedTest
    @EnumSource
    void a_writer_keeps_its_lock_where_a_server_does_not_let_it_go_on_as_a_reader_for_now(Via via) throws Exception {
        var both = locks(via).readWriteLock("k");
        both.writeLock().lock();
        both.readLock().lock();
        server.run("CONFIG", "SET", "min-replicas-to-write", "1");
        assertEquals("NOREPLICAS", assertThrows(LockException.Refused.class, both.writeLock()::unlock).code());
        assertTrue(both.readLock().isHeldByCurrentThread());
        server.run("CONFIG", "SET", "min-replicas-to-write", "0");
        both.readLock().unlock();
        assertTrue(server.isFree("k"));
    }
}
