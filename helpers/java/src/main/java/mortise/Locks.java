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
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

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
    static final long FOREVER = Duration.ofDays(36_500).toMillis();
    static final long FIRST_PAUSE = 20;
    static final long LAST_PAUSE = 500;
    /** For how long what still arrives under a name that was left changes nothing. */
    private static final String AWAY = "60000";
    private static final Duration LEASE = Duration.ofSeconds(30);

    final Client client;
    volatile boolean answered; // a server ever has
    final String uuid = UUID.randomUUID().toString();
    private final AtomicLong count = new AtomicLong();
    private final AtomicLong jobs = new AtomicLong(); // what close waits for: acquisitions, holds, names to leave
    private final AtomicLong refreshed = new AtomicLong();
    final ThreadLocal<Map<String, ThreadLock.Hold>> ofThread = ThreadLocal.withInitial(HashMap::new); // by key
    private final CompletableFuture<Void> closing = new CompletableFuture<>(); // nothing is taken any more
    private final CompletableFuture<Void> stopped = new CompletableFuture<>(); // nothing is sent any more
    // What a client may keep waiting is the janitor's; the keeper has to be in time.
    private final ScheduledThreadPoolExecutor keeper = executor("mortise-keeper");
    private final ScheduledThreadPoolExecutor janitor = executor("mortise-janitor");

    private final ReentrantLock mutex = new ReentrantLock(); // of all below, of every node and of every hold
    private final Map<String, Node> nodes = new HashMap<>();
    private final Set<Held> holds = ConcurrentHashMap.newKeySet();
    private ScheduledFuture<?> look;
    private long lookAt; // when the keeper does

    public Locks(Client client) {
        this.client = client;
        keeper.execute(this::keep);
    }

    /** A request for the lock, to write unless told. */
    public Request take(String key) {
        return new Request(key);
    }

    /** The lock as a {@link java.util.concurrent.locks.Lock}, with a lease of 30 s. */
    public ThreadLock lock(String key) {
        return lock(key, LEASE);
    }

    public ThreadLock lock(String key, Duration lease) {
        return new ThreadLock(this, key, lease, false);
    }

    /** The lock as a {@link java.util.concurrent.locks.ReadWriteLock}; its write lock is {@link #lock} of this key. */
    public ThreadLock.Pair readWriteLock(String key) {
        return readWriteLock(key, LEASE);
    }

    public ThreadLock.Pair readWriteLock(String key, Duration lease) {
        return new ThreadLock.Pair(lock(key, lease), new ThreadLock(this, key, lease, true));
    }

    /** Unlocks what is held, ends what waits, and returns when the servers know, after 10 s at most. Closes the client. */
    @Override
    public void close() {
        close(Duration.ofSeconds(10));
    }

    /** The same, within that time: what the servers do not know by then goes with its lease. */
    public void close(Duration limit) {
        closing.complete(null);
        with(() -> nodes.values().forEach(node -> node.giveUp(p -> true, new LockException.Closed())));
        holds.forEach(Held::release);
        job(0);
        try {
            Node.await(stopped, limit.toMillis(), true);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        stopped.complete(null);
        with(() -> nodes.values().forEach(node -> node.send("PING", ""))); // wakes its thread, which ends
        keeper.shutdownNow();
        janitor.shutdownNow();
        client.close();
    }

    /** How a lock is to be taken. */
    public final class Request {
        final String key;
        boolean read;
        boolean interruptible = true;
        long lease = LEASE.toMillis();
        long wait = FOREVER;
        long maxHold = FOREVER;
        String task;

        private Request(String key) {
            this.key = key;
        }

        /** To read, beside other readers. */
        public Request read() {
            read = true;
            return this;
        }

        /** How long the lock outlives a holder that is gone: 30 s unless told, 3 ms at least. It is renewed at a third of that. */
        public Request lease(Duration lease) {
            this.lease = leaseMillis(lease);
            return this;
        }

        /** How long to queue for it; without limit unless told. A wait that has passed asks once. */
        public Request wait(Duration wait) {
            this.wait = wait.isNegative() ? 0 : millis(wait);
            return this;
        }

        /** How long it is held in all, 1 ms at least: it is lost then, however healthy everything is. */
        public Request maxHold(Duration maxHold) {
            this.maxHold = atLeast("maxHold", 1, maxHold);
            return this;
        }

        /** The task that takes it, so that deadlocks among tasks with several locks are found. Unique among programs. */
        public Request task(String task) {
            this.task = task;
            return this;
        }

        /**
         * Takes the lock. A thread that is interrupted waits no longer, and leaves nothing behind.
         *
         * @throws LockException.Busy if it is held by others for that long
         */
        public Held acquire() throws InterruptedException {
            job(+1);
            try {
                return Locks.this.acquire(this);
            } finally {
                job(-1);
            }
        }
    }

    private Held acquire(Request r) throws InterruptedException {
        long end = Clock.now() + r.wait;
        for (long pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LAST_PAUSE)) {
            long left = Math.max(0, end - Clock.now());
            try {
                return attempt(r, left);
            } catch (LockException e) {
                // A server that has not answered thrice, and never before, has the wrong address more likely than it is in trouble.
                boolean isThere = answered || pause <= 2 * FIRST_PAUSE;
                if (!isThere || isClosing() || end - Clock.now() <= pause || !e.passes()) {
                    throw e;
                }
            }
            refresh();
            Node.await(closing, pause, r.interruptible);
        }
    }

    /** Asks once, under a name that was never used before: what becomes of it is known, or the name is left. */
    private Held attempt(Request r, long left) throws InterruptedException {
        Node node = node(r.key);
        String owner = newName(r.task);
        var words = new ArrayList<>(List.of(r.read ? "LOCK.RLOCK" : "LOCK.WLOCK", r.key, owner, "" + r.lease, "HOLDS", "1"));
        long sent = Clock.now();
        try {
            Node.Answer answer = node.ask(words, owner, left, r.interruptible);
            if (answer.token() == 0) {
                throw new LockException.Busy(r.key);
            }
            var held = new Held(this, node, r, owner, answer.token());
            held.extend(Math.max(sent, answer.begun()));
            held.confirm(r.interruptible);
            if (!get(() -> hold(held))) {
                throw new LockException.Closed();
            }
            return held;
        } catch (LockException.Busy | LockException.Refused e) {
            throw e; // it has changed nothing
        } catch (RuntimeException | InterruptedException e) {
            leave(r.key, owner);
            throw e;
        }
    }

    private boolean hold(Held held) {
        if (isClosing()) {
            return false;
        }
        job(+1);
        lookBy(held.nextLook());
        return holds.add(held);
    }

    /** The server that serves the key now. */
    Node node(String key) {
        try {
            String name = client.node(key);
            return get(() -> nodes.computeIfAbsent(name, n -> new Node(this, n)));
        } catch (RuntimeException e) {
            throw new LockException.Unanswered("no server for the key " + key, e);
        }
    }

    String newName(String task) {
        String number = Long.toString(count.incrementAndGet(), 36);
        return task == null ? uuid + ":" + number : task + "##" + uuid.substring(0, 13) + number;
    }

    /** Renews what is due, all of one server together, and notices what is lost; looks once a second at least. */
    private void keep() {
        Clock.look();
        holds.forEach(Held::follow);
        with(() -> {
            lookAt = Long.MAX_VALUE;
            lookBy(holds.stream().mapToLong(Held::keep).reduce(Clock.now() + 1000, Math::min));
        });
    }

    /** Has the keeper look at that moment at the latest. */
    void lookBy(long at) {
        if (at < lookAt && !isStopped()) {
            lookAt = at;
            if (look != null) {
                look.cancel(false);
            }
            look = keeper.schedule(this::keep, Math.max(1, at - Clock.now()), TimeUnit.MILLISECONDS);
        }
    }

    void forget(Held held) {
        holds.remove(held);
        job(-1);
    }

    /** Says, until it is answered, that nothing is wanted under that name any more. */
    void leave(String key, String owner) {
        job(+1);
        janitor.execute(() -> leave(key, owner, FIRST_PAUSE));
    }

    private void leave(String key, String owner, long pause) {
        CompletableFuture<Object> left;
        try {
            left = node(key).send("LOCK.LEAVE", key, owner, "FOR", AWAY);
        } catch (LockException e) {
            left = CompletableFuture.completedFuture(e);
        }
        left.thenAccept(reply -> {
            if (reply instanceof LockException e && e.passes() && !isStopped()) {
                refresh();
                janitor.schedule(() -> leave(key, owner, Math.min(2 * pause, LAST_PAUSE)), pause, TimeUnit.MILLISECONDS);
            } else {
                job(-1);
            }
        });
    }

    /** Has the servers looked for again, by one thread and ten times a second at most. */
    void refresh() {
        long last = refreshed.get();
        if (Clock.now() - last > 100 && refreshed.compareAndSet(last, Long.MAX_VALUE)) {
            daemon("mortise-refresh", () -> {
                try {
                    client.refresh();
                } catch (RuntimeException e) {
                    // The next attempt meets what is wrong, and says so.
                } finally {
                    refreshed.set(Clock.now());
                }
            }).start();
        }
    }

    /** Counts what close waits for. */
    void job(int more) {
        if (jobs.addAndGet(more) == 0 && isClosing()) {
            stopped.complete(null);
        }
    }

    boolean isClosing() {
        return closing.isDone();
    }

    boolean isStopped() {
        return stopped.isDone();
    }

    /** Calls it under the mutex. */
    <T> T get(Supplier<T> call) {
        mutex.lock();
        try {
            return call.get();
        } finally {
            mutex.unlock();
        }
    }

    void with(Runnable run) {
        get(() -> {
            run.run();
            return null;
        });
    }

    /** Of a shorter lease nothing would be left to believe in, after {@link Held#extend} has taken away what clocks may differ by. */
    static long leaseMillis(Duration lease) {
        return atLeast("lease", 3, lease);
    }

    /** Refuses a time by which no lock could be held, such as a computed one that has passed. */
    private static long atLeast(String name, long least, Duration given) {
        if (given.compareTo(Duration.ofMillis(least)) < 0) {
            throw new IllegalArgumentException(name + " must be at least " + least + " ms, got " + given);
        }
        return millis(given);
    }

    /** Rounded up: a wait of 0 would be none. */
    private static long millis(Duration d) {
        return d.compareTo(Duration.ofMillis(FOREVER)) < 0 ? d.plusNanos(999_999).toMillis() : FOREVER;
    }

    static Thread daemon(String name, Runnable run) {
        var thread = new Thread(run, name);
        thread.setDaemon(true);
        return thread;
    }

    private static ScheduledThreadPoolExecutor executor(String name) {
        return new ScheduledThreadPoolExecutor(1, run -> daemon(name, run), new ThreadPoolExecutor.DiscardPolicy()); // once closed
    }
}
