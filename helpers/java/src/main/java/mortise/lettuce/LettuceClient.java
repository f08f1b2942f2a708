package mortise.lettuce;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import mortise.Client;
import mortise.LockException;

/**
 * Lettuce: one server, Sentinel or a cluster. It opens connections of its own, one for each use, which do not reconnect by
 * themselves: so nothing is replayed, and nobody else's commands wait behind one that blocks.
 */
public final class LettuceClient implements Client {
    /** The address of the one server, which is found anew with every connection. */
    private static final String ONE = "";
    /** How long a server, or a sentinel, may take to be connected to. */
    private static final Duration CONNECT = Duration.ofSeconds(10);
    private static final ClientOptions DEFAULTS = ClientOptions.builder()
        .socketOptions(SocketOptions.builder().connectTimeout(CONNECT).build())
        .build();

    private final RedisClient client;
    private final RedisURI uri;
    private final RedisClusterClient cluster; // null without one
    private final boolean ownsCluster;
    private SocketAddress primary; // that Sentinel named last
    private final Map<Use, Map<String, StatefulRedisConnection<String, String>>> open = new EnumMap<>(Use.class); // by server

    private LettuceClient(RedisClient client, ClientOptions options, RedisURI uri, RedisClusterClient cluster, boolean ownsCluster) {
        this.client = client;
        this.uri = uri;
        this.cluster = cluster;
        this.ownsCluster = ownsCluster;
        for (Use use : Use.values()) {
            open.put(use, new ConcurrentHashMap<>());
        }
        client.setOptions(options.mutate()
            .autoReconnect(false)
            .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
            .build());
    }

    /** One server, or with {@code redis-sentinel://} the primary that the sentinels name. */
    public static LettuceClient of(RedisURI uri) {
        return new LettuceClient(RedisClient.create(), DEFAULTS, uri, null, false);
    }

    /**
     * The same with the program's client: its resources, and its options, such as those for TLS with a private certificate authority
     * or a client certificate. The client itself is neither used nor closed.
     */
    public static LettuceClient of(RedisClient like, RedisURI uri) {
        return new LettuceClient(RedisClient.create(like.getResources()), like.getOptions(), uri, null, false);
    }

    /** A cluster, found from any of its nodes. */
    public static LettuceClient cluster(RedisURI... nodes) {
        return new LettuceClient(RedisClient.create(), DEFAULTS, nodes[0], RedisClusterClient.create(List.of(nodes)), true);
    }

    /** The cluster of the program's client, which has to stay open for as long as the locks: it knows the nodes. */
    public static LettuceClient cluster(RedisClusterClient like) {
        RedisURI any = like.getPartitions().getPartition(0).getUri();
        return new LettuceClient(RedisClient.create(like.getResources()), like.getOptions(), any, like, false);
    }

    @Override
    public String node(String key) {
        if (cluster == null) {
            return ONE;
        }
        RedisClusterNode node = cluster.getPartitions().getPartitionBySlot(SlotHash.getSlot(key));
        if (node == null) {
            throw new RedisConnectionException("nobody serves the slot of " + key);
        }
        return node.getUri().getHost() + ":" + node.getUri().getPort();
    }

    @Override
    public void refresh() {
        if (cluster != null) {
            inTime(cluster.refreshPartitionsAsync(), nothing -> {}); // one at a time
        } else if (uri.getSentinelMasterId() != null) {
            try (var sentinel = inTime(client.connectSentinelAsync(StringCodec.UTF8, uri), late -> late.closeAsync())) {
                SocketAddress now = inTime(sentinel.async().getMasterAddrByName(uri.getSentinelMasterId()), late -> {});
                if (!now.equals(primary)) { // what is connected is so to the one before
                    primary = now;
                    open.values().forEach(LettuceClient::drop);
                }
            }
        }
    }

    @Override
    public void reconnect(String node) {
        for (var its : open.values()) {
            var connection = its.remove(node);
            if (connection != null) { // which may be in use
                CompletableFuture.delayedExecutor(CONNECT.toMillis(), TimeUnit.MILLISECONDS).execute(connection::closeAsync);
            }
        }
    }

    private static void drop(Map<String, StatefulRedisConnection<String, String>> open) {
        open.values().removeIf(connection -> {
            connection.closeAsync();
            return true;
        });
    }

    /** A connection on which anything went wrong is not used again. */
    @Override
    public List<Object> send(String node, List<List<String>> batch, Use use, Duration timeout) {
        Map<String, StatefulRedisConnection<String, String>> its = open.get(use);
        StatefulRedisConnection<String, String> connection = its.computeIfAbsent(node, this::connect);
        var futures = new ArrayList<Future<List<Object>>>();
        var replies = new ArrayList<Object>();
        boolean whole = false;
        try {
            for (List<String> words : batch) {
                var args = new CommandArgs<>(StringCodec.UTF8);
                words.subList(1, words.size()).forEach(args::add);
                futures.add(connection.async().dispatch(new Name(words.get(0)), new NestedMultiOutput<>(StringCodec.UTF8), args));
            }
            long end = System.nanoTime() + timeout.toNanos();
            for (Future<List<Object>> future : futures) {
                replies.add(read(future, end - System.nanoTime()));
            }
            whole = replies.stream().noneMatch(r -> r instanceof LockException.Refused refused && refused.code().equals("READONLY"));
            return replies;
        } finally {
            if (!whole) { // also one to a server that is no longer a primary
                its.remove(node, connection);
                if (connection.isOpen()) {
                    connection.closeAsync();
                }
            }
        }
    }

    private StatefulRedisConnection<String, String> connect(String node) {
        int colon = node.lastIndexOf(':');
        RedisURI at = node.equals(ONE) ? uri
            : RedisURI.builder(uri).withHost(node.substring(0, colon)).withPort(Integer.parseInt(node.substring(colon + 1))).build();
        return inTime(client.connectAsync(StringCodec.UTF8, at), late -> late.closeAsync());
    }

    /** A server may accept a connection and not answer: what comes too late is dropped. */
    private static <T> T inTime(CompletionStage<T> outcome, Consumer<T> throwAway) {
        var future = outcome.toCompletableFuture();
        try {
            return future.get(CONNECT.toMillis(), TimeUnit.MILLISECONDS);
        } catch (ExecutionException | TimeoutException e) {
            future.thenAccept(throwAway);
            for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                if (cause instanceof RedisCommandExecutionException refused) { // a wrong password, say
                    throw new LockException.Refused(refused.getMessage());
                }
            }
            throw new RedisConnectionException("no connection in time", e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new RedisConnectionException("the locks close", e);
        }
    }

    /** An array is the list, and what is no array is alone in it. */
    private static Object read(Future<List<Object>> future, long nanos) {
        try {
            List<Object> reply = future.get(Math.max(1, nanos), TimeUnit.NANOSECONDS);
            return reply == null || reply.isEmpty() ? null : reply.size() == 1 ? reply.get(0) : reply;
        } catch (ExecutionException e) {
            if (e.getCause() instanceof RedisCommandExecutionException refused) {
                return new LockException.Refused(refused.getMessage());
            }
            throw new RedisConnectionException("the connection broke", e.getCause());
        } catch (TimeoutException e) {
            throw new RedisConnectionException("the server does not answer", e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new RedisConnectionException("the locks close", e);
        }
    }

    private record Name(String name) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return name.getBytes(StandardCharsets.US_ASCII);
        }
    }

    @Override
    public void close() {
        client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        if (ownsCluster) {
            cluster.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        }
    }
}
