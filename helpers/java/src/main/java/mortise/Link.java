package mortise;

import java.time.Duration;
import java.util.List;

/** A connection to a server for one use: opened when it is needed, and anew after anything went wrong on it. */
final class Link implements AutoCloseable {
    private final Client client;
    private final String server;
    private volatile Client.Channel open; // null while there is none
    private volatile boolean stale; // not to be used again

    Link(Client client, String server) {
        this.client = client;
        this.server = server;
    }

    List<Object> send(List<List<String>> commands, Duration timeout) {
        if (stale) {
            close();
            stale = false;
        }
        Client.Channel connection = open;
        if (connection == null) {
            connection = client.connect(server);
            open = connection;
        }
        boolean whole = false;
        try {
            List<Object> replies = connection.send(commands, timeout);
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
