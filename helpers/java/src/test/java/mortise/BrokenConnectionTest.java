package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Connections through a proxy that break at the worst moment. */
class BrokenConnectionTest {
    /** What happens to the broken command. */
    private enum Fate { LOST, REPLY_LOST, LATE }

    /** What happens to new connections. */
    private enum Door { OPEN, SHUT, SILENT }

    private final TestServer server = new TestServer();
    private final Set<Socket> clients = ConcurrentHashMap.newKeySet();
    private final AtomicReference<String> word = new AtomicReference<>();
    private final AtomicInteger broken = new AtomicInteger();
    private final CountDownLatch release = new CountDownLatch(1);
    private final ReentrantReadWriteLock requests = new ReentrantReadWriteLock(); // while one is write-locked,
    private final ReentrantReadWriteLock replies = new ReentrantReadWriteLock(); // what comes stays where it is
    private volatile Fate fate;
    private volatile TestServer target = server; // of new connections
    private volatile Door door = Door.OPEN;
    private ServerSocket listener;
    private Locks locks;

    /** Locks through a proxy, after a first lock that has connected them. */
    private Locks locks(EachClient.Via via) throws Exception {
        connect(via, Door.OPEN);
        locks.take("first").acquire().unlock();
        return locks;
    }

    /** Locks through a proxy that has treated their second connection, the one for letters, and later ones like this. */
    private Locks connect(EachClient.Via via, Door second) throws Exception {
        listener = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
        Locks.daemon("proxy", () -> {
            try {
                while (true) {
                    Socket client = listener.accept();
                    Locks.daemon("proxied", () -> serve(client)).start();
                }
            } catch (IOException e) {
                // the test is over
            }
        }).start();
        door = Door.OPEN;
        locks = new Locks(via.connect(listener.getLocalPort()));
        eventually("it is connected", this::isConnected);
        door = second;
        return locks;
    }

