package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import mortise.jedis.JedisClient;
import mortise.lettuce.LettuceClient;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;

/** Confirmed holds: a lock relies on what enough replicas have. */
class ReplicasTest extends EachClient {
    private static final Duration SHORT = Duration.ofMillis(1500);
    private TestServer replica;

    @BeforeEach
    void attach() {
        server.run("CONFIG", "SET", "repl-diskless-sync-delay", "0");
        replica = newReplica();
        eventually("it is in sync", () -> replica.text("master_link_status").equals("up"));
        long written = server.info("master_repl_offset");
        eventually("it has all", () -> replica.info("slave_repl_offset") >= written); // a second later
    }

    @AfterEach
    void detach() {
        replica.close();
    }

    private TestServer newReplica() {
        return new TestServer("--replicaof", "127.0.0.1", "" + server.port);
    }

    private Locks locks(Via via, int replicas) {
        var locks = Locks.builder(via.connect(server.port)).replicas(replicas).build();
        open.add(locks);
        return locks;
    }

    /** Whether the replica knows this hold. */
    private boolean has(String key, Held held) {
        var info = (List<?>) replica.run("LOCK.INFO", key);
        return info != null && ((List<?>) info.get(info.indexOf("holds") + 1)).stream()
            .anyMatch(hold -> Mailbox.fields((List<?>) hold).get("token").equals(held.token()));
    }

