package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.FutureTask;
import mortise.LocksTest.Via;
import mortise.jedis.JedisClient;
import mortise.lettuce.LettuceClient;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

/** A cluster of three primaries, and a primary that Sentinel names. */
@Timeout(120)
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
            tasks.add(LocksTest.start(() -> {
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

    @ParameterizedTest
    @EnumSource
    void a_lock_and_its_waiters_follow_a_slot_that_moves(Via via) throws Exception {
        startCluster(via);
        Held held = locks.take("k").lease(Duration.ofSeconds(6)).acquire();
        long slot = (Long) servers.get(0).run("CLUSTER", "KEYSLOT", "k");
        int at = (int) (slot * 3 / 16384);
        TestServer from = servers.get(at);
        TestServer to = servers.get((at + 1) % 3);
        var second = LocksTest.start(() -> locks.take("k").acquire());
        eventually("it waits", () -> from.waiters("k") == 1);
        move(slot, from, to);
        eventually("it waits there", () -> to.waiters("k") == 1);
        eventually("it is renewed there", () -> to.calls("LOCK.RENEW") > 1);
        held.unlock();
        second.get().unlock();
        eventually("it is free", () -> to.isFree("k"));
    }

    private void move(long slot, TestServer from, TestServer to) {
        var source = (String) from.run("CLUSTER", "MYID");
        var target = (String) to.run("CLUSTER", "MYID");
        to.run("CLUSTER", "SETSLOT", "" + slot, "IMPORTING", source);
        from.run("CLUSTER", "SETSLOT", "" + slot, "MIGRATING", target);
        from.run("MIGRATE", "127.0.0.1", "" + to.port, "k", "0", "10000");
        to.run("CLUSTER", "SETSLOT", "" + slot, "NODE", target);
        servers.forEach(server -> server.run("CLUSTER", "SETSLOT", "" + slot, "NODE", target));
    }

    @ParameterizedTest
    @EnumSource
    void the_primary_that_sentinel_names_is_followed_over_a_failover(Via via) throws Exception {
        var primary = new TestServer();
        var replica = new TestServer("--replicaof", "127.0.0.1 " + primary.port);
        var sentinel = TestServer.sentinel(primary);
        servers.addAll(List.of(sentinel, replica, primary));
        eventually("the replica has all", () -> replica.run("INFO", "replication").toString().contains("master_link_status:up"));
        eventually("the sentinel knows it", () -> ((List<?>) sentinel.run("SENTINEL", "REPLICAS", "mymaster")).size() == 1);
        var config = DefaultJedisClientConfig.builder().build();
        locks = new Locks(via == Via.JEDIS
            ? JedisClient.sentinel("mymaster", config, Set.of(new HostAndPort("127.0.0.1", sentinel.port)), config)
            : LettuceClient.of(RedisURI.Builder.sentinel("127.0.0.1", sentinel.port, "mymaster").build()));
        Held held = locks.take("k").acquire();
        var second = LocksTest.start(() -> locks.take("k").acquire());
        eventually("it waits", () -> primary.waiters("k") == 1);
        primary.run("WAIT", "1", "5000");
        eventually("it fails over", () -> {
            try {
                sentinel.run("SENTINEL", "FAILOVER", "mymaster");
            } catch (JedisDataException e) {
                // it has begun, or cannot yet
            }
            try {
                return replica.run("ROLE").toString().contains("master");
            } catch (JedisConnectionException e) {
                return false; // whoever is promoted breaks its connections
            }
        });
        eventually("it waits there", () -> replica.waiters("k") == 1);
        held.unlock();
        second.get();
    }
}
