package mortise.jedis;

import java.net.Socket;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Stream;
import mortise.Client;
import mortise.LockException;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.DefaultJedisSocketFactory;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.providers.SentineledConnectionProvider;
import redis.clients.jedis.util.IOUtils;
import redis.clients.jedis.util.JedisClusterCRC16;
import redis.clients.jedis.util.KeyValue;
import redis.clients.jedis.util.SafeEncoder;

/** Jedis: one server, Sentinel or a cluster. It opens connections of its own: no pool can run dry under a release, and nothing is sent twice. */
public final class JedisClient implements Client {
    private static final int CONNECT = 2_000; // ms that a server may take to accept a connection, and then to answer each command that begins it

    private final JedisClientConfig config;
    private final Function<String, HostAndPort> serverOf; // a key, as the program's client knows it
    private final Runnable refresh;
    private final Runnable close;

    private JedisClient(JedisClientConfig config, Function<String, HostAndPort> serverOf, Runnable refresh, Runnable close) {
        this.config = config;
        this.serverOf = serverOf;
        this.refresh = refresh;
        this.close = close;
    }

    /** The program's settings, with limits. */
    private static JedisClientConfig limited(JedisClientConfig config) {
        return DefaultJedisClientConfig.builder().from(config)
            .connectionTimeoutMillis(limited(config.getConnectionTimeoutMillis()))
            .socketTimeoutMillis(limited(config.getSocketTimeoutMillis()))
            .build();
    }

    /** Zero is without limit. */
    private static int limited(int millis) {
        return millis == 0 ? CONNECT : Math.min(millis, CONNECT);
    }

    public static JedisClient of(String host, int port) {
        return of(new HostAndPort(host, port), DefaultJedisClientConfig.builder().build());
    }

    /** One server. */
    public static JedisClient of(HostAndPort server, JedisClientConfig config) {
        return new JedisClient(config, key -> server, () -> {}, () -> {});
    }

    /** The primary that the sentinels name. */
    public static JedisClient sentinel(String name, JedisClientConfig config, Set<HostAndPort> sentinels, JedisClientConfig sentinelConfig) {
        var provider = new SentineledConnectionProvider(name, config, sentinels, sentinelConfig);
        return new JedisClient(config, key -> provider.getCurrentMaster(), () -> {}, provider::close);
    }

    /** A cluster, found from any of its nodes. */
    public static JedisClient cluster(Set<HostAndPort> nodes, JedisClientConfig config) {
        var provider = new ClusterConnectionProvider(nodes, limited(config));
        Function<String, HostAndPort> serverOf = key -> {
            HostAndPort node = provider.getNode(JedisClusterCRC16.getSlot(key));
            if (node == null) {
                throw new JedisConnectionException("nobody serves the slot of " + key);
            }
            return node;
        };
        return new JedisClient(config, serverOf, provider::renewSlotCache, provider::close);
    }

    @Override
    public String node(String key) {
        return serverOf.apply(key).toString();
    }

    @Override
    public Client.Channel connect(String node) {
        JedisClientConfig limited = limited(config);
        Socket socket = new DefaultJedisSocketFactory(HostAndPort.from(node), limited).createSocket();
        try {
            return new Opened(new Connection(() -> socket, limited), socket);
        } catch (JedisDataException e) { // a wrong password, say
            throw new LockException.Refused(e.getMessage());
        }
    }

    @Override
    public void refresh() {
        refresh.run();
    }

    @Override
    public void close() {
        close.run();
    }

    private record Opened(Connection connection, Socket socket) implements Client.Channel {
        @Override
        public List<Object> send(List<List<String>> commands, Duration timeout) {
            connection.setSoTimeout((int) timeout.toMillis());
            for (List<String> words : commands) {
                ProtocolCommand name = () -> SafeEncoder.encode(words.get(0));
                connection.sendCommand(name, words.subList(1, words.size()).toArray(String[]::new));
            }
            return connection.getMany(commands.size()).stream().map(Opened::read).toList();
        }

        private static Object read(Object reply) {
            if (reply instanceof JedisDataException e) {
                return new LockException.Refused(e.getMessage());
            } else if (reply instanceof List<?> list) {
                return list.stream().flatMap(Opened::items).map(Opened::read).toList();
            }
            return SafeEncoder.encodeObject(reply);
        }

        /** A field of a RESP3 map is two items. */
        private static Stream<?> items(Object item) {
            return item instanceof KeyValue<?, ?> field ? Stream.of(field.getKey(), field.getValue()) : Stream.of(item);
        }

        @Override
        public void close() {
            IOUtils.closeQuietly(socket);
        }
    }
}
