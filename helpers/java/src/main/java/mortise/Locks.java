package mortise;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Takes locks over one {@link Client}. Make one for the program, share it, and close it in the end.
 *
 * <pre>{@code
 * try (var locks = new Locks(JedisClient.of("127.0.0.1", 6379))) {
 *     try (Held held = locks.take("stock:17").wait(Duration.ofSeconds(5)).acquire()) {
 *         sell(held.token());
 *     }
 * }
 * }</pre>
 *
 * {@link #lock} and {@link #readWriteLock} are the same as {@code java.util.concurrent.locks}, re-entrant by thread.
 */
public final class Locks implements AutoCloseable {
    static final long FOREVER = Long.MAX_VALUE;
    static final long FIRST_PAUSE = 20;
    static final long LAST_PAUSE = 500;
    /** For how long what still arrives under a name that was left changes nothing. */
    private static final String AWAY = "60000";
    private static final Duration LEASE = Duration.ofSeconds(30);

    final Client client;
    final ScheduledThreadPoolExecutor timer = executor("mortise-timer");
    volatile boolean answered; // a server ever has
    private final ScheduledThreadPoolExecutor janitor = executor("mortise-janitor");
    private final String uuid = UUID.randomUUID().toString();
    private final AtomicLong count = new AtomicLong();
    private final Map<String, Node> nodes = new ConcurrentHashMap<>();
    private final Set<Held> holds = ConcurrentHashMap.newKeySet();
    private final ThreadLocal<Map<String, ThreadHold>> threads = ThreadLocal.withInitial(HashMap::new);
    private final CompletableFuture<Void> closing = new CompletableFuture<>();

    private final ReentrantLock guard = new ReentrantLock();
    private final Condition quiet = guard.newCondition();
    private int jobs; // what close waits for: acquisitions, releases, names to leave
    private long period = 1000;
    private ScheduledFuture<?> tick;
    private volatile boolean stopped;
    private volatile long refreshed;

    public Locks(Client client) {
        this.client = client;
        tick();
    }

    /** A request for the lock, to write unless told. */
    public Request take(String key) {
        return new Request(this, key, millis(LEASE));
    }

    /** The lock as a {@link java.util.concurrent.locks.Lock}, with a lease of 30 s. */
    public ThreadLock lock(String key) {
        return lock(key, LEASE);
    }

    public ThreadLock lock(String key, Duration lease) {
        return new ThreadLock(this, key, millis(lease), false);
    }

    /** The lock as a {@link java.util.concurrent.locks.ReadWriteLock}; its write lock is {@link #lock} of this key. */
    public ThreadReadWriteLock readWriteLock(String key) {
        return readWriteLock(key, LEASE);
    }

    public ThreadReadWriteLock readWriteLock(String key, Duration lease) {
        return new ThreadReadWriteLock(lock(key, lease), new ThreadLock(this, key, millis(lease), true));
    }

    Held acquire(Request r) throws InterruptedException {
        long begun = BootClock.now();
        for (long pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LAST_PAUSE)) {
            long left = r.wait == FOREVER ? FOREVER : Math.max(0, r.wait - (BootClock.now() - begun));
            try {
                return attempt(r, left);
            } catch (LockException e) {
                // A server that never answered has the wrong address more likely than it is in trouble.
                if (!answered || closing.isDone() || left <= pause || !passes(e)) {
                    throw e;
                }
            }
            await(closing, pause, r.interruptible);
            refresh();
        }
    }

    static boolean passes(RuntimeException e) {
        return e instanceof LockException.Unanswered || e instanceof LockException.Refused refused && refused.passes();
    }

    /** Asks once, under a name that was never used before: what becomes of it is known, or the name is left. */
    private Held attempt(Request r, long left) throws InterruptedException {
        if (closing.isDone()) {
            throw new LockException.Closed();
        }
        Node node = node(r.key);
        String owner = newName(r.task);
        var words = new ArrayList<>(List.of(r.read ? "LOCK.RLOCK" : "LOCK.WLOCK", r.key, owner, Long.toString(r.lease), "HOLDS", "1"));
        try (Node.Pending letter = left > 0 ? node.expect(owner) : null) {
            if (letter != null) {
                words.addAll(List.of("WAIT", left == FOREVER ? "0" : Long.toString(left), "MAIL", letter.box.name));
            }
            if (closing.isDone()) { // nobody would end this wait
                throw new LockException.Closed();
            }
            long sent = BootClock.now();
            Node.Answer answer = ask(node, words, letter, left, r.interruptible);
            if (answer.token() == 0) {
                throw new LockException.Busy(r.key);
            }
            long limit = r.maxHold == FOREVER ? FOREVER : BootClock.now() + r.maxHold;
            var held = new Held(this, node, r, owner, answer.token(), Math.max(sent, answer.begun()), limit);
            held.confirm(r.interruptible);
            if (closing.isDone()) {
                throw new LockException.Closed();
            }
            keep(held);
            return held;
        } catch (LockException.Busy | LockException.Refused e) {
            throw e; // it has changed nothing
        } catch (RuntimeException | InterruptedException e) {
            leave(r.key, owner);
            throw e;
        }
    }

    /** Sends a request and awaits what becomes of it. */
    Node.Answer ask(Node node, List<String> words, Node.Pending letter, long left, boolean interruptible) throws InterruptedException {
        Object reply = await(node.send(words.toArray(String[]::new)), FOREVER, interruptible);
        if (reply instanceof Long token) {
            return new Node.Answer(token, 0, null);
        } else if (reply == null) {
            return new Node.Answer(0, 0, null);
        } else if (reply instanceof RuntimeException e) {
            throw e;
        }
        letter.queued((List<?>) reply);
        Node.Answer answer = await(letter.answer, left == FOREVER ? FOREVER : left + 2 * Node.TIMEOUT.toMillis(), interruptible);
        if (answer == null) {
            throw new LockException.Unanswered("no letter from the server", null);
        } else if (answer.error() != null) {
            throw answer.error();
        }
        return answer;
    }

    /** Awaits the future; null after that many milliseconds. */
    static <T> T await(CompletableFuture<T> future, long millis, boolean interruptible) throws InterruptedException {
        long end = millis == FOREVER ? FOREVER : BootClock.now() + millis;
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    return future.get(end == FOREVER ? FOREVER : end - BootClock.now(), TimeUnit.MILLISECONDS);
                } catch (TimeoutException e) {
                    return null;
                } catch (ExecutionException e) {
                    throw new IllegalStateException(e); // none is completed so
                } catch (InterruptedException e) {
                    if (interruptible) {
                        throw e;
                    }
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    Node node(String key) {
        return nodes.computeIfAbsent(nodeName(key), name -> new Node(this, name));
    }

    private String nodeName(String key) {
        try {
            return client.node(key);
        } catch (RuntimeException e) {
            throw new LockException.Unanswered("no server for the key " + key, e);
        }
    }

    /** The task that this thread is: threads that wait for each other are a deadlock. */
    String threadTask() {
        return uuid + "-" + Thread.currentThread().getId();
    }

    String newName(String task) {
        String number = Long.toString(count.incrementAndGet(), 36);
        return task == null ? uuid + ":" + number : task + "##" + uuid.substring(0, 13) + number;
    }

    /** What this thread holds, by key. */
    Map<String, ThreadHold> ofThread() {
        return threads.get();
    }

    private void keep(Held held) {
        holds.add(held);
        held.start();
        if (held.lease / 6 < period) {
            timer.execute(this::tick);
        }
    }

    void forget(Held held) {
        holds.remove(held);
        job(0);
    }

    /** Renews what is held, at a third of its lease at the latest, all of one server together. */
    private void tick() {
        BootClock.look();
        long next = Math.max(2, holds.stream().mapToLong(held -> held.lease / 6).min().orElse(1000));
        period = Math.min(1000, next);
        holds.forEach(held -> held.renewIfDue(period));
        if (tick != null) {
            tick.cancel(false);
        }
        if (!closing.isDone()) {
            tick = timer.schedule(this::tick, period, TimeUnit.MILLISECONDS);
        }
    }

    /** Says, until it is answered, that nothing is wanted under that name any more. */
    void leave(String key, String owner) {
        job(+1);
        janitor.execute(() -> leave(key, owner, FIRST_PAUSE));
    }

    private void leave(String key, String owner, long pause) {
        Runnable again = () -> janitor.schedule(() -> {
            refresh();
            leave(key, owner, Math.min(2 * pause, LAST_PAUSE));
        }, pause, TimeUnit.MILLISECONDS);
        if (stopped) {
            job(-1);
            return;
        }
        try {
            node(key).send("LOCK.LEAVE", key, owner, "FOR", AWAY).thenAccept(reply -> {
                if (reply instanceof RuntimeException e && passes(e)) {
                    again.run();
                } else {
                    job(-1);
                }
            });
        } catch (RuntimeException e) {
            again.run();
        }
    }

    /** Looks for the servers again, ten times a second at most. */
    void refresh() {
        long now = BootClock.now();
        if (now - refreshed < 100) {
            return;
        }
        refreshed = now;
        try {
            client.refresh();
        } catch (RuntimeException e) {
            // The next attempt meets what is wrong, and says so.
        }
    }

    void refreshSoon() {
        janitor.execute(this::refresh);
    }

    void sleep(long millis) {
        try {
            if (!stopped) {
                Thread.sleep(millis);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    boolean isStopped() {
        return stopped;
    }

    void job(int more) {
        guard.lock();
        try {
            jobs += more;
            quiet.signalAll();
        } finally {
            guard.unlock();
        }
    }

    /** Unlocks what is held, ends what waits, and returns when the servers know, after 10 s at most. Closes the client. */
    @Override
    public void close() {
        close(Duration.ofSeconds(10));
    }

    /** The same, within that time: what the servers do not know by then goes with its lease. */
    public void close(Duration limit) {
        closing.complete(null);
        nodes.values().forEach(Node::endWaits);
        holds.forEach(Held::release);
        guard.lock();
        try {
            long left = limit.toNanos();
            while ((jobs > 0 || !holds.isEmpty()) && left > 0) {
                left = quiet.awaitNanos(left);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            guard.unlock();
        }
        stopped = true;
        nodes.values().forEach(node -> node.send("PING", "")); // wakes its thread, which ends
        timer.shutdownNow();
        janitor.shutdownNow();
        client.close();
    }

    static long millis(Duration d) {
        return Math.max(1, d.plusNanos(999_999).toMillis());
    }

    static Thread daemon(String name, Runnable run) {
        var thread = new Thread(run, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static ScheduledThreadPoolExecutor executor(String name) {
        var executor = new ScheduledThreadPoolExecutor(1, run -> {
            var thread = new Thread(run, name);
            thread.setDaemon(true);
            return thread;
        });
        executor.setRemoveOnCancelPolicy(true);
        executor.setRejectedExecutionHandler((run, e) -> { }); // closed
        return executor;
    }
}
