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
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import mortise.jedis.JedisClient;
import mortise.lettuce.LettuceClient;

/**
 * Java's worker in {@code make interop}: threads that contend for one lock, and for the permits of one semaphore, with programs
 * in other languages, and write down when they were inside for certain. Arguments: jedis|lettuce PORT KEY SECONDS LEDGER.
 */
final class Interop {
    private static final int ALONE = 4; // threads at the lock
    private static final int BESIDE = 2; // at the semaphore
    private static final int LIMIT = 5; // its permits

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
            var worker = new Interop(new Locks(client), args[2], args[0] + ":" + ProcessHandle.current().pid(), ledger);
            var threads = new ArrayList<Thread>();
            for (int i = 0; i < ALONE + BESIDE; i++) {
                boolean alone = i < ALONE;
                var thread = new Thread(() -> worker.work(over, alone));
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

    private void work(CountDownLatch over, boolean alone) {
        for (int round = 0; over.getCount() > 0; round++) {
            try {
                section(alone ? 0 : 1 + round % 3);
            } catch (LockException.Busy | LockException.Lost e) {
                // the next round
            } catch (LockException e) {
                pause(20_000_000);
            } catch (IOException | InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    /**
     * Enters once, if it can, with that many permits; with none by the lock. What is written is proven: the clock is read first, and
     * then the lock is asked.
     */
    private void section(int permits) throws InterruptedException, IOException {
        Locks.Request request = permits == 0 ? locks.take(key) : locks.semaphore(key + ":permits", LIMIT).take(permits);
        try (Held held = request.lease(Duration.ofSeconds(1)).wait(Duration.ofSeconds(5)).acquire()) {
            long last = System.nanoTime();
            if (!held.isHeld()) {
                return;
            }
            write("enter", held, last, permits);
            count.incrementAndGet();
            for (int i = 0; i < 3; i++) {
                pause(700_000);
                long at = System.nanoTime();
                if (!held.isHeld()) {
                    break;
                }
                last = at;
            }
            write("leave", held, last, permits);
        }
    }

    private void write(String what, Held held, long at, int permits) throws IOException {
        String line = what + " " + held.token() + " " + at + " " + who + (permits == 0 ? "" : " " + permits) + "\n";
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
