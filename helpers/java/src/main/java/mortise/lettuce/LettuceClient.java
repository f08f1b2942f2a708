package mortise.lettuce;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.AsyncCloseable;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Stream;
import mortise.Client;
import mortise.LockException;

/**
 * Lettuce: one server, Sentinel or a cluster. It opens connections of its own, which do not reconnect by themselves: so nothing is
 * replayed, and nobody else's commands wait behind one that blocks.
 */
public final class LettuceClient implements Client {
    /** How long a server, or a sentinel, may take to be connected to, or to answer about others. */
    private static final Duration CONNECT = Duration.ofSeconds(2);
    /** The same before the first connection, for which much is loaded and started. */
    private static final Duration FIRST = Duration.ofSeconds(10);
    /** For how long a search that failed is not repeated for each lock: one after the other, these would wait too long. */
    private static final Duration PAUSE = Duration.ofSeconds(1);

    private record Failed(RuntimeException why, long at) {}

    private final RedisClient client;
    private final RedisURI uri;
    private final RedisClusterClient cluster; // null without one
    private final boolean ownsCluster;
    private volatile String primary; // that Sentinel named last
    private volatile Failed failed; // the last search by sentinels that failed, or null
    private volatile Duration limit = FIRST;

    private LettuceClient(RedisClient client, ClientOptions options, RedisURI uri, RedisClusterClient cluster, boolean ownsCluster) {
        this.client = client;
        this.uri = uri;
        this.cluster = cluster;
        this.ownsCluster = ownsCluster;
        client.setOptions(options.mutate()
            .autoReconnect(false)
            .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
            .timeoutOptions(TimeoutOptions.builder().timeoutCommands(false).build()) // each call has a limit of its own
            .build());
    }

    /** One server, or with {@code redis-sentinel://} the primary that the sentinels name. */
    public static LettuceClient of(RedisURI uri) {
        return new LettuceClient(RedisClient.create(), ClientOptions.create(), uri, null, false);
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
        List<RedisURI> limited = Stream.of(nodes).map(RedisURI::builder).map(node -> node.withTimeout(FIRST).build()).toList();
        return new LettuceClient(RedisClient.create(), ClientOptions.create(), nodes[0], RedisClusterClient.create(limited), true);
    }

    /**
     * The cluster of the program's client, which has to stay open for as long as the locks: it knows the nodes. The address of one of these
     * says with which user, password and TLS to connect to all, because Lettuce does not show those of the client.
     */
    public static LettuceClient cluster(RedisClusterClient like, RedisURI node) {
        return new LettuceClient(RedisClient.create(like.getResources()), like.getOptions(), node, like, false);
    }

    /** The same for a cluster that needs no user, password or TLS. */
    public static LettuceClient cluster(RedisClusterClient like) {
        return cluster(like, like.getPartitions().getPartition(0).getUri());
    }

    @Override
    public String node(String key) {
        if (cluster == null) {
            if (uri.getSentinelMasterId() == null) {
                return uri.getHost() + ":" + uri.getPort();
            } else if (primary == null) {
                Failed last = failed;
                if (last != null && System.nanoTime() - last.at < PAUSE.toNanos()) {
                    throw last.why;
                }
                refresh();
            }
            return primary;
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
            inTime(cluster.refreshPartitionsAsync(), FIRST); // one at a time
        } else if (uri.getSentinelMasterId() != null) {
            try {
                primary = namedBySentinels();
            } catch (RuntimeException e) {
                failed = new Failed(e, System.nanoTime());
                throw e;
            }
        }
    }

    /** The primary, by the first sentinel that names it. One that is silent leaves the others time, also in a first search. */
    private String namedBySentinels() {
        List<RedisURI> sentinels = uri.getSentinels().isEmpty() ? List.of(uri) : uri.getSentinels();
        Duration each = Collections.max(List.of(CONNECT, limit.dividedBy(sentinels.size())));
        RuntimeException problem = null;
        for (RedisURI sentinel : sentinels) {
            try (var asked = inTime(client.connectSentinelAsync(StringCodec.UTF8, sentinel), each)) {
                var named = (InetSocketAddress) inTime(asked.async().getMasterAddrByName(uri.getSentinelMasterId()), CONNECT);
                if (named != null) {
                    return named.getHostString() + ":" + named.getPort();
                }
                problem = new RedisConnectionException("no sentinel names the primary of " + uri.getSentinelMasterId());
            } catch (RedisConnectionException e) {
                problem = e;
            } catch (LockException.Refused e) {
                problem = problem == null ? e : problem; // while one of them may still name it, all are asked again
            }
        }
        throw problem;
    }

    @Override
    public Channel connect(String node) {
        int colon = node.lastIndexOf(':');
        RedisURI at = cluster == null && primary == null ? uri
            : RedisURI.builder(uri).withHost(node.substring(0, colon)).withPort(Integer.parseInt(node.substring(colon + 1))).build();
        var opened = new Opened(inTime(client.connectAsync(StringCodec.UTF8, at), limit));
        limit = CONNECT;
        return opened;
    }

    /** A server may accept a connection and not answer: one that comes too late is closed. */
    private static <T> T inTime(CompletionStage<T> outcome, Duration limit) {
        var future = outcome.toCompletableFuture();
        try {
            return future.get(limit.toNanos(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException | TimeoutException e) {
            for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                if (cause instanceof RedisCommandExecutionException refused) { // because of a wrong password, say
                    throw new LockException.Refused(refused.getMessage());
                }
            }
            future.thenAccept(late -> {
                if (late instanceof AsyncCloseable connection) {
                    connection.closeAsync();
                }
            });
            throw new RedisConnectionException("no answer in time, or no connection", e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new RedisConnectionException("the locks close", e);
        }
    }

    @Override
    public void close() {
        client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        if (ownsCluster) {
            cluster.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        }
    }

    private record Opened(StatefulRedisConnection<String, String> connection) implements Channel {
        @Override
        public List<Object> send(List<List<String>> commands, Duration timeout) {
            var futures = new ArrayList<RedisFuture<List<Object>>>();
            for (List<String> words : commands) {
                var args = new CommandArgs<>(StringCodec.UTF8);
                words.subList(1, words.size()).forEach(args::add);
                ProtocolKeyword name = () -> words.get(0).getBytes(StandardCharsets.US_ASCII);
                futures.add(connection.async().dispatch(name, new NestedMultiOutput<>(StringCodec.UTF8), args));
            }
            long end = System.nanoTime() + timeout.toNanos();
            var replies = new ArrayList<Object>();
            for (RedisFuture<List<Object>> future : futures) {
                replies.add(read(future, Duration.ofNanos(end - System.nanoTime())));
            }
            return replies;
        }

        /** An array is the list, and what is no array is alone in it. */
        private static Object read(RedisFuture<List<Object>> future, Duration limit) {
            try {
                List<Object> reply = inTime(future, limit);
                return reply == null || reply.isEmpty() ? null : reply.size() == 1 ? reply.get(0) : reply;
            } catch (LockException.Refused e) {
                return e;
            }
        }

        @Override
        public void close() {
            connection.closeAsync(); // also one that the server closed: the client has it until then
        }
    }
}
