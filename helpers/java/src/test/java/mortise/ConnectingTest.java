package mortise;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.internal.HostAndPort;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.MappingSocketAddressResolver;
import java.time.Duration;
import mortise.jedis.JedisClient;
import mortise.lettuce.LettuceClient;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.DefaultJedisClientConfig;

/** Connections with the settings of the program's client, and what a server says that refuses them. */
@Timeout(60)
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
}
