package mortise;

import io.lettuce.core.RedisURI;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import mortise.jedis.JedisClient;
import mortise.lettuce.LettuceClient;

/**
 * Java's worker in {@code make -C verify interop}: threads that compete with programs in other languages for one lock, for the permits of one
 * semaphore and for several keys at once, and record when they were certainly inside. Arguments: jedis|lettuce PORT KEY SECONDS LEDGER.
 */
final class Interop {
    private static final int LIMIT = 5; // the permits of the semaphore

    /** A hold, and what the ledger has after the name: nothing for the lock, `read`, a number of permits, or the numbers of several keys. */
    private record Inside(AutoCloseable hold, BooleanSupplier held, long token, String share) {
        boolean writes() {
            return share.isEmpty();
        }
    }

    /** Acquires something in each round. */
    private interface Task {
        Inside take(int round) throws InterruptedException;
    }

    private final Locks locks;
    private final String key;
    private final String who;
    private final FileChannel ledger;
    private final AtomicLong count = new AtomicLong();

    private Interop(Locks locks, String key, String who, FileChannel ledger) {
        this.locks = locks;
        this.key = key;
        this.who = who;
        this.ledger = ledger;
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[1]);
        var over = new CountDownLatch(1);
        Locks.daemon("input", () -> {
            try {
                System.in.transferTo(OutputStream.nullOutputStream());
            } catch (IOException e) {
                // it ends as well
            }
            over.countDown();
        }).start();
        Locks.daemon("limit", () -> {
            pause((long) (Double.parseDouble(args[3]) * 1e9));
            over.countDown();
        }).start();
        Client client = switch (args[0]) {
            case "jedis" -> JedisClient.of("127.0.0.1", port);
            case "lettuce" -> LettuceClient.of(RedisURI.create("127.0.0.1", port));
            default -> throw new IllegalArgumentException("no worker has the name " + args[0]);
        };
        try (var ledger = FileChannel.open(Path.of(args[4]), StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            var locks = Locks.builder(client).replicas(Integer.parseInt(System.getenv().getOrDefault("REPLICAS", "0"))).build();
            var worker = new Interop(locks, args[2], args[0] + ":" + ProcessHandle.current().pid(), ledger);
            var threads = new ArrayList<Thread>();
            Task alone = worker::alone, reading = worker::reading, permits = worker::permits, several = worker::several;
            for (Task task : List.of(alone, alone, alone, alone, reading, reading, permits, permits, several, several)) {
                var thread = new Thread(() -> worker.work(over, task));
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
            worker.locks.close();
            System.out.println("done " + worker.count.get());
        }
    }

    private void work(CountDownLatch over, Task task) {
        for (int round = 0; over.getCount() > 0; round++) {
            try {
                Inside inside = task.take(round);
                try (AutoCloseable hold = inside.hold) {
                    section(inside);
                    if (inside.writes() && inside.token % 4 == 0) {
                        handOver((Held) hold);
                    }
                }
            } catch (LockException.Busy | LockException.Lost e) {
                // the next round
            } catch (LockException e) {
                pause(20_000_000);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }
    }

    private Inside alone(int round) throws InterruptedException {
        return inside(with(locks.take(key)).acquire(), "");
    }

    private Inside reading(int round) throws InterruptedException {
        return inside(with(locks.take(key).read()).acquire(), " read");
    }

    private Inside permits(int round) throws InterruptedException {
        int permits = 1 + round % 3;
        return inside(with(locks.semaphore(key + ":permits", LIMIT).take(permits)).acquire(), " " + permits);
    }

    private Inside several(int round) throws InterruptedException {
        int first = round % 3, second = (round + 1) % 3;
        var keys = List.of(key, key + ":1", key + ":2");
        Held both = with(locks.take(keys.get(first))).acquireWith(keys.get(second));
        return new Inside(both, both::isHeld, both.token(), " " + first + "," + second);
    }

    private static Locks.Request with(Locks.Request request) {
        return request.lease(Duration.ofSeconds(1)).wait(Duration.ofSeconds(5));
    }

    private static Inside inside(Held held, String share) {
        return new Inside(held, held::isHeld, held.token(), share);
    }

    /** What it writes is certain: it reads the clock first, and then checks the lock. */
    private void section(Inside inside) throws IOException {
        long last = System.nanoTime();
        if (!inside.held.getAsBoolean()) {
            return;
        }
        write("enter", inside, last);
        count.incrementAndGet();
        if (inside.writes()) {
            guarded((Held) inside.hold);
        }
        for (int i = 0; i < 3; i++) {
            pause(700_000);
            long at = System.nanoTime();
            if (!inside.held.getAsBoolean()) {
                break;
            }
            last = at;
        }
        write("leave", inside, last);
    }

    /** Passes the lock on to a name, takes it over from there, and is inside again. */
    private void handOver(Held held) throws InterruptedException, IOException {
        String heir = who + ":" + held.token();
        long token = held.passTo(heir, Duration.ofSeconds(1));
        try (Held taken = locks.take(key).lease(Duration.ofSeconds(1)).takeOver(heir, token)) {
            section(inside(taken, ""));
        }
    }

    /** Appends to a list under {@code LOCK.GUARD}. */
    private void guarded(Held held) {
        var words = held.guard("RPUSH", "list:{" + key + "}", "write:" + held.token() + ":" + who.substring(0, who.indexOf(':')));
        locks.node(key).send(words).join(); // an error is ignored: the lock is lost, or the reply
    }

    private void write(String what, Inside inside, long at) throws IOException {
        String line = what + " " + inside.token + " " + at + " " + who + inside.share + "\n";
        ledger.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.US_ASCII)));
    }

    private static void pause(long nanos) {
        try {
            Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
