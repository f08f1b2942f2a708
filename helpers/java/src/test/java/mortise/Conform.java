package mortise;

import io.lettuce.core.RedisURI;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.FutureTask;
import mortise.jedis.JedisClient;
import mortise.lettuce.LettuceClient;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;

/** Java's worker of the conformance run: it carries out the orders that come line by line ({@code helpers/README.md}). */
public final class Conform {
    private static final int ROUNDS = 5; // of each task, of one object that tasks share
    private static final int POOL = 3; // permits

    private final Locks locks;
    private final Map<String, Held> taken = new ConcurrentHashMap<>();
    private final Map<String, CompletableFuture<String>> blocks = new ConcurrentHashMap<>(); // what ends each

    /** The error of a block itself. */
    private static final class BodyException extends Exception {}

    private Conform(Client client) {
        locks = Locks.builder(client).replicas(Integer.parseInt(System.getenv("REPLICAS"))).build();
    }

    public static void main(String[] args) throws Exception {
        var worker = new Conform(client(args[0], Integer.parseInt(args[1]), args.length > 2 ? args[2] : null));
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            List<String> words = List.of(line.split(" "));
            if (words.get(0).equals("exit")) {
                say(words.get(1), "leaves the hold");
                return;
            }
            EachClient.start(() -> {
                worker.carryOut(words.get(0), words.get(1), words.subList(2, words.size()));
                return null;
            });
        }
        worker.locks.close();
    }

    private static Client client(String name, int port, String password) {
        if (name.equals("jedis")) {
            return JedisClient.of(new HostAndPort("127.0.0.1", port), DefaultJedisClientConfig.builder().password(password).build());
        }
        var uri = RedisURI.builder().withHost("127.0.0.1").withPort(port);
        return LettuceClient.of((password == null ? uri : uri.withPassword(password.toCharArray())).build());
    }

    private static synchronized void say(String handle, String answer) {
        System.out.println(handle + " " + answer.replace('\n', ' '));
    }

    private void carryOut(String verb, String handle, List<String> words) throws Exception {
        String answer;
        try {
            answer = switch (verb) {
                case "acquire" -> acquire(handle, locks.take(key(words)), words);
                case "fixed" -> acquire(handle, locks.take(key(words)).fixed(), words);
                case "extend" -> extend(handle, words);
                case "held" -> taken.get(handle).isHeld() ? "held" : "lost";
                case "release" -> release(handle);
                case "block" -> block(handle, words);
                case "share" -> share(words);
                default -> {
                    ending(handle).complete(verb);
                    yield null;
                }
            };
        } catch (LockException.Busy e) {
            answer = "busy";
        } catch (LockException.Lost e) {
            answer = "lost";
        } catch (LockException.Unanswered e) {
            answer = "unreachable " + e.getMessage();
        } catch (LockException e) {
            answer = "refused " + e.getMessage();
        }
        if (answer != null) {
            say(handle, answer);
        }
    }

    private static Duration millis(String word) {
        return Duration.ofMillis(Long.parseLong(word));
    }

    private static String key(List<String> words) {
        return words.get(0).split(",")[0];
    }

    private String acquire(String handle, Locks.Request request, List<String> words) throws InterruptedException {
        String[] keys = words.get(0).split(",", 2);
        request.lease(millis(words.get(1)));
        if (!words.get(2).equals("ever")) {
            request.wait(millis(words.get(2)));
        }
        taken.put(handle, keys.length > 1 ? request.acquireWith(keys[1].split(",")) : request.acquire());
        return "granted";
    }

    private String extend(String handle, List<String> words) {
        taken.get(handle).extend(millis(words.get(0)));
        return "extended";
    }

    private String release(String handle) {
        taken.get(handle).unlock();
        return "released";
    }

    private CompletableFuture<String> ending(String handle) {
        return blocks.computeIfAbsent(handle, none -> new CompletableFuture<>());
    }

    private String block(String handle, List<String> words) throws InterruptedException {
        try (Held held = locks.take(words.get(0)).lease(millis(words.get(1))).acquire()) {
            say(handle, "inside");
            if (ending(handle).join().equals("fail")) {
                throw new BodyException();
            }
        } catch (LockException.Lost e) {
            return "caught lost";
        } catch (BodyException e) {
            return List.of(e.getSuppressed()).stream().anyMatch(LockException.Lost.class::isInstance) ? "caught body with lost" : "caught body";
        }
        return "left";
    }

    private String share(List<String> words) throws Exception {
        var pair = locks.readWriteLock(words.get(1));
        var permits = locks.semaphore(words.get(1), POOL);
        int[] counts = new int[3]; // inside, most, entered
        var tasks = new ArrayList<FutureTask<Void>>();
        for (int i = 0; i < Integer.parseInt(words.get(2)); i++) {
            tasks.add(EachClient.start(() -> {
                for (int round = 0; round < ROUNDS; round++) {
                    switch (words.get(0)) {
                        case "lock" -> pair.writeLock().lock();
                        case "read" -> pair.readLock().lock();
                        default -> permits.acquire();
                    }
                    count(counts, +1);
                    Thread.sleep(1);
                    count(counts, -1);
                    switch (words.get(0)) {
                        case "lock" -> pair.writeLock().unlock();
                        case "read" -> pair.readLock().unlock();
                        default -> permits.release();
                    }
                }
                return null;
            }));
        }
        for (var task : tasks) {
            task.get();
        }
        return "done " + counts[2] + " " + counts[1];
    }

    private static synchronized void count(int[] counts, int more) {
        counts[0] += more;
        counts[1] = Math.max(counts[1], counts[0]);
        counts[2] += Math.max(more, 0);
    }
}