    private static void assertUnconfirmed(int needed, int had, org.junit.jupiter.api.function.Executable call) {
        var e = assertThrows(LockException.Unconfirmed.class, call);
        assertEquals(List.of(needed, had), List.of(e.needed(), e.had()));
        assertEquals(had + " replicas have the lock, and " + needed + " have to", e.getMessage());
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_is_handed_out_once_a_replica_has_it_and_so_is_each_renewal(Via via) throws Exception {
        Held held = locks(via, 1).take("k").lease(SHORT).acquire();
        assertTrue(has("k", held));
        long waits = server.calls("wait");
        assertTrue(waits >= 2, "one on the new connection, and one for the grant");
        Thread.sleep(2000); // longer than the lease
        assertTrue(held.isHeld() && server.calls("wait") > waits);
        held.unlock();
        assertTrue(server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void without_enough_replicas_an_exception_says_how_many_had_the_lock_and_it_is_free_again(Via via) throws Exception {
        var locks = locks(via, 2);
        assertUnconfirmed(2, 1, () -> locks.take("k").wait(Duration.ZERO).acquire());
        eventually("it is free", () -> server.isFree("k"));
        assertUnconfirmed(2, 1, () -> locks.take("k").wait(Duration.ofMillis(300)).acquire());
        eventually("it is free", () -> server.isFree("k"));
        try (var other = newReplica()) {
            locks.take("k").acquire().unlock();
        }
    }

    @ParameterizedTest
    @EnumSource
    void no_lock_is_seen_before_it_is_confirmed(Via via) throws Exception {
        var locks = locks(via, 1);
        locks.take("other").acquire(); // so that the connection is open
        CompletableFuture<Held> taking;
        try (var frozen = replica.freeze()) {
            taking = locks.take("k").acquireAsync();
            eventually("the server has granted it", () -> !server.isFree("k"));
            assertFalse(taking.isDone());
        }
        assertTrue(has("k", taking.get()));
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_whose_renewals_reach_no_replica_is_lost_at_its_deadline(Via via) throws Exception {
        var locks = locks(via, 1);
        Held held = locks.take("k").lease(SHORT).acquire();
        try (var frozen = replica.freeze()) {
            held.lost().get(60, TimeUnit.SECONDS); // though the primary renews it
            assertThrows(LockException.Lost.class, held::unlock);
            assertUnconfirmed(1, 0, () -> locks.take("other").wait(Duration.ZERO).acquire());
        }
        locks.take("k").acquire().unlock();
    }

    @ParameterizedTest
    @EnumSource
    void several_keys_permits_letters_and_what_is_taken_over_are_confirmed(Via via) throws Exception {
        var locks = locks(via, 1);
        Held both = locks.take("a").acquireWith("b");
        Held permits = locks.semaphore("p", 3).take(2).acquire();
        assertTrue(has("a", both) && has("b", both) && has("p", permits));
        Held first = locks.take("k").acquire();
        var second = locks.take("k").acquireAsync();
        eventually("it waits", () -> server.waiters("k") == 1);
        first.unlock();
        assertTrue(has("k", second.get()));
        Held taken = locks.take("k").takeOver("job", second.get().passTo("job", Duration.ofMinutes(1)));
        assertTrue(has("k", taken));
        long token = taken.passTo("job", Duration.ofMinutes(1));
        try (var frozen = replica.freeze()) {
            assertUnconfirmed(1, 0, () -> locks.take("k").takeOver("job", token));
            assertUnconfirmed(1, 0, () -> both.keepFor(Duration.ofMinutes(1)));
        }
        eventually("it was given back", () -> server.isFree("k"));
        assertFalse(server.isFree("a"));
    }

    @ParameterizedTest
    @EnumSource
    void an_upgrade_is_confirmed_by_its_new_token_and_otherwise_all_is_lost(Via via) throws Exception {
        var pair = locks(via, 1).readWriteLock("k");
        pair.readLock().lock();
        long read = pair.readLock().token();
        long waits = server.calls("wait");
        pair.writeLock().lock();
        assertTrue(pair.writeLock().token() > read && server.calls("wait") > waits);
        pair.writeLock().unlock();
        try (var frozen = replica.freeze()) {
            assertUnconfirmed(1, 0, () -> pair.writeLock().lock());
            assertFalse(pair.readLock().isHeldByCurrentThread());
            assertThrows(LockException.Lost.class, () -> pair.readLock().unlock());
        }
        eventually("it is free", () -> server.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void the_locks_of_many_are_confirmed_together(Via via) {
        var locks = locks(via, 1);
        long waits = server.calls("wait");
        var many = IntStream.range(0, 200).mapToObj(n -> locks.take("k" + n).acquireAsync()).toList();
        many.forEach(held -> assertTrue(has(held.join().key(), held.join())));
        assertTrue(server.calls("wait") - waits < 100);
    }

    @ParameterizedTest
    @EnumSource
    void locks_that_need_no_replica_use_none(Via via) throws Exception {
        locks(via).take("k").acquire().unlock();
        assertEquals(0, server.calls("wait"));
    }

    @ParameterizedTest
    @EnumSource
    void after_a_failover_in_a_cluster_a_lock_is_held_on_and_the_next_is_confirmed(Via via) throws Exception {
        String[] options = {"--cluster-enabled", "yes", "--cluster-node-timeout", "2000"};
        try (var primary = new TestServer(options); var second = new TestServer(options)) {
            primary.run("CLUSTER", "ADDSLOTSRANGE", "0", "16383");
            second.run("CLUSTER", "MEET", "127.0.0.1", "" + primary.port);
            var id = (String) primary.run("CLUSTER", "MYID");
            eventually("they know each other", () -> second.run("CLUSTER", "NODES").toString().contains(id));
            second.run("CLUSTER", "REPLICATE", id);
            eventually("it is in sync", () -> second.text("role").equals("slave") && second.text("master_link_status").equals("up"));
            eventually("the cluster is formed", () -> primary.run("CLUSTER", "INFO").toString().contains("cluster_state:ok"));
            var locks = Locks.builder(via == Via.JEDIS
                ? JedisClient.cluster(Set.of(new HostAndPort("127.0.0.1", primary.port)), DefaultJedisClientConfig.builder().build())
                : LettuceClient.cluster(RedisURI.create("127.0.0.1", primary.port))).replicas(1).build();
            open.add(locks);
            Held held = locks.take("k").lease(Duration.ofSeconds(6)).acquire();
            second.run("CLUSTER", "FAILOVER");
            eventually("it is promoted", () -> second.text("role").equals("master"));
            Thread.sleep(7000);
            held.unlock();
            locks.take("l").wait(Duration.ofMinutes(1)).acquire();
            assertTrue(second.calls("wait") > 0);
            locks.close(Duration.ofSeconds(2));
        }
    }

    @Test
    void replicas_are_a_count() {
        assertThrows(IllegalArgumentException.class, () -> Locks.builder(null).replicas(-1));
    }
}
