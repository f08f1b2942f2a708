package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import org.junit.jupiter.api.Test;

/** Commands that come late and replies that a server rarely gives: something between the locks and their client causes them. */
class RepliesTest extends EachClient {
    private final CountDownLatch sent = new CountDownLatch(1);
    private final CountDownLatch late = new CountDownLatch(1);

    /** Locks whose commands go through this; it gets what the real client would do with a command. */
    private Locks between(Relay relay) {
        Client real = Via.JEDIS.connect(server.port);
        var locks = new Locks(new Client() {
            @Override
            public String node(String key) {
                return real.node(key);
            }

            @Override
            public List<Object> send(String node, List<List<String>> commands, boolean mayBlock, Duration timeout) {
                return commands.stream().map(words -> relay.reply(words, own -> real.send(node, List.of(own), mayBlock, timeout).get(0))).toList();
            }

            @Override
            public void refresh() {
                real.refresh();
            }

            @Override
            public void close() {
                real.close();
            }
        });
        open.add(locks);
        return locks;
    }

    private interface Relay {
        Object reply(List<String> words, Function<List<String>, Object> real);
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
}
