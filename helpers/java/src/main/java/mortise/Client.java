package mortise;

import java.time.Duration;
import java.util.List;

/**
 * What the locks need from a Redis client; {@link mortise.jedis.JedisClient} and {@link mortise.lettuce.LettuceClient} are
 * two. The second word of every command is the key that it is routed by.
 *
 * <p>A reply is a {@code Long}, a {@code String}, {@code null}, a {@code List} of these, or a {@link LockException.Refused}
 * where the server answered an error. That one is thrown where the server refused the connection, so that nothing was sent; any
 * other exception means that the outcome of the commands is unknown.
 */
public interface Client extends AutoCloseable {
    /** What a connection is for: each use has its own, because mail blocks its connection, and so do replicas that confirm renewals. */
    enum Use { COMMANDS, MAIL, RENEWALS }

    /** Names the server that serves the key. */
    String node(String key);

    /**
     * Sends the commands to that server in one pipeline, once, over a connection for that use. After an exception, or where the server replied READONLY, the next call has a new connection: the address may be another
     * server's by now.
     */
    List<Object> send(String node, List<List<String>> commands, Use use, Duration timeout);

    /** Connects to that server anew from the next calls on: its address may lead to another one by now. What is in flight goes on. */
    default void reconnect(String node) {}

    /** Finds out again which server serves which key. */
    void refresh();

    @Override
    void close();
}
