package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.FutureTask;
import mortise.EachClient.Via;
import mortise.jedis.JedisClient;
import mortise.lettuce.LettuceClient;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

/** A cluster of three primaries, and a primary that Sentinel names. */
class TopologyTest {
    private final List<TestServer> servers = new ArrayList<>();
    private Locks locks;

    @AfterEach
    void stop() {
        locks.close(Duration.ofSeconds(2));
        servers.forEach(TestServer::close);
    }

    private void startCluster(Via via) {
        for (int i = 0; i < 3; i++) {
            var server = new TestServer("--cluster-enabled", "yes", "--cluster-node-timeout", "2000");
            servers.add(server);
            server.run("CLUSTER", "ADDSLOTSRANGE", "" + i * 16384 / 3, "" + ((i + 1) * 16384 / 3 - 1));
            server.run("CLUSTER", "SET-CONFIG-EPOCH", "" + (i + 1));
            server.run("CLUSTER", "MEET", "127.0.0.1", "" + servers.get(0).port);
        }
        eventually("the cluster is formed", () -> servers.stream().allMatch(server ->
            server.run("CLUSTER", "INFO").toString().contains("cluster_state:ok")
                && server.run("CLUSTER", "NODES").toString().lines().filter(line -> line.contains(" connected ")).count() == 3));
        int port = servers.get(0).port;
        locks = new Locks(via == Via.JEDIS
            ? JedisClient.cluster(Set.of(new HostAndPort("127.0.0.1", port)), DefaultJedisClientConfig.builder().build())
            : LettuceClient.cluster(RedisURI.create("127.0.0.1", port)));
    }

    @ParameterizedTest
    @EnumSource
    void every_node_of_a_cluster_has_one_box(Via via) throws Exception {
        startCluster(via);
        var tasks = new ArrayList<FutureTask<Void>>();
        for (int i = 0; i < 48; i++) {
            String key = "k" + i % 12;
            tasks.add(EachClient.start(() -> {
                for (int round = 0; round < 5; round++) {
                    locks.take(key).acquire().unlock();
                }
                return null;
            }));
        }
        for (var task : tasks) {
            task.get();
        }
        for (var server : servers) {
            assertEquals(1, server.info("lock_boxes"));
        }
    }

