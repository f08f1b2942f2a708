package mortise;

import java.time.Duration;
import java.util.List;

/** A connection to a server for one use: opened when it is needed, and anew after anything went wrong on it. */
final class Link implements AutoCloseable {
    private static final Duration IDLE = Duration.ofSeconds(1); // without a reply: then PING shows whether the server has closed it

    private final Client client;
    private final String server;
    private volatile Client.Channel open; // null while there is none
    private volatile boolean stale; // not to be used again
    private long used; // when the last reply came

    Link(Client client, String server) {
        this.client = client;
        this.server = server;
    }

    List<Object> send(List<List<String>> commands, Duration timeout) {
        Client.Channel connection = whole();
        if (connection == null) {
            close();
            stale = false;
            try {
                connection = client.connect(server);
            } catch (RuntimeException | Error e) {
                throw e instanceof LockException known ? known : new LockException.Unsent("no connection to the server", e);
            }
            open = connection;
        }
        return exchange(connection, commands, timeout);
    }

    /** The connection, if it can be used as far as is known. */
    Client.Channel whole() {
        Client.Channel connection = open;
        if (connection != null && !stale && Clock.SYSTEM.now() - used > IDLE.toMillis()) {
            try {
                exchange(connection, List.of(List.of("PING")), IDLE);
            } catch (RuntimeException e) {
                // It is closed, at no command's cost.
            }
        }
        return stale ? null : open;
    }

    private List<Object> exchange(Client.Channel connection, List<List<String>> commands, Duration timeout) {
        boolean whole = false;
        try {
            List<Object> replies = connection.send(commands, timeout);
            used = Clock.SYSTEM.now();
            whole = replies.stream().noneMatch(reply -> reply instanceof LockException.Refused refused && refused.code().equals("READONLY"));
            return replies;
        } finally {
            if (!whole) { // also one to a server that is no longer a primary
                close();
            }
        }
    }

    /** Connects anew from the next call on: the address may lead to another server by now. What is in flight goes on. */
    void reconnect() {
        stale = true;
    }

    @Override
    public void close() {
        Client.Channel connection = open;
        open = null;
        if (connection != null) {
            connection.close();
        }
    }
}
