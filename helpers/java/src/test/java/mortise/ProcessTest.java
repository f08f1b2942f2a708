package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import mortise.EachClient.Via;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** A lock whose process is killed or stopped, or closes at the wrong moment. */
class ProcessTest {
    /** A process that holds the lock, and replies to each line with what it believes. */
    static final class Holder implements AutoCloseable {
        private final Process process;
        private final BufferedReader said;
        final long token;

        Holder(Via via, int port) throws IOException {
            process = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-cp", System.getProperty("java.class.path"),
                "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", Holder.class.getName(), via.name(), "" + port)
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
            said = process.inputReader();
            token = answer();
            assertTrue(token > 0);
        }

        /** The token of its hold, or 0 if it believes in none. */
        long answer() throws IOException {
            return Long.parseLong(said.readLine());
        }

        void ask() throws IOException {
            process.outputWriter().append('\n').flush();
        }

        void signal(String name) throws Exception {
            new ProcessBuilder("kill", "-" + name, "" + process.pid()).start().waitFor();
        }

        @Override
        public void close() {
            process.destroyForcibly();
        }

        public static void main(String[] args) throws Exception {
            var locks = new Locks(Via.valueOf(args[0]).connect(Integer.parseInt(args[1])));
            Held held = locks.take("k").lease(Duration.ofSeconds(3)).acquire();
            do {
                System.out.println(held.isHeld() ? held.token() : 0);
            } while (System.in.read() > 0);
            System.exit(0);
        }
    }

    private final TestServer server = new TestServer();

    @AfterEach
    void stop() {
        server.close();
    }

    @ParameterizedTest
    @EnumSource
    void the_lock_of_a_killed_holder_is_free_when_its_lease_is_over(Via via) throws Exception {
        try (var holder = new Holder(via, server.port); var locks = new Locks(via.connect(server.port))) {
            holder.signal("KILL");
            assertTrue(locks.take("k").acquire().token() > holder.token);
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_holder_stopped_for_longer_than_its_lease_knows_that_it_has_lost_the_lock(Via via) throws Exception {
        try (var holder = new Holder(via, server.port); var locks = new Locks(via.connect(server.port))) {
            holder.signal("STOP");
            Held held = locks.take("k").acquire();
            assertTrue(held.token() > holder.token);
            holder.ask();
            holder.signal("CONT");
            assertEquals(0, holder.answer());
            eventually("it has said that it has left", () -> server.calls("LOCK.LEAVE") > 0);
            held.unlock(); // this releases nothing of the other holder
        }
    }

    @ParameterizedTest
    @EnumSource
    void closing_at_the_moment_of_a_grant_leaves_nothing(Via via) throws Exception {
        try (var locks = new Locks(via.connect(server.port))) {
            for (int i = 0; i < 20; i++) {
                Held first = locks.take("k").acquire();
                var others = new Locks(via.connect(server.port));
                var waiting = EachClient.start(() -> others.take("k").lease(Duration.ofHours(1)).acquire());
                eventually("it waits", () -> server.waiters("k") == 1);
                var released = EachClient.start(() -> {
                    first.unlock();
                    return null;
                });
                others.close();
                released.get();
                try {
                    assertThrows(LockException.Lost.class, waiting.get()::check);
                } catch (ExecutionException e) {
                    assertTrue(e.getCause() instanceof LockException.Closed, e.toString());
                }
                eventually("it is free", () -> server.isFree("k"));
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_server_that_accepts_connections_and_never_replies_blocks_nobody(Via via) throws Exception {
        var locks = new Locks(via.connect(server.port));
        try (var frozen = server.freeze()) {
            assertTimeoutPreemptively(Duration.ofSeconds(30), () ->
                assertThrows(LockException.Unanswered.class, () -> locks.take("k").wait(Duration.ofMillis(300)).acquire()));
        }
        locks.close(Duration.ofSeconds(2));
    }

    /** A process that has so little address space that it can start few threads, and that starts as many as it can while a lock is lost. */
    static final class Crowded {
        public static void main(String[] args) throws Exception {
            var locks = new Locks(Via.valueOf(args[0]).connect(Integer.parseInt(args[1])));
            Held renewed = locks.take("renewed").lease(Duration.ofSeconds(3)).acquire();
            Held ending = locks.take("ending").fixed().lease(Duration.ofSeconds(1)).acquire();
            var release = new CountDownLatch(1);
            for (boolean isFull = false; !isFull; ) {
                try {
                    Locks.daemon("crowd", () -> {
                        try {
                            release.await();
                        } catch (InterruptedException e) {
                            throw new IllegalStateException(e);
                        }
                    }).start();
                } catch (OutOfMemoryError e) {
                    isFull = true;
                }
            }
            var lost = ending.lost();
            var future = locks.take("another").acquireAsync();
            eventually("the fixed lock is lost, and the other one granted", () -> !ending.isHeld() && !locks.holds("another").isEmpty());
            System.out.println(!lost.isDone() && !future.isDone());
            release.countDown();
            lost.get(30, TimeUnit.SECONDS);
            future.get(30, TimeUnit.SECONDS).unlock();
            long before = Clock.SYSTEM.now();
            eventually("a lease has passed", () -> Clock.SYSTEM.now() - before > 3000);
            System.out.println(renewed.isHeld());
            System.exit(0);
        }
    }

    @ParameterizedTest
    @EnumSource
    void locks_are_renewed_and_futures_complete_though_no_thread_could_be_started_for_a_while(Via via) throws Exception {
        String java = System.getProperty("java.home") + "/bin/java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx64m -Xlog:disable -XX:ThreadStackSize=262144";
        var process = new ProcessBuilder("bash", "-c", "ulimit -v 12000000; exec " + java + " -cp \"$0\" \"$@\"",
            System.getProperty("java.class.path"), Crowded.class.getName(), via.name(), "" + server.port)
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            var said = process.inputReader();
            assertEquals("true", said.readLine(), "the process could start threads");
            assertEquals("true", said.readLine(), "the lock is renewed no longer");
        } finally {
            process.destroyForcibly();
        }
    }
}