    @Test
    void lettuce_connects_to_each_node_of_the_programs_cluster_as_its_user() throws Exception {
        startCluster(Via.LETTUCE);
        for (var server : servers) {
            server.run("ACL", "SETUSER", "locker", "on", ">secret", "~*", "+@all");
            server.run("ACL", "SETUSER", "default", "-lock.wlock");
        }
        var node = RedisURI.builder().withHost("127.0.0.1").withPort(servers.get(0).port).withAuthentication("locker", "secret").build();
        var program = RedisClusterClient.create(node);
        try (var own = new Locks(LettuceClient.cluster(program, node))) {
            for (String key : List.of("a", "b", "c")) { // one on each node
                own.take(key).acquire().unlock();
            }
        }
        program.connect().sync().ping(); // it was not closed
        program.shutdown();
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_and_its_waiters_follow_a_slot_that_moves(Via via) throws Exception {
        startCluster(via);
        Held held = locks.take("k").lease(Duration.ofSeconds(6)).acquire();
        long slot = (Long) servers.get(0).run("CLUSTER", "KEYSLOT", "k");
        int at = (int) (slot * 3 / 16384);
        TestServer from = servers.get(at);
        TestServer to = servers.get((at + 1) % 3);
        var second = EachClient.start(() -> locks.take("k").acquire());
        eventually("it waits", () -> from.waiters("k") == 1);
        move(slot, from, to);
        eventually("it waits there", () -> to.waiters("k") == 1);
        eventually("it is renewed there", () -> to.calls("LOCK.RENEW") > 1);
        held.unlock();
        second.get().unlock();
        eventually("it is free", () -> to.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_is_acquired_and_renewed_while_its_slot_moves(Via via) throws Exception {
        startCluster(via);
        long slot = (Long) servers.get(0).run("CLUSTER", "KEYSLOT", "k");
        int at = (int) (slot * 3 / 16384);
        TestServer from = servers.get(at);
        TestServer to = servers.get((at + 1) % 3);
        beginMove(slot, from, to);
        Held held = locks.take("k").lease(Duration.ofSeconds(6)).acquire();
        var second = EachClient.start(() -> locks.take("k").acquire());
        eventually("it is renewed there for longer than its lease", () -> to.calls("LOCK.RENEW") > 4);
        held.unlock();
        second.get().unlock();
        finishMove(slot, from, to);
        eventually("it is free", () -> to.isFree("k"));
    }

    @ParameterizedTest
    @EnumSource
    void a_free_lock_is_acquired_where_its_slot_moves_to_though_the_server_names_no_host(Via via) throws Exception {
        startCluster(via);
        locks.take("k").acquire().unlock();
        long slot = (Long) servers.get(0).run("CLUSTER", "KEYSLOT", "k");
        int at = (int) (slot * 3 / 16384);
        TestServer from = servers.get(at);
        TestServer to = servers.get((at + 1) % 3);
        from.run("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint");
        beginMove(slot, from, to);
        locks.take("k").wait(Duration.ofSeconds(20)).acquire().unlock();
        assertEquals(1, to.calls("LOCK.WLOCK"));
        from.run("CONFIG", "SET", "cluster-preferred-endpoint-type", "ip");
        finishMove(slot, from, to);
    }

    @Test
    void the_target_of_an_ask_is_the_server_that_replied_where_it_names_no_host() {
        locks = new Locks(Via.JEDIS.connect(1));
        assertEquals("10.0.0.2:7001", Node.target("ASK 1 10.0.0.2:7001", "10.0.0.1:7000"));
        assertEquals("10.0.0.1:7001", Node.target("ASK 1 :7001", "10.0.0.1:7000"));
        assertEquals("10.0.0.1:7001", Node.target("ASK 1 ?:7001", "10.0.0.1:7000"));
        assertEquals("fe80::1:7001", Node.target("ASK 1 :7001", "fe80::1:7000"));
        assertEquals("::1:7001", Node.target("ASK 1 ::1:7001", "::1:7000"));
    }

    @ParameterizedTest
    @EnumSource
    void a_lock_and_its_waiters_follow_to_the_replica_that_the_cluster_promotes(Via via) throws Exception {
        startCluster(via);
        TestServer primary = servers.get((int) ((Long) servers.get(0).run("CLUSTER", "KEYSLOT", "k") * 3 / 16384));
        var replica = new TestServer("--cluster-enabled", "yes", "--cluster-node-timeout", "2000");
        servers.add(replica);
        replica.run("CLUSTER", "MEET", "127.0.0.1", "" + primary.port);
        var id = (String) primary.run("CLUSTER", "MYID");
        eventually("it knows the primary", () -> replica.run("CLUSTER", "NODES").toString().contains(id));
        replica.run("CLUSTER", "REPLICATE", id);
        eventually("the replica is loaded", () -> replica.run("INFO", "replication").toString().contains("master_link_status:up"));
        Held held = locks.take("k").lease(Duration.ofMinutes(1)).acquire();
        var second = EachClient.start(() -> locks.take("k").acquire());
        eventually("it waits", () -> primary.waiters("k") == 1);
        awaitAll(primary, replica);
        primary.kill();
        eventually("it waits there", () -> replica.info("lock_waiters") == 1);
        held.unlock();
        second.get().unlock();
    }

    /** Waits for a replica. A primary sends a newly loaded one nothing before its first request, a second later. */
    private static void awaitAll(TestServer primary, TestServer replica) {
        long written = primary.info("master_repl_offset");
        eventually("the replica has all of it", () -> replica.info("slave_repl_offset") >= written);
    }

    private void move(long slot, TestServer from, TestServer to) {
        beginMove(slot, from, to);
        from.run("MIGRATE", "127.0.0.1", "" + to.port, "k", "0", "10000");
        finishMove(slot, from, to);
    }

    private void beginMove(long slot, TestServer from, TestServer to) {
        to.run("CLUSTER", "SETSLOT", "" + slot, "IMPORTING", (String) from.run("CLUSTER", "MYID"));
        from.run("CLUSTER", "SETSLOT", "" + slot, "MIGRATING", (String) to.run("CLUSTER", "MYID"));
    }

    private void finishMove(long slot, TestServer from, TestServer to) {
        var target = (String) to.run("CLUSTER", "MYID");
        to.run("CLUSTER", "SETSLOT", "" + slot, "NODE", target);
        servers.forEach(server -> server.run("CLUSTER", "SETSLOT", "" + slot, "NODE", target));
    }

    @ParameterizedTest
    @EnumSource
    void locks_follow_sentinels_primary_over_a_failover(Via via) throws Exception {
        var primary = new TestServer();
        var replica = new TestServer("--replicaof", "127.0.0.1 " + primary.port);
        var sentinel = TestServer.sentinel(primary);
        servers.addAll(List.of(sentinel, replica, primary));
        eventually("the replica is loaded", () -> replica.run("INFO", "replication").toString().contains("master_link_status:up"));
        eventually("the sentinel knows it", () -> ((List<?>) sentinel.run("SENTINEL", "REPLICAS", "mymaster")).size() == 1);
        var config = DefaultJedisClientConfig.builder().build();
        locks = new Locks(via == Via.JEDIS
            ? JedisClient.sentinel("mymaster", config, Set.of(new HostAndPort("127.0.0.1", sentinel.port)), config)
            : LettuceClient.of(RedisURI.Builder.sentinel("127.0.0.1", sentinel.port, "mymaster").build()));
        Held held = locks.take("k").acquire();
        var second = EachClient.start(() -> locks.take("k").acquire());
        eventually("it waits", () -> primary.waiters("k") == 1);
        awaitAll(primary, replica);
        eventually("it fails over", () -> {
            try {
                sentinel.run("SENTINEL", "FAILOVER", "mymaster");
            } catch (JedisDataException e) {
                // it has begun, or cannot yet
            }
            try {
                return replica.run("ROLE").toString().contains("master");
            } catch (JedisConnectionException e) {
                return false; // a promoted server closes its connections
            }
        });
        eventually("it waits there", () -> replica.waiters("k") == 1);
        held.unlock();
        second.get();
    }
}
