package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.junit.jupiter.api.Test;

/** Commands that come late and replies that a server rarely gives: something between the locks and their client causes them. */
class RepliesTest extends EachClient {
    private final CountDownLatch sent = new CountDownLatch(1);
    private final CountDownLatch late = new CountDownLatch(1);

    private Between client;

    /** Locks whose commands go through this. */
    private Locks between(Between.Relay relay) {
        client = new Between(Via.JEDIS.connect(server.port), relay);
        var locks = new Locks(client);
        open.add(locks);
        return locks;
    }

    private Object delay(List<String> words, Function<List<String>, Object> real) {
        sent.countDown();
        try {
            late.await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
        return real.apply(words);
    }

    private Object delayReply(List<String> words, Function<List<String>, Object> real) {
        Object reply = real.apply(words);
        delay(words, own -> null);
        return reply;
    }

    @Test
    void a_takeover_without_a_reply_in_time_says_so_and_leaves_no_hold() {
        var locks = between((words, real) -> words.get(0).equals("LOCK.PASS") ? delay(words, real) : real.apply(words));
        long token = (Long) server.run("LOCK.WLOCK", "job", "queue", "600000");
        assertThrows(LockException.Unanswered.class, () -> locks.take("job").lease(Duration.ofHours(1)).takeOver("queue", token));
        late.countDown();
        eventually("it is free", () -> server.isFree("job"));
    }

    @Test
    void a_takeover_that_is_interrupted_after_a_refused_attempt_leaves_no_hold() throws Exception {
        var passes = new ArrayList<List<String>>();
        var locks = between((words, real) -> {
            if (!words.get(0).equals("LOCK.PASS")) {
                return real.apply(words);
            }
            passes.add(words);
            return passes.size() == 1 ? new LockException.Refused("TRYAGAIN the slot is moving") : delay(words, real);
        });
        long token = (Long) server.run("LOCK.WLOCK", "job", "queue", "600000");
        var runner = start(() -> {
            var thread = Thread.currentThread();
            Locks.daemon("interrupts", () -> {
                try {
                    sent.await();
                    thread.interrupt();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }).start();
            return locks.take("job").lease(Duration.ofHours(1)).takeOver("queue", token);
        });
        assertThrows(ExecutionException.class, runner::get);
        late.countDown();
        eventually("it is free", () -> server.isFree("job"));
    }

    @Test
    void a_takeover_that_is_interrupted_between_its_attempts_leaves_the_lock_where_it_is() throws Exception {
        var refused = new AtomicInteger();
        var locks = between((words, real) -> words.get(0).equals("LOCK.PASS") && late.getCount() > 0 && refused.incrementAndGet() > 0
            ? new LockException.Refused("TRYAGAIN the slot is moving") : real.apply(words));
        long token = (Long) server.run("LOCK.WLOCK", "job", "queue", "600000");
        var runner = new CompletableFuture<Thread>();
        var takingOver = start(() -> {
            runner.complete(Thread.currentThread());
            return locks.take("job").takeOver("queue", token);
        });
        eventually("it asks twice a second", () -> refused.get() > 5);
        runner.get().interrupt();
        assertTrue(assertThrows(ExecutionException.class, takingOver::get).getCause() instanceof InterruptedException);
        late.countDown();
        var later = new CompletableFuture<Void>();
        locks.later(2 * Locks.LAST_PAUSE, () -> later.complete(null)); // the next attempt would have been before
        later.get();
        locks.take("job").takeOver("queue", token).unlock();
    }

    @Test
    void a_lock_that_is_being_passed_on_is_not_looked_at_all_the_time() throws Exception {
        var locks = between((words, real) -> words.get(0).equals("LOCK.PASS") ? delay(words, real) : real.apply(words));
        Held held = locks.take("job").lease(Duration.ofMillis(1500)).wait(Duration.ZERO).acquire();
        start(() -> held.passTo("queue", Duration.ofMinutes(1)));
        sent.await();
        int before = client.looks.get();
        held.lost().get(); // a second after its renewal was due
        int times = client.looks.get() - before;
        late.countDown();
        assertTrue(times < 20, times + " times");
    }

    @Test
    void a_letter_is_read_though_an_earlier_server_gave_higher_numbers() throws Exception {
        var boxes = new ArrayList<Long>();
        var locks = between((words, real) -> words.get(0).equals("LOCK.MAIL") ? mailAhead(boxes, words, real) : real.apply(words));
        for (int i = 0; i < 2; i++) {
            server.run("LOCK.WLOCK", "k", "somebody", "600000");
            var waiting = start(() -> locks.take("k").acquire());
            eventually("it waits", () -> server.waiters("k") == 1);
            server.run("LOCK.RELEASE", "k", "somebody");
            waiting.get(30, TimeUnit.SECONDS).unlock();
            server.kill();
            server.start();
        }
    }

    @Test
    void an_error_in_the_client_ends_neither_renewals_nor_waits() throws Exception {
        var broken = new AtomicInteger(); // how many commands meet an Error
        var locks = between((words, real) -> {
            if (broken.getAndDecrement() > 0) {
                throw new StackOverflowError();
            }
            return real.apply(words);
        });
        server.run("LOCK.WLOCK", "theirs", "somebody", "600000");
        var waiting = start(() -> locks.take("theirs").acquire());
        eventually("it waits", () -> server.waiters("theirs") == 1);
        Held held = locks.take("mine").lease(Duration.ofSeconds(6)).acquire();
        broken.set(4);
        eventually("all were met", () -> broken.get() <= 0);
        long before = server.calls("lock.renew") + server.calls("LOCK.RENEW");
        eventually("it is renewed", () -> server.calls("lock.renew") + server.calls("LOCK.RENEW") > before);
        server.run("LOCK.RELEASE", "theirs", "somebody");
        waiting.get(60, TimeUnit.SECONDS).unlock();
        held.unlock();
    }

    @Test
    void a_renewal_counts_from_when_it_was_sent_however_late_its_reply_is() throws Exception {
        long lease = 3000;
        var renewed = new CompletableFuture<Long>(); // when the only renewal that is answered was sent
        var locks = between((words, real) -> {
            if (!words.get(0).equals("LOCK.RENEW")) {
                return real.apply(words);
            } else if (!renewed.complete(System.nanoTime())) {
                throw new IllegalStateException("no answer");
            }
            Object reply = real.apply(words);
            pause(lease / 2);
            return reply;
        });
        Held held = locks.take("k").lease(Duration.ofMillis(lease)).wait(Duration.ZERO).acquire();
        pause(lease - (System.nanoTime() - renewed.get()) / 1_000_000);
        assertFalse(held.isHeld(), "it counts from the reply");
    }

    @Test
    void a_name_leaves_though_its_leave_fails_several_times() throws Exception {
        var requests = new AtomicInteger();
        var leaves = new AtomicInteger();
        var locks = between((words, real) -> {
            boolean isLost = words.get(0).equals("LOCK.WLOCK") && requests.incrementAndGet() == 1;
            if (isLost) {
                real.apply(words);
            }
            if (isLost || words.get(0).equals("LOCK.LEAVE") && leaves.incrementAndGet() <= 3) {
                throw new IllegalStateException("no answer");
            }
            return real.apply(words);
        });
        locks.take("k").lease(Duration.ofHours(1)).acquire().unlock();
        assertTrue(leaves.get() > 3, "another name may have to leave, too: what is lost together is unknown together");
        eventually("it is free", () -> server.isFree("k"));
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(Math.max(0, millis));
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Mail as from servers of which the first one's clock is ahead by more than a century; numbers stay below 2^53. */
    private static Object mailAhead(List<Long> boxes, List<String> words, Function<List<String>, Object> real) {
        long ahead = 1L << 52;
        var asked = new ArrayList<>(words);
        int last = words.size() - 1;
        if (words.contains("AFTER") && boxes.indexOf(Long.valueOf(words.get(last - 1))) == 0) {
            asked.set(last, "" + Math.max(0, Long.parseLong(words.get(last)) - ahead));
        }
        Object reply = real.apply(asked);
        if (!(reply instanceof List<?> mail)) {
            return reply;
        }
        var since = (Long) mail.get(0);
        if (!boxes.contains(since)) {
            boxes.add(since);
        }
        if (boxes.indexOf(since) > 0) {
            return reply;
        }
        List<List<Object>> letters = ((List<?>) mail.get(2)).stream().map(letter -> {
            var fields = new ArrayList<Object>((List<?>) letter);
            int number = fields.indexOf("number") + 1;
            fields.set(number, (Long) fields.get(number) + ahead);
            return (List<Object>) fields;
        }).toList();
        return List.of(since, mail.get(1), letters);
    }

    @Test
    void an_extension_whose_reply_comes_after_the_loss_reports_it() throws Exception {
        var locks = between((words, real) -> words.get(0).equals("LOCK.RENEW") ? delayReply(words, real) : real.apply(words));
        Held held = locks.take("k").lease(Duration.ofMillis(500)).fixed().acquire();
        var extending = start(() -> {
            held.extend(Duration.ofHours(1));
            return null;
        });
        held.lost().get(60, TimeUnit.SECONDS);
        late.countDown();
        assertTrue(assertThrows(ExecutionException.class, extending::get).getCause() instanceof LockException.Lost);
        eventually("it is free", () -> server.isFree("k"));
    }

    @Test
    void attempts_that_no_connection_could_send_leave_no_name() throws Exception {
        var locks = between((words, real) -> real.apply(words));
        locks.take("first").acquire().unlock();
        server.kill();
        var waiting = locks.take("k").acquireAsync();
        eventually("it has asked many times", () -> client.looks.get() > 50);
        server.start();
        waiting.get(60, TimeUnit.SECONDS).unlock();
        locks.close();
        long left = server.calls("LOCK.LEAVE");
        assertTrue(left <= 3, left + " names have left");
    }

    /** How many dependents a future of that object keeps until it completes. */
    private static int dependents(Object object, String name) throws ReflectiveOperationException {
        var field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return ((CompletableFuture<?>) field.get(object)).getNumberOfDependents();
    }

    @Test
    void attempts_that_failed_keep_no_memory() throws Exception {
        var requests = new AtomicInteger();
        var locks = between((words, real) -> {
            boolean isRefused = words.contains("refused") && requests.incrementAndGet() > 0;
            return isRefused ? new LockException.Refused("NOREPLICAS not now") : real.apply(words);
        });
        var waiting = new Acquisition(locks, locks.take("refused"));
        eventually("it has asked several times", () -> requests.get() > 5);
        assertTrue(dependents(waiting, "outcome") < 3);

        locks.take("k").read().acquire();
        Held reader = locks.take("k").read().acquire();
        for (int i = 0; i < 5; i++) {
            assertNull(reader.upgrade(0, true));
        }
        assertEquals(0, dependents(reader, "lost"));
    }

    @Test
    void a_client_of_a_wrong_version_is_reported_at_once() throws Exception {
        var locks = between((words, real) -> {
            if (words.get(0).equals("LOCK.WLOCK")) {
                throw new NoSuchMethodError("of another version");
            }
            return real.apply(words);
        });
        locks.answered = true;
        var e = assertThrows(ExecutionException.class, () -> locks.take("k").acquireAsync().get(30, TimeUnit.SECONDS));
        assertTrue(e.getCause().getCause() instanceof NoSuchMethodError, e.toString());
    }
}
