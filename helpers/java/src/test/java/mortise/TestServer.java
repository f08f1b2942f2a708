package mortise;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.SafeEncoder;

/** A real server with the module. */
final class TestServer implements AutoCloseable {
    private static final Queue<ServerSocket> CLAIMS = new ConcurrentLinkedQueue<>(); // held until the process ends
    final int port;
    private final List<String> command;
    private Process process;

    /** A server with these further lines of redis.conf. */
    TestServer(String... more) {
        this(List.of(more), null, true);
    }

    /** A server that does not know locks. */
    static TestServer withoutModule() {
        return new TestServer(List.of(), null, false);
    }

    /** A sentinel with these further lines of sentinel.conf that watches the primary as "mymaster". */
    static TestServer sentinel(TestServer primary, String... more) {
        return new TestServer(List.of("--sentinel"), "sentinel monitor mymaster 127.0.0.1 " + primary.port
            + " 1\nsentinel down-after-milliseconds mymaster 60000\n" + String.join("\n", more) + "\n", false);
    }

    private TestServer(List<String> more, String conf, boolean hasModule) {
        try {
            var dir = Files.createTempDirectory("mortise");
            port = claimPort();
            command = new ArrayList<>(List.of(System.getenv().getOrDefault("MORTISE_SERVER", "redis-server")));
            if (conf != null) {
                command.add(Files.writeString(dir.resolve("sentinel.conf"), conf).toString());
            } else {
                command.addAll(List.of("--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "yes"));
            }
            if (hasModule) {
                command.addAll(List.of("--loadmodule",
                    System.getenv().getOrDefault("MORTISE_MODULE", Path.of("../../target/release/libmortise.so").toAbsolutePath().toString())));
            }
            command.addAll(more);
            command.addAll(List.of("--port", "" + port, "--dir", dir.toString()));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        start();
    }

    /**
     * A port that no other test of any language gets, even while its server is down: the process that listens 2,500 above owns it.
     * It is below the range of outgoing connections, and a cluster's bus is 10,000 above.
     */
    private static int claimPort() throws IOException {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(10_000, 12_500);
            try {
                CLAIMS.add(listen(port + 2_500));
                listen(port).close();
                return port;
            } catch (BindException e) {
                // another process has it
            }
        }
    }

    private static ServerSocket listen(int port) throws IOException {
        return new ServerSocket(port, 1, InetAddress.getByName("127.0.0.1"));
    }

    void start() {
        try {
            process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        eventually("the server answers", () -> {
            if (!process.isAlive()) {
                throw new AssertionError("the server ended: " + command);
            }
            try {
                return "PONG".equals(run("PING"));
            } catch (JedisDataException e) {
                return e.getMessage().startsWith("NOAUTH");
            } catch (JedisConnectionException e) {
                return false;
            }
        });
    }

    void kill() {
        process.destroyForcibly();
        process.onExit().join();
    }

    /** Stops the server without closing anything, until the returned object is closed. */
    AutoCloseable freeze() {
        signal("STOP");
        return () -> signal("CONT");
    }

    private void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, "" + process.pid()).start().waitFor();
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    Object run(String... words) {
        try (var jedis = new Jedis("127.0.0.1", port, 10_000)) {
            ProtocolCommand name = () -> SafeEncoder.encode(words[0]);
            Object reply = jedis.sendCommand(name, List.of(words).subList(1, words.length).toArray(String[]::new));
            return SafeEncoder.encodeObject(reply);
        }
    }

    boolean isFree(String key) {
        return run("LOCK.INFO", key) == null;
    }

    long waiters(String key) {
        var info = (List<?>) run("LOCK.INFO", key);
        return info == null ? 0 : (Long) info.get(info.indexOf("waiters") + 1);
    }

    long calls(String name) {
        return ((String) run("INFO", "commandstats")).lines()
            .filter(line -> line.startsWith("cmdstat_" + name + ":calls="))
            .mapToLong(line -> Long.parseLong(line.replaceAll(".*:calls=(\\d+).*", "$1"))).sum();
    }

    long info(String field) {
        return Long.parseLong(text(field));
    }

    String text(String field) {
        return ((String) run("INFO", "everything")).lines().filter(line -> line.startsWith(field + ":"))
            .map(line -> line.substring(field.length() + 1).trim()).findFirst().orElseThrow();
    }

    static void eventually(String what, BooleanSupplier holds) {
        long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > limit) {
                throw new AssertionError("never came true: " + what);
            }
            try {
                Thread.sleep(10);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    @Override
    public void close() {
        kill();
    }
}
