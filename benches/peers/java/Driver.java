import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.Lock;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import mortise.Locks;
import mortise.jedis.JedisClient;
import org.redisson.Redisson;
import org.redisson.config.Config;

/** The Java libraries, one at a time: benches/peers/README.md says what a driver does. */
public final class Driver {
    /** The lock of a key, for one mode: write where there is only one. */
    private interface Contender {
        Lock lock(String key, boolean write);
    }

    private static final class Worker {
        private final List<Long> waits = new ArrayList<>();
        private long since;

        synchronized void begins() {
            since = System.nanoTime();
        }

        synchronized void entered() {
            waits.add((System.nanoTime() - since) / 1000);
            since = 0;
        }

        synchronized int served() {
            return waits.size();
        }

        /** What goes on counts as far as it has come. */
        synchronized String told() {
            var all = new ArrayList<>(waits);
            if (since != 0) {
                all.add((System.nanoTime() - since) / 1000);
            }
            return all.toString();
        }
    }

    private static Contender contender(String name, int port, boolean modes) {
        if (name.equals("redisson")) {
            var config = new Config();
            config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
            var redisson = Redisson.create(config);
            if (!modes) {
                return (key, write) -> redisson.getLock(key);
            }
            return (key, write) -> {
                var both = redisson.getReadWriteLock(key);
                return write ? both.writeLock() : both.readLock();
            };
        }
        var locks = new Locks(JedisClient.of("127.0.0.1", port));
        return (key, write) -> write ? locks.lock(key) : locks.readWriteLock(key).readLock();
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        var numbers = IntStream.range(1, args.length).map(at -> Integer.parseInt(args[at])).toArray();
        int port = numbers[0], seconds = numbers[1], count = numbers[2], keys = numbers[3];
        int hold = numbers[4], think = numbers[5], writers = numbers[6];
        var contender = contender(args[0], port, writers > 0);
        for (int n = 0; n < 3_000; n++) { // until most of it is compiled
            var lock = contender.lock("warm", true);
            lock.lock();
            lock.unlock();
        }
        System.out.println("ready");
        System.in.read();

        var workers = IntStream.range(0, count).mapToObj(n -> new Worker()).toList();
        for (int n = 0; n < count; n++) {
            int own = n;
            var thread = new Thread(null, () -> work(contender, workers.get(own), own, count, keys, hold, think, writers), "worker", 256 << 10);
            thread.setDaemon(true);
            thread.start();
        }
        Thread.sleep(Duration.ofSeconds(seconds).toMillis());
        var served = workers.stream().map(Worker::served).toList();
        System.out.println("{\"served\": " + served + ", \"waits\": "
            + workers.stream().map(Worker::told).collect(Collectors.joining(", ", "[", "]")) + "}");
        System.in.read();
        Runtime.getRuntime().halt(0);
    }

    private static void work(Contender contender, Worker worker, int own, int count, int keys, int hold, int think, int writers) {
        try {
            for (int n = own; ; n += count) {
                var lock = contender.lock("key:" + n % keys, writers == 0 || own < writers);
                worker.begins();
                lock.lock();
                worker.entered();
                pause(hold);
                lock.unlock();
                pause(think);
            }
        } catch (InterruptedException over) {
            Thread.currentThread().interrupt();
        }
    }

    private static void pause(int ms) throws InterruptedException {
        if (ms > 0) {
            Thread.sleep(ms);
        }
    }
}
