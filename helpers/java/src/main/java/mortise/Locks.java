package mortise;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import java.util.stream.Stream;

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
    /** For how many ms a server that does not answer is asked again. One that has never answered more likely has a wrong address. */
    static final long PATIENCE = 10_000;
    private static final Duration LEASE = Duration.ofSeconds(30);
    /** The shortest lease. Of a shorter one nothing would be left, less what clocks may differ by. */
    public static final Duration LEAST_LEASE = Duration.ofMillis(3);

    private static final long CLIENT = 100; // ms that the client gets to close itself, at least
    private static final String AWAY = "60000"; // for how many ms late requests under a name that has left change nothing

    final Client client;
    final int replicas; // that confirm each hold
    volatile boolean answered; // a server ever has
    final String uuid = UUID.randomUUID().toString();
    private final AtomicLong count = new AtomicLong();
    private final AtomicLong jobs = new AtomicLong(); // what close waits for: acquisitions, holds, names to leave
    private final AtomicLong refreshed = new AtomicLong();
    final ThreadLocal<Map<String, ThreadLock.Hold>> ofThread = ThreadLocal.withInitial(HashMap::new); // by key
    volatile boolean closing; // no lock is taken any more
    private final CompletableFuture<Void> stopped = new CompletableFuture<>(); // nothing is sent any more
    /**
     * For what a program does when a lock is granted or lost. It may block, also until another lock is granted: so there is a thread for
     * each that is at work.
     */
    private final Executor threads = new ThreadPoolExecutor(0, Integer.MAX_VALUE, 1, TimeUnit.SECONDS, new SynchronousQueue<>(),
        run -> daemon("mortise-lost", run));
    private final ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1,
        run -> daemon("mortise-timer", run), new ThreadPoolExecutor.DiscardPolicy()); // once closed
    final Keeper keeper = new Keeper(this);

    final ReentrantLock mutex = new ReentrantLock(); // of all below, of every mailbox, of every hold and of the keeper
    private final Map<String, Node> nodes = new HashMap<>();

    public Locks(Client client) {
        this(client, 0);
    }

    private Locks(Client client, int replicas) {
        this.client = client;
        this.replicas = replicas;
    }

    /** Locks over that client, with settings. */
    public static Builder builder(Client client) {
        return new Builder(client);
    }

    /** Settings of all locks over a client. */
    public static final class Builder {
        private final Client client;
        private int replicas;

        private Builder(Client client) {
            this.client = client;
        }

        /**
         * How many replicas must have each grant and each renewal before a lock relies on it: none by default. If all clients name the
         * number of replicas that may ever be promoted, and each server has {@code lock.grace}, no failover lets two in. While too few
         * replicas have it, the lock is given back and requested again until the wait is over; then it is {@link LockException.Unconfirmed}.
         */
        public Builder replicas(int replicas) {
            if (replicas < 0) {
                throw new IllegalArgumentException("replicas must be at least 0, got " + replicas);
            }
            this.replicas = replicas;
            return this;
        }

        public Locks build() {
            return new Locks(client, replicas);
        }
    }

    /** A request for the lock, to write by default. */
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

    /** The semaphore of that many permits on this key, with a lease of 30 s. All users of a key pass the same limit. */
    public Semaphore semaphore(String key, int limit) {
        return semaphore(key, limit, LEASE);
    }

    public Semaphore semaphore(String key, int limit, Duration lease) {
        return new Semaphore(this, key, limit, lease);
    }

    /**
     * Makes all holds of the lock end with their leases: their holders learn of it at their next renewal, and nobody else is granted
     * before. Returns how long the last of them lasts at most; zero if nobody holds it.
     */
    public Duration revoke(String key) {
        return holds(key).stream().map(hold -> revoke(key, (String) hold.get("owner"))).max(Duration::compareTo).orElse(Duration.ZERO);
    }

    /** The same with the hold of that owner, a name as LOCK.INFO shows it. */
    public Duration revoke(String key, String owner) {
        return answer(List.of("LOCK.REVOKE", key, owner)) instanceof Long left ? Duration.ofMillis(left) : Duration.ZERO;
    }

    /** The holders of the lock, by the server. */
    List<Map<String, Object>> holds(String key) {
        Object reply = answer(List.of("LOCK.INFO", key, "COUNT", "" + Integer.MAX_VALUE));
        return reply == null ? List.of()
            : ((List<?>) Mailbox.fields((List<?>) reply).get("holds")).stream().map(hold -> Mailbox.fields((List<?>) hold)).toList();
    }

    private Object answer(List<String> words) {
        Object reply = send(words).join();
        if (reply instanceof LockException e) {
            refresh();
            throw e;
        }
        return reply;
    }

    /**
     * Unlocks all locks, ends all waits, and returns when the servers have answered, after 10 s at most, also where the thread is
     * interrupted. Closes the client.
     */
    @Override
    public void close() {
        close(Duration.ofSeconds(10));
    }

    /** The same, within that time and a tenth of a second: locks without an answer by then end with their leases. */
    public void close(Duration limit) {
        long begun = Clock.SYSTEM.now();
        closing = true;
        get(() -> List.copyOf(nodes.values())).forEach(node -> node.mail.giveUp(new LockException.Closed()));
        keeper.endAll();
        job(0);
        stopped.completeOnTimeout(null, limit.toMillis(), TimeUnit.MILLISECONDS).join();
        with(() -> nodes.values().forEach(Node::end));
        timer.shutdown(); // what is scheduled still runs: attempts that end by it
        long left = Math.max(CLIENT, limit.toMillis() - (Clock.SYSTEM.now() - begun));
        CompletableFuture.runAsync(client::close, run -> daemon("mortise-close", run).start()) // this thread may be interrupted
            .completeOnTimeout(null, left, TimeUnit.MILLISECONDS).join();
    }

    /** How to take a lock. */
    public final class Request implements Cloneable {
        final String key;
        boolean read;
        long lease = LEASE.toMillis();
        long wait = FOREVER;
        long maxHold = FOREVER;
        boolean isFixed;
        int permits = 1;
        Integer limit; // of a semaphore; null for none
        String task;
        String holder;
        String from; // the name that passed it on; null for a lock that is acquired
        long token; // by which it was passed on
        List<String> keys; // with those that are taken with it
        Held reader; // which becomes a writer; null for any other lock

        private Request(String key) {
            this.key = Objects.requireNonNull(key, "key");
            keys = List.of(key);
        }

        /** To read, beside other readers. */
        public Request read() {
            read = true;
            return this;
        }

        /** How long the lock outlives a holder that is gone: 30 s by default, 3 ms at least. It is renewed at a third of that. */
        public Request lease(Duration lease) {
            this.lease = Locks.lease(lease);
            return this;
        }

        /** How long to queue for it; without limit by default. A wait that has passed asks once. */
        public Request wait(Duration wait) {
            this.wait = wait.isNegative() ? 0 : millis(wait);
            return this;
        }

        /** How long it is held in all, 1 ms at least: it is lost then, however healthy everything is. */
        public Request maxHold(Duration maxHold) {
            this.maxHold = atLeast("maxHold", Duration.ofMillis(1), maxHold);
            return this;
        }

        /**
         * Not to be renewed: it is lost when its lease is over, unless {@link Held#extend} makes that longer; even at once, if the grant is
         * known that late. {@link Locks#close} does not unlock it.
         */
        public Request fixed() {
            isFixed = true;
            return this;
        }

        /** The task that takes it, so that deadlocks among tasks with several locks are found. Unique among programs. */
        public Request task(String task) {
            this.task = task;
            return this;
        }

        /** A name for people to read, as LOCK.INFO shows it: a part of the name under which the lock is held. Without ##. */
        public Request holder(String holder) {
            if (holder.isEmpty() || holder.contains("##")) {
                throw new IllegalArgumentException("holder must be a name without ##, got \"" + holder + '"');
            }
            this.holder = holder;
            return this;
        }

        /**
         * Goes on with a lock that was passed on to the name {@code owner} by that token: see {@link Held#passTo}. Of several that
         * try, one gets it.
         *
         * @throws LockException.Lost if the lock is not held by that name and token, or no longer
         */
        public Held takeOver(String owner, long token) throws InterruptedException {
            Request now = copy();
            now.from = Objects.requireNonNull(owner, "owner");
            now.token = token;
            now.wait = PATIENCE;
            return now.await(true);
        }

        /**
         * Goes on with a lock that another program holds by the name {@code owner} and that token, under the same name: to unlock it here,
         * say. The other one must not go on with it.
         *
         * @throws LockException.Lost if that hold is over
         */
        public Held resume(String owner, long token) {
            var held = new Held(Locks.this, this, owner, token);
            LockException problem = held.prolong(lease).join();
            problem = problem == null ? keeper.start(held) : problem;
            if (problem != null) {
                throw problem;
            }
            return held;
        }

        /**
         * Takes the lock. A thread that is interrupted waits no longer, and leaves nothing behind.
         *
         * @throws LockException.Busy if it is held by others for that long
         */
        public Held acquire() throws InterruptedException {
            return await(true);
        }

        /**
         * The same without a thread that waits: the future completes with the lock, or with the exception that {@link #acquire} throws. A
         * future that is cancelled, or that its own time-out completes, leaves nothing behind. What depends on it may block: it has threads
         * of its own.
         */
        public CompletableFuture<Held> acquireAsync() {
            return new Acquisition(Locks.this, this).future();
        }

        /** The lock, or null if it is held by others for that many milliseconds; never null without a limit. */
        Held within(long wait, boolean interruptible) throws InterruptedException {
            this.wait = wait;
            try {
                return await(interruptible);
            } catch (LockException.Busy e) {
                if (wait == FOREVER) {
                    throw e;
                }
                return null;
            }
        }

        /**
         * Takes the lock together with those of other keys, to write: all in one instant, or none. Nothing is held while it waits. It is one
         * {@link Held}, with one token, which is lost as soon as one of the locks is. In a cluster all keys are in one slot, as by a
         * {hash tag}.
         *
         * @throws LockException.Busy if one of them is held by others for that long
         */
        public Held acquireWith(String... keys) throws InterruptedException {
            return with(keys).await(true);
        }

        /** The same as a future: see {@link #acquireAsync}. */
        public CompletableFuture<Held> acquireWithAsync(String... keys) {
            return new Acquisition(Locks.this, with(keys)).future();
        }

        private Request with(String... more) {
            if (read || limit != null) {
                throw new IllegalArgumentException("several locks are taken to write only");
            }
            Request now = copy();
            now.keys = Stream.concat(Stream.of(key), Stream.of(more)).toList();
            return now;
        }

        /** A thread that is interrupted already sends nothing: a pass could not be taken back. */
        private Held await(boolean interruptible) throws InterruptedException {
            if (interruptible && Thread.interrupted()) {
                throw new InterruptedException();
            }
            return new Acquisition(Locks.this, this).await(interruptible);
        }

        Request copy() {
            try {
                return (Request) clone();
            } catch (CloneNotSupportedException e) {
                throw new AssertionError(e); // it is Cloneable
            }
        }

        /** The words of the command that asks for it, without its wait. */
        List<String> words(String owner) {
            if (from != null) {
                return List.of("LOCK.PASS", key, from, owner, "" + lease, "TOKEN", "" + token);
            } else if (keys.size() > 1) {
                var words = new ArrayList<>(List.of("LOCK.MACQUIRE", owner, "" + lease, "" + keys.size()));
                words.addAll(keys);
                return words;
            }
            var words = new ArrayList<>(List.of(read ? "LOCK.RLOCK" : "LOCK.WLOCK", key, owner, "" + lease, "HOLDS", "" + permits));
            if (limit != null) {
                words.addAll(List.of("LIMIT", "" + limit));
            }
            if (reader != null) {
                words.addAll(List.of("TOKEN", "" + reader.token));
            }
            return words;
        }
    }

    /** The server that serves the key now. */
    Node node(String key) {
        try {
            String name = client.node(key);
            return get(() -> nodes.computeIfAbsent(name, n -> new Node(this, n)));
        } catch (RuntimeException | Error e) { // a client's Error must not end a thread that serves all locks
            throw e instanceof LockException known ? known : new LockException.Unsent("no server for the key " + key, e);
        }
    }

    /** A name that nobody has had. */
    String newName(String task, String holder) {
        String number = Long.toString(count.incrementAndGet(), 36);
        String own = (holder == null ? "" : holder + ":") + (task == null ? uuid + ":" : uuid.substring(0, 13)) + number;
        return task == null ? own : task + "##" + own;
    }

    /** Has the command sent to the server that serves its key, the second word. There always is a reply: a LockException where there is none. */
    CompletableFuture<Object> send(List<String> words) {
        try {
            return node(words.get(1)).send(words);
        } catch (LockException e) {
            return CompletableFuture.completedFuture(e);
        }
    }

    /** Ends all that the name has or waits for at each key. */
    void leave(List<String> keys, String owner) {
        keys.forEach(key -> insist(List.of("LOCK.LEAVE", key, owner, "FOR", AWAY)));
    }

    /** Sends the command until it is answered. */
    void insist(List<String> words) {
        job(+1);
        insist(words, FIRST_PAUSE);
    }

    private void insist(List<String> words, long pause) {
        send(words).thenAccept(reply -> {
            if (reply instanceof LockException e && e.passes() && !isStopped()) {
                refresh();
                later(pause, () -> insist(words, Math.min(2 * pause, LAST_PAUSE)));
            } else {
                job(-1);
            }
        });
    }

    /** Runs it after that many milliseconds, unless the locks are closed already. It must not block. */
    void later(long millis, Runnable run) {
        timer.schedule(run, millis, TimeUnit.MILLISECONDS);
    }

    /** Runs it on a thread of its own, which may block, as soon as one can be started. */
    void listen(Runnable run) {
        try {
            threads.execute(run);
        } catch (OutOfMemoryError e) { // the process may not have more threads now
            later(LAST_PAUSE, () -> listen(run));
        }
    }

    /** Searches for the servers again, by one thread and ten times a second at most. */
    void refresh() {
        long last = refreshed.get();
        if (Clock.SYSTEM.now() - last > 100 && refreshed.compareAndSet(last, Long.MAX_VALUE)) {
            listen(() -> {
                try {
                    client.refresh();
                } catch (RuntimeException e) {
                    // The next attempt meets the error, and reports it.
                } finally {
                    refreshed.set(Clock.SYSTEM.now());
                }
            });
        }
    }

    /** A thread of the library. It is a daemon, which keeps no program from ending. */
    static Thread daemon(String name, Runnable run) {
        var thread = new Thread(run, name);
        thread.setDaemon(true);
        return thread;
    }

    /** Counts what close waits for. */
    void job(int more) {
        if (jobs.addAndGet(more) == 0 && closing) {
            stopped.complete(null);
        }
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

    /** Takes a lock, and returns whether it got it. */
    interface Take {
        boolean call() throws InterruptedException;
    }

    /** Calls it where it throws no InterruptedException, because no interrupt ends its wait. */
    static boolean uninterrupted(Take take) {
        try {
            return take.call();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e); // is not thrown
        }
    }

    static long lease(Duration lease) {
        return atLeast("lease", LEAST_LEASE, lease);
    }

    /** Refuses a time by which no lock could be held, such as a computed one that has passed. */
    private static long atLeast(String name, Duration least, Duration given) {
        if (given.compareTo(least) < 0) {
            throw new IllegalArgumentException(name + " must be at least " + least.toMillis() + " ms, got " + given);
        }
        return millis(given);
    }

    /** A wait as those of {@code java.util.concurrent} are given. */
    static long wait(long wait, TimeUnit unit) {
        return wait <= 0 ? 0 : Math.min(FOREVER, Math.max(1, unit.toMillis(wait)));
    }

    /** Rounded up: a wait of 0 would be none. */
    private static long millis(Duration d) {
        return d.compareTo(Duration.ofMillis(FOREVER)) < 0 ? d.plusNanos(999_999).toMillis() : FOREVER;
    }
}
