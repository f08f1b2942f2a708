package mortise;

import static mortise.TestServer.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.internal.HostAndPort;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.MappingSocketAddressResolver;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import mortise.jedis.JedisClient;
import mortise.lettuce.LettuceClient;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;

/** Connections with the settings of the program's client, and what a server says that refuses them. */
class ConnectingTest {
    @ParameterizedTest
    @EnumSource
    void a_wrong_password_is_reported_at_once_in_the_servers_words(EachClient.Via via) {
        try (var server = new TestServer("--requirepass", "right")) {
            var client = via == EachClient.Via.JEDIS
                ? JedisClient.of(new redis.clients.jedis.HostAndPort("127.0.0.1", server.port),
                    DefaultJedisClientConfig.builder().password("wrong").build())
                : LettuceClient.of(RedisURI.builder().withHost("127.0.0.1").withPort(server.port).withPassword("wrong".toCharArray()).build());
            try (var locks = new Locks(client)) {
                var e = assertThrows(LockException.Refused.class, () -> locks.take("k").acquire());
                assertEquals("WRONGPASS", e.code());
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_server_without_the_module_is_reported_at_once_with_what_to_do(EachClient.Via via) {
        try (var server = TestServer.withoutModule(); var locks = new Locks(via.connect(server.port))) {
            var e = assertThrows(LockException.class, () -> locks.take("k").acquire());
            assertTrue(e.getMessage().contains("loadmodule"), e.getMessage());
        }
    }

    @Test
    void lettuce_connects_with_the_resources_and_options_of_the_programs_client() throws Exception {
        try (var server = new TestServer()) {
            var resources = ClientResources.builder().socketAddressResolver(MappingSocketAddressResolver.create(
                (HostAndPort address) -> address.getHostText().equals("locks.internal") ? HostAndPort.of("127.0.0.1", server.port) : address)).build();
            RedisClient program = RedisClient.create(resources);
            program.setOptions(ClientOptions.builder().protocolVersion(ProtocolVersion.RESP2).build());
            try (var locks = new Locks(LettuceClient.of(program, RedisURI.create("locks.internal", 1)))) {
                try (Held held = locks.take("k").wait(Duration.ofSeconds(10)).acquire()) {
                    assertTrue(((String) server.run("CLIENT", "LIST")).lines()
                        .anyMatch(line -> line.toLowerCase().contains("cmd=lock.wlock") && line.contains("resp=2")));
                }
            }
            assertTrue(program.getOptions().isAutoReconnect(), "its own options are changed");
            program.connect(RedisURI.create("locks.internal", 1)).sync().ping(); // neither it nor its resources were closed
            program.shutdown();
            resources.shutdown();
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_server_with_too_many_clients_is_asked_again(EachClient.Via via) throws Exception {
        try (var server = new TestServer(); var locks = new Locks(via.connect(server.port)); var admin = new Jedis("127.0.0.1", server.port)) {
            admin.configSet("maxclients", "1");
            var waiting = EachClient.start(() -> locks.take("k").acquire());
            eventually("it is refused", () -> !admin.info("stats").contains("rejected_connections:0"));
            admin.configSet("maxclients", "100");
            waiting.get(30, TimeUnit.SECONDS).unlock();
        }
    }

    @ParameterizedTest
    @EnumSource
    void to_close_opens_no_connection(EachClient.Via via) throws Exception {
        try (var server = new TestServer()) {
            long before = server.info("total_connections_received");
            long own = server.info("total_connections_received") - before; // to ask for that
            for (int i = 0; i < 30; i++) {
                try (var locks = new Locks(via.connect(server.port))) {
                    locks.take("k").wait(Duration.ZERO).acquire().unlock();
                }
            }
            assertEquals(before + 2 * own + 30, server.info("total_connections_received"));
        }
    }

    @Test
    void a_time_out_of_lettuces_commands_ends_no_request() throws Exception {
        try (var server = new TestServer();
            var locks = new Locks(LettuceClient.of(RedisURI.create("redis://127.0.0.1:" + server.port + "?timeout=500ms")))) {
            eventually("it is connected", () -> {
                try {
                    locks.take("first").acquire().unlock();
                    return true;
                } catch (LockException.Unanswered | InterruptedException e) {
                    return false;
                }
            });
            try (var frozen = server.freeze()) {
                var asking = locks.take("k").wait(Duration.ZERO).acquireAsync();
                Thread.sleep(1000);
                assertFalse(asking.isDone(), "it has not waited for the reply");
            }
        }
    }

    @Test
    void lettuce_keeps_no_connection_that_the_server_closed() throws Exception {
        try (var server = new TestServer(); var client = LettuceClient.of(RedisURI.create("127.0.0.1", server.port)); var locks = new Locks(client)) {
            locks.take("k").acquire().unlock();
            for (int i = 0; i < 20; i++) {
                server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
                locks.take("k").acquire().unlock();
            }
            var own = LettuceClient.class.getDeclaredField("client");
            own.setAccessible(true);
            var count = AbstractRedisClient.class.getDeclaredMethod("getResourceCount");
            count.setAccessible(true);
            var redis = own.get(client);
            eventually("closed connections are gone", () -> {
                try {
                    return (int) count.invoke(redis) < 10;
                } catch (ReflectiveOperationException e) {
                    throw new AssertionError(e);
                }
            });
        }
    }

    @Test
    void lettuce_connects_in_two_seconds_after_the_first_time() throws Exception {
        try (var server = new TestServer(); var client = LettuceClient.of(RedisURI.create("127.0.0.1", server.port))) {
            client.connect(client.node("k")).close();
            try (var frozen = server.freeze()) {
                assertTimeoutPreemptively(Duration.ofSeconds(9), () ->
                    assertThrows(RedisConnectionException.class, () -> client.connect(client.node("k"))));
            }
        }
    }

    @Test
    void a_cluster_that_never_answers_blocks_nobody_with_lettuce() throws Exception {
        try (var silent = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
            var locks = new Locks(LettuceClient.cluster(RedisURI.create("127.0.0.1", silent.getLocalPort())))) {
            assertTimeoutPreemptively(Duration.ofSeconds(40), () ->
                assertThrows(LockException.Unanswered.class, () -> locks.take("k").wait(Duration.ofMillis(300)).acquire()));
        }
    }

    @Test
    void lettuce_asks_the_next_sentinel_where_one_does_not_answer() throws Exception {
        try (var server = new TestServer(); var sentinel = TestServer.sentinel(server);
            var silent = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))) {
            var uri = RedisURI.Builder.sentinel("127.0.0.1", silent.getLocalPort(), "mymaster")
                .withSentinel("127.0.0.1", sentinel.port).build();
            try (var locks = new Locks(LettuceClient.of(uri))) {
                locks.answered = true; // to ask again for longer than 10 s
                locks.take("k").wait(Duration.ofSeconds(60)).acquire().unlock();
            }
        }
    }

    @Test
    void lettuce_asks_the_next_sentinel_where_one_refuses() throws Exception {
        try (var server = new TestServer(); var refusing = TestServer.sentinel(server, "requirepass secret");
            var sentinel = TestServer.sentinel(server)) {
            var refused = RedisURI.Builder.sentinel("127.0.0.1", refusing.port, "mymaster").build();
            try (var locks = new Locks(LettuceClient.of(refused))) {
                assertEquals("NOAUTH", assertThrows(LockException.Refused.class, () -> locks.take("k").acquire()).code());
            }
            var both = RedisURI.Builder.sentinel("127.0.0.1", refusing.port, "mymaster").withSentinel("127.0.0.1", sentinel.port).build();
            try (var locks = new Locks(LettuceClient.of(both))) {
                locks.take("k").acquire().unlock();
            }
        }
    }

    @Test
    void lettuces_first_connection_may_take_long_with_a_sentinel_too() throws Exception {
        try (var server = new TestServer(); var sentinel = TestServer.sentinel(server);
            var locks = new Locks(LettuceClient.of(RedisURI.Builder.sentinel("127.0.0.1", sentinel.port, "mymaster").build()))) {
            Future<Held> asking;
            try (var frozen = sentinel.freeze()) {
                asking = EachClient.start(() -> locks.take("k").wait(Duration.ZERO).acquire());
                Thread.sleep(3000);
            }
            asking.get(30, TimeUnit.SECONDS).unlock();
        }
    }

    @Test
    void a_wait_without_sentinels_ends_however_many_wait_with_lettuce() throws Exception {
        try (var silent = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1")); var closed = new ServerSocket(0)) {
            closed.close();
            var uri = RedisURI.Builder.sentinel("127.0.0.1", silent.getLocalPort(), "mymaster").withSentinel("127.0.0.1", closed.getLocalPort()).build();
            try (var locks = new Locks(LettuceClient.of(uri))) {
                var waiting = new ArrayList<Future<Held>>();
                for (int i = 0; i < 20; i++) {
                    waiting.add(EachClient.start(() -> locks.take("k").wait(Duration.ofSeconds(12)).acquire()));
                }
                assertTimeoutPreemptively(Duration.ofSeconds(25), () -> waiting.forEach(one -> assertThrows(ExecutionException.class, one::get)));
            }
        }
    }

    @Test
    void lettuce_asks_the_host_of_an_address_without_sentinels() throws Exception {
        try (var server = new TestServer(); var sentinel = TestServer.sentinel(server)) {
            var uri = RedisURI.builder().withHost("127.0.0.1").withPort(sentinel.port).withSentinelMasterId("mymaster").build();
            try (var locks = new Locks(LettuceClient.of(uri))) {
                locks.take("k").acquire().unlock();
            }
        }
    }

    @Test
    void jedis_connects_in_time_whatever_the_programs_time_out_is() throws Exception {
        try (var silent = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))) {
            for (int millis : new int[] {0, 60_000}) {
                var client = JedisClient.of(new redis.clients.jedis.HostAndPort("127.0.0.1", silent.getLocalPort()),
                    DefaultJedisClientConfig.builder().socketTimeoutMillis(millis).build());
                assertTimeoutPreemptively(Duration.ofSeconds(20), () ->
                    assertThrows(JedisConnectionException.class, () -> client.connect("127.0.0.1:" + silent.getLocalPort())));
            }
        }
    }

    @Test
    void jedis_connects_with_the_settings_of_the_program() throws Exception {
        try (var server = new TestServer("--requirepass", "right")) {
            var config = DefaultJedisClientConfig.builder().password("right").clientName("billing").database(3).resp3()
                .hostAndPortMapper(address -> new redis.clients.jedis.HostAndPort("127.0.0.1", server.port)).build();
            try (var locks = new Locks(JedisClient.of(new redis.clients.jedis.HostAndPort("locks.internal", 1), config));
                var admin = new Jedis("127.0.0.1", server.port)) {
                locks.take("k").acquire();
                admin.auth("right");
                assertTrue(admin.clientList().lines().anyMatch(line -> line.toLowerCase().contains("cmd=lock.wlock")
                    && line.contains("name=billing") && line.contains("db=3") && line.contains("resp=3")), admin.clientList());
            }
        }
    }
}