    /** Whether a request that does not wait, for which no second connection is made, is answered in time: the first may take longer. */
    private boolean isConnected() {
        try {
            locks.take("first").wait(Duration.ZERO).acquire().unlock();
            return true;
        } catch (LockException.Unanswered | LockException.Busy e) {
            return false;
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @AfterEach
    void stop() throws IOException {
        stopLocks();
        server.close();
    }

    private void stopLocks() throws IOException {
        if (locks != null) {
            locks.close(Duration.ofSeconds(2));
            listener.close();
        }
    }

    private void breakNext(String command, Fate how) {
        fate = how;
        word.set(command);
    }

    private void serve(Socket client) {
        clients.add(client);
        if (door == Door.SILENT) {
            return; // nobody reads, and nobody closes it
        }
        try (client; var upstream = new Socket("127.0.0.1", target.port)) {
            if (door == Door.SHUT) {
                return;
            }
            var mute = new CountDownLatch(1);
            Locks.daemon("replies", () -> {
                try {
                    var buffer = new byte[65536];
                    for (int n; (n = upstream.getInputStream().read(buffer)) > 0; ) {
                        if (mute.getCount() == 0) {
                            client.close();
                        }
                        passed(replies);
                        client.getOutputStream().write(buffer, 0, n);
                    }
                    client.close();
                } catch (IOException e) {
                    // either end is gone
                }
            }).start();
            var buffer = new byte[65536];
            for (int n; (n = client.getInputStream().read(buffer)) > 0; ) {
                passed(requests);
                String next = word.get();
                boolean hit = next != null && new String(buffer, 0, n, StandardCharsets.ISO_8859_1).contains(next) && word.compareAndSet(next, null);
                if (hit) {
                    broken.incrementAndGet();
                    if (fate == Fate.REPLY_LOST) {
                        mute.countDown();
                    } else {
                        client.close();
                        if (fate == Fate.LOST) {
                            return;
                        }
                        release.await();
                    }
                }
                upstream.getOutputStream().write(buffer, 0, n);
                if (hit) {
                    Thread.sleep(100); // it is read before the connection breaks
                }
            }
        } catch (IOException | InterruptedException e) {
            // either end is gone
        }
    }

    private static void passed(ReentrantReadWriteLock gate) {
        gate.readLock().lock();
        gate.readLock().unlock();
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_is_free_though_the_connection_broke_during_its_release(EachClient.Via via) throws Exception {
        Held held = locks(via).take("k").lease(Duration.ofHours(1)).acquire();
        breakNext("LOCK.RELEASE", Fate.LOST);
        held.unlock();
        eventually("it is free", () -> server.isFree("k"));
        assertEquals(1, broken.get());
    }

    @ParameterizedTest
    @EnumSource
    void a_lost_reply_leaves_no_hold_and_no_command_is_replayed(EachClient.Via via) throws Exception {
        var locks = locks(via);
        long asked = server.calls("LOCK.WLOCK");
        breakNext("LOCK.WLOCK", Fate.REPLY_LOST);
        locks.take("k").lease(Duration.ofHours(1)).acquire().unlock();
        eventually("it is free", () -> server.isFree("k"));
        assertEquals(1, broken.get());
        assertTrue(server.calls("LOCK.WLOCK") - asked <= 3, "one that was lost, one repeat, one more while the first still held");
    }

    @ParameterizedTest
    @EnumSource
    void a_request_that_arrives_late_changes_nothing(EachClient.Via via) throws Exception {
        var locks = locks(via);
        breakNext("LOCK.WLOCK", Fate.LATE);
        Held held = locks.take("k").lease(Duration.ofHours(1)).acquire();
        eventually("the first name has left", () -> server.calls("LOCK.LEAVE") > 0);
        held.unlock();
        long asked = server.calls("LOCK.WLOCK");
        release.countDown();
        eventually("it arrived", () -> server.calls("LOCK.WLOCK") > asked);
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_waiter_is_granted_though_its_mail_connection_breaks_repeatedly(EachClient.Via via) throws Exception {
        var locks = locks(via);
        Held first = locks.take("k").acquire();
        var second = EachClient.start(() -> locks.take("k").acquire());
        eventually("it waits", () -> server.waiters("k") == 1);
        for (int i = 0; i < 3; i++) {
            long mails = server.calls("LOCK.MAIL");
            for (Socket client : clients) {
                client.close();
            }
            eventually("it asks anew", () -> server.calls("LOCK.MAIL") > mails);
        }
        breakNext("LOCK.MAIL", Fate.REPLY_LOST);
        first.unlock();
        second.get().unlock();
    }

    /** Waits for k, which somebody holds. */
    private FutureTask<Held> waiter(Locks locks) throws Exception {
        server.run("LOCK.WLOCK", "k", "somebody", "600000");
        FutureTask<Held> waiting = EachClient.start(() -> locks.take("k").acquire());
        eventually("it waits", () -> server.waiters("k") == 1);
        return waiting;
    }

    @ParameterizedTest
    @EnumSource
    void a_grant_that_arrives_too_late_is_not_used(EachClient.Via via) throws Exception {
        var locks = locks(via);
        server.run("LOCK.WLOCK", "k", "somebody", "600000");
        var waiting = EachClient.start(() -> locks.take("k").lease(Duration.ofSeconds(1)).acquire());
        eventually("it waits", () -> server.waiters("k") == 1);
        replies.writeLock().lock();
        server.run("LOCK.RELEASE", "k", "somebody");
        eventually("it was granted, and is over", () -> server.isFree("k"));
        replies.writeLock().unlock();
        Held held = waiting.get();
        held.check();
        assertFalse(server.isFree("k"), "an expired lock was returned");
    }

    @ParameterizedTest
    @EnumSource
    void a_waiter_whose_box_was_closed_asks_again(EachClient.Via via) throws Exception {
        var locks = locks(via);
        var waiting = waiter(locks);
        server.run("CONFIG", "SET", "lock.mail-timeout", "100");
        requests.writeLock().lock();
        eventually("its box is gone", () -> server.waiters("k") == 0);
        server.run("CONFIG", "SET", "lock.mail-timeout", "5000");
        requests.writeLock().unlock();
        eventually("it waits again", () -> server.waiters("k") == 1);
        server.run("LOCK.RELEASE", "k", "somebody");
        waiting.get().unlock();
    }

    @ParameterizedTest
    @EnumSource
    void a_waiter_that_gave_up_over_a_silent_connection_is_not_granted_later(EachClient.Via via) throws Exception {
        var locks = locks(via);
        server.run("LOCK.WLOCK", "k", "somebody", "600000");
        replies.writeLock().lock();
        assertThrows(LockException.class, () -> locks.take("k").lease(Duration.ofHours(1)).wait(Duration.ofMillis(300)).acquire());
        replies.writeLock().unlock();
        eventually("nobody waits", () -> server.waiters("k") == 0);
        server.run("LOCK.RELEASE", "k", "somebody");
        assertTrue(server.isFree("k"), "an orphan was granted");
    }

    @ParameterizedTest
    @EnumSource
    void locks_go_on_when_another_server_becomes_the_primary_behind_the_same_address(EachClient.Via via) throws Exception {
        var locks = locks(via);
        var waiting = waiter(locks);
        try (var promoted = new TestServer()) {
            target = promoted;
            server.run("REPLICAOF", "127.0.0.1", "" + promoted.port); // keeps the connections
            try (Held held = locks.take("j").wait(Duration.ofSeconds(20)).acquire()) {
                assertFalse(promoted.isFree("j"));
            }
            waiting.get(30, TimeUnit.SECONDS).unlock();
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_wait_ends_in_time_though_no_connection_for_letters_comes_up(EachClient.Via via) throws Exception {
        for (Door second : new Door[] {Door.SHUT, Door.SILENT}) {
            stopLocks();
            var locks = connect(via, second);
            server.run("LOCK.WLOCK", "k", "somebody", "600000");
            var e = assertThrows(LockException.Unanswered.class, () -> locks.take("k").wait(Duration.ofMillis(300)).acquire());
            assertEquals("no letter from the server", e.getMessage());
            assertTrue(second == Door.SILENT || e.getCause() != null, "it does not say why");
            eventually("nobody waits", () -> server.waiters("k") == 0);
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_is_taken_though_no_connection_for_letters_comes_up_and_waiters_are_granted_when_it_does(EachClient.Via via) throws Exception {
        var locks = connect(via, Door.SHUT);
        var waiting = waiter(locks);
        eventually("its box is gone", () -> server.waiters("k") == 0);
        server.run("LOCK.RELEASE", "k", "somebody");
        Held held = waiting.get(40, TimeUnit.SECONDS);
        var second = EachClient.start(() -> locks.take("k").acquire());
        eventually("it waits", () -> server.waiters("k") == 1);
        door = Door.OPEN;
        eventually("letters are collected", () -> server.calls("LOCK.MAIL") > 0);
        held.unlock();
        second.get(40, TimeUnit.SECONDS).unlock();
    }
}
