package mortise.jedis;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Deque;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import mortise.Client;
import mortise.LockException;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.providers.SentineledConnectionProvider;
import redis.clients.jedis.util.JedisClusterCRC16;
import redis.clients.jedis.util.KeyValue;
import redis.clients.jedis.util.SafeEncoder;

/**
 * Jedis: one server, Sentinel or a cluster. It opens connections of its own, and another one only while none of a server's is
 * free: for {@link mortise.Locks} one for each use. No pool can run dry under a release, and nothing is sent twice.
 */
public final class JedisClient implements Client {
    /** Which server serves a key, as the program's client knows it. */
    private interface Topology extends AutoCloseable {
        HostAndPort of(String key);

        default void refresh() {}

        @Override
        default void close() {}
    }

    private final Topology topology;
    private final JedisClientConfig config;
    private final Map<Use, Map<String, Deque<Connection>>> free = new EnumMap<>(Use.class); // connections, by server
    private final Set<Connection> all = ConcurrentHashMap.newKeySet();
    private final Set<Connection> stale = ConcurrentHashMap.newKeySet(); // those that are not used again
    private volatile boolean closed;

    private JedisClient(Topology topology, JedisClientConfig config) {
        this.topology = topology;
        this.config = config;
        for (Use use : Use.values()) {
            free.put(use, new ConcurrentHashMap<>());
        }
    }

    public static JedisClient of(String host, int port) {
        return of(new HostAndPort(host, port), DefaultJedisClientConfig.builder().build());
    }

    /** One server. */
    public static JedisClient of(HostAndPort server, JedisClientConfig config) {
        return new JedisClient(key -> server, config);
    }

    /** The primary that the sentinels name. */
    public static JedisClient sentinel(String name, JedisClientConfig config, Set<HostAndPort> sentinels, JedisClientConfig sentinelConfig) {
        var provider = new SentineledConnectionProvider(name, config, sentinels, sentinelConfig);
        return new JedisClient(new Topology() {
            @Override
            public HostAndPort of(String key) {
                return provider.getCurrentMaster();
            }

            @Override
            public void close() {
                provider.close();
            }
        }, config);
    }

    /** A cluster, found from any of its nodes. */
    public static JedisClient cluster(Set<HostAndPort> nodes, JedisClientConfig config) {
        var provider = new ClusterConnectionProvider(nodes, config);
        return new JedisClient(new Topology() {
            @Override
            public HostAndPort of(String key) {
                HostAndPort node = provider.getNode(JedisClusterCRC16.getSlot(key));
                if (node == null) {
                    throw new JedisConnectionException("nobody serves the slot of " + key);
                }
                return node;
            }

            @Override
            public void refresh() {
                provider.renewSlotCache();
            }

            @Override
            public void close() {
                provider.close();
            }
        }, config);
    }

    @Override
    public String node(String key) {
        return topology.of(key).toString();
    }

    @Override
    public void refresh() {
        topology.refresh();
    }

    /** A connection on which anything went wrong is not used again. */
    @Override
    public List<Object> send(String node, List<List<String>> batch, Use use, Duration timeout) {
        Deque<Connection> its = free.get(use).computeIfAbsent(node, none -> new ConcurrentLinkedDeque<>());
        Connection connection = its.poll();
        while (connection != null && stale.remove(connection)) {
            drop(connection);
            connection = its.poll();
        }
        if (connection == null) {
            connection = connect(node);
            all.add(connection);
        }
        boolean whole = false;
        try {
            connection.setSoTimeout((int) timeout.toMillis());
            for (List<String> words : batch) {
                ProtocolCommand name = () -> SafeEncoder.encode(words.get(0));
                connection.sendCommand(new CommandArguments(name).addObjects(words.subList(1, words.size())));
            }
            var replies = new ArrayList<Object>();
            for (Object reply : connection.getMany(batch.size())) {
                replies.add(read(reply));
            }
            whole = replies.stream().noneMatch(r -> r instanceof LockException.Refused refused && refused.code().equals("READONLY"));
            return replies;
        } finally {
            if (whole && !connection.isBroken() && !closed) {
                its.push(connection); // the one that was used last is used first
            } else { // also one to a server that is no longer a primary
                drop(connection);
            }
        }
    }

    @Override
    public void reconnect(String node) {
        stale.addAll(all);
    }

    private void drop(Connection connection) {
        all.remove(connection);
        stale.remove(connection);
        disconnect(connection);
    }

    private Connection connect(String node) {
        try {
            return new Connection(HostAndPort.from(node), config);
        } catch (JedisDataException e) { // a wrong password, say
            throw new LockException.Refused(e.getMessage());
        }
    }

    private static Object read(Object reply) {
        if (reply instanceof JedisDataException e) {
            return new LockException.Refused(e.getMessage());
        } else if (reply instanceof byte[] bytes) {
            return SafeEncoder.encode(bytes);
        } else if (reply instanceof List<?> list) {
            var flat = new ArrayList<Object>();
            for (Object item : list) {
                if (item instanceof KeyValue<?, ?> field) { // of a RESP3 map
                    flat.add(read(field.getKey()));
                    flat.add(read(field.getValue()));
                } else {
                    flat.add(read(item));
                }
            }
            return flat;
        }
        return reply;
    }

    @Override
    public void close() {
        closed = true;
        all.forEach(JedisClient::disconnect); // ends what waits
        topology.close();
    }

    private static void disconnect(Connection connection) {
        try {
            connection.forceDisconnect();
        } catch (IOException | JedisConnectionException e) {
            // It is no longer of use.
        }
    }
}
