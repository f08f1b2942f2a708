package mortise;

import java.time.Duration;
import java.util.List;

/** What the locks need from a Redis client; {@link mortise.jedis.JedisClient} and {@link mortise.lettuce.LettuceClient} are two. */
public interface Client extends AutoCloseable {
    /** Names the server that serves the key, as far as is known. Once it is known, this waits for nothing. */
    String node(String key);

    /**
     * Opens another connection to that server.
     *
     * @throws LockException.Refused if the server refuses it, because of a wrong password, say
     */
    Channel connect(String node);

    /** Finds out again which server serves which key. */
    void refresh();

    @Override
    void close();

    /** A connection that one thread uses. */
    interface Channel extends AutoCloseable {
        /**
         * Sends the commands in one pipeline, once, and returns the replies. A reply is a {@code Long}, a {@code String}, {@code null}, a
         * {@code List} of these, or a {@link LockException.Refused} where the server answered an error. After an exception the outcome of
         * the commands is unknown, and the connection is not used again.
         */
        List<Object> send(List<List<String>> commands, Duration timeout);

        /** Closes it, in any thread: a {@link #send} that waits ends. */
        @Override
        void close();
    }
}
