import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** The Java libraries, one at a time: benches/peers/README.md says what a driver does. */
public final class Driver {
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

    public static void main(String[] args) throws IOException, InterruptedException {
        var numbers = IntStream.range(1, args.length).map(at -> Integer.parseInt(args[at])).toArray();
        int port = numbers[0], seconds = numbers[1], count = numbers[2], keys = numbers[3];
        int hold = numbers[4], think = numbers[5], writers = numbers[6], permits = numbers[7], most = numbers[8];
        var contender = Contenders.of(args[0], port, writers > 0, permits, most > 0);
        for (int n = 0; n < 3_000; n++) { // until most of it is compiled
            contender.take(List.of("warm"), true).run();
        }
        System.out.println("ready");
        System.in.read();

        var workers = IntStream.range(0, count).mapToObj(n -> new Worker()).toList();
        for (int n = 0; n < count; n++) {
            int own = n;
            var choice = most > 0
                ? Stream.generate(() -> some(keys, most)) : Stream.iterate(own, number -> number + count).map(number -> List.of("key:" + number % keys));
            boolean write = writers == 0 || own < writers;
            var thread = new Thread(null, () -> work(contender, workers.get(own), choice, write, hold, think), "worker", 256 << 10);
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

    /** Two keys at least, and {@code most} at most. */
    private static List<String> some(int keys, int most) {
        var dice = ThreadLocalRandom.current();
        return dice.ints(0, keys).distinct().limit(dice.nextInt(2, most + 1)).mapToObj(number -> "key:" + number).toList();
    }

    private static void work(Contenders.Contender contender, Worker worker, Stream<List<String>> choice, boolean write, int hold, int think) {
        for (var each = choice.iterator(); ; ) {
            var keys = each.next();
            try {
                worker.begins();
                Runnable release = contender.take(keys, write);
                worker.entered();
                pause(hold);
                release.run();
                pause(think);
            } catch (InterruptedException over) {
                Thread.currentThread().interrupt();
                return;
            }
        }
    }

    private static void pause(int ms) throws InterruptedException {
        if (ms > 0) {
            Thread.sleep(ms);
        }
    }
}
