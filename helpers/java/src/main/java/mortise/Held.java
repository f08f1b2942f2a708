package mortise;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;

/** A lock that is held, until {@link #unlock} or until it is lost. */
public final class Held implements AutoCloseable {
    private static final long NEVER = Long.MIN_VALUE / 2;
    private static final int MOST_OWNER = 255; // bytes

    private final Locks locks;
    private final String key;
    private final String owner;
    private final long lease;
    private final long limit; // of maxHold
    private final CompletableFuture<Void> lost = new CompletableFuture<>();

    // All below under the mutex.
    private Node node; // that granted it, or where it has moved to
    private volatile long token;
    private long until; // it counts as held until then
    private long renewal; // when it is to be renewed
    private boolean passing; // it is being passed on: nobody may rely on it
    private long rests; // the lock stays taken until then: of atLeast
    private boolean upgrading; // the token may be another one than is known
    private boolean over; // unlocked or lost
    private volatile boolean wasLost;

    Held(Locks locks, Node node, Locks.Request r, String key, String owner, long token) {
        this.locks = locks;
        this.node = node;
        this.key = key;
        this.owner = owner;
        this.lease = r.lease();
        this.limit = Clock.now() + r.maxHold;
        this.rests = r.atLeast == 0 ? NEVER : Clock.now() + r.atLeast;
        this.token = token;
    }

    public String key() {
        return key;
    }

    /**
     * The fencing token, larger than that of every grant before. Send it along with what you write, and refuse a write
     * whose token is smaller than one that was seen already.
     */
    public long token() {
        return token;
    }

    /** The token, if the lock is held at this moment. */
    public long check() {
        if (!isHeld()) {
            throw new LockException.Lost(key);
        }
        return token;
    }

    /**
     * The words of a command that runs the given one only while the lock is held, which the server checks in the same moment; else its
     * reply is an error that begins with {@code NOTHELD}. For data on the lock's server, in the slot of its key. Send it
     * over a client that does not repeat commands by itself.
     */
    public List<String> guard(String... command) {
        var words = new ArrayList<>(List.of("LOCK.GUARD", key, owner, "" + token));
        words.addAll(List.of(command));
        return words;
    }

    public boolean isHeld() {
        Clock.look();
        return locks.get(() -> state() && !passing);
    }

    /** Completes when the lock is lost; never, where it is unlocked before. What depends on it may block: it has threads of its own. */
    public CompletableFuture<Void> lost() {
        return lost.copy();
    }

    /**
     * Gives the lock back. If a server does not answer, the release is repeated in the background.
     *
     * @throws LockException.Lost if it was lost before
     * @throws LockException.Refused if the server's user may not release it: the library leaves the lock, if it may do that
     */
    public void unlock() {
        settle(release());
    }

    /** Awaits the answer to a release, and reports a loss or that it is forbidden. */
    void settle(CompletableFuture<Object> released) {
        Object reply = released == null ? null : released.join();
        if (released == null ? wasLost : isGone(reply)) {
            throw new LockException.Lost(key);
        } else if (isForbidden(reply)) {
            throw (LockException) reply;
        }
    }

    /** Awaits the answers to several releases, and reports one failure: a loss, if there is any. */
    static void settleAll(List<Runnable> settles) {
        RuntimeException failed = null;
        for (Runnable settle : settles) {
            try {
                settle.run();
            } catch (LockException e) {
                failed = failed instanceof LockException.Lost ? failed : e;
            }
        }
        if (failed != null) {
            throw failed;
        }
    }

    @Override
    public void close() {
        unlock();
    }

    /** Sends the release, once: null if the lock is over already. What is not answered is left. */
    CompletableFuture<Object> release() {
        follow();
        return locks.get(() -> {
            if (!state()) {
                return null;
            }
            locks.job(+1);
            end();
            CompletableFuture<Object> rest = rests > Clock.now() ? node.send(farewell()) : CompletableFuture.completedFuture(null);
            return rest.thenCompose(reply -> reply == null ? sendRelease() : CompletableFuture.completedFuture(reply)).thenApply(reply -> {
                if (reply instanceof LockException && !isGone(reply)) {
                    locks.tell(key, this::farewell);
                }
                locks.job(-1);
                return reply;
            });
        });
    }

    /** Nothing has to rest, or what was revoked cannot. */
    private CompletableFuture<Object> sendRelease() {
        return locks.get(() -> {
            rests = NEVER;
            return node.send("LOCK.RELEASE", key, owner, "ALL", "TOKEN", "" + token);
        });
    }

    /** The words that end the lock for good, whatever became of it: the rest of atLeast goes to a name that nobody uses. */
    private String[] farewell() {
        long left = locks.get(() -> rests) - Clock.now();
        if (left <= 0) {
            return Locks.leaving(key, owner);
        }
        String rest = "rest:" + owner;
        boolean fits = rest.getBytes(StandardCharsets.UTF_8).length <= MOST_OWNER;
        return new String[] {"LOCK.PASS", key, owner, fits ? rest : "rest:" + locks.newName(null, null), "" + left, "TOKEN", "" + token};
    }

    /**
     * Gives the lock to another name with that lease, and nobody is granted in between. Returns the new token: a program that knows the
     * token and the name goes on with {@link Locks.Request#takeOver}. What the lock had of {@link Locks.Request#atLeast} ends.
     *
     * @throws LockException.Lost if it was lost before
     * @throws LockException.Refused after which it is held as before
     * @throws LockException.Unanswered when the outcome is unknown: then both names leave the lock
     * @throws IllegalStateException while another thread passes it on
     */
    public long passTo(String owner, Duration lease) {
        long ms = Times.lease(lease);
        Objects.requireNonNull(owner, "owner");
        follow();
        locks.job(+1);
        try {
            boolean held = locks.get(() -> {
                if (passing) {
                    throw new IllegalStateException("the lock " + key + " is being passed on already");
                }
                return passing = state();
            });
            if (!held) {
                throw new LockException.Lost(key);
            }
            Object reply = node.send("LOCK.PASS", key, this.owner, owner, "" + ms, "TOKEN", "" + token).join();
            return locks.get(() -> passed(reply, owner));
        } finally {
            locks.job(-1);
        }
    }

    private long passed(Object reply, String heir) {
        passing = false;
        if (reply instanceof LockException.Refused refused && !isGone(reply)) { // it has changed nothing
            renewal = Math.min(renewal, Clock.now());
            locks.keeper.lookBy(renewal);
            throw refused;
        }
        rests = NEVER;
        if (reply instanceof Long passed) {
            if (!over) {
                end();
            }
            return passed;
        }
        lose();
        if (reply instanceof LockException unknown && !isGone(reply)) {
            locks.leave(key, heir);
            throw unknown;
        }
        throw new LockException.Lost(key);
    }

    /** Keeps only that many permits of a semaphore, and returns as {@link #release}. */
    CompletableFuture<Object> keepPermits(int left) {
        follow();
        return locks.get(() -> !state() ? null
            : node.send("LOCK.RELEASE", key, owner, "READ", "HOLDS", "" + left, "TOKEN", "" + token).thenApply(reply -> {
                if (Long.valueOf(left).equals(reply)) {
                    return reply;
                }
                locks.with(this::lose);
                return isForbidden(reply) ? reply : null;
            }));
    }

    /** Whether this reply proves that nothing is held: there is no such hold, or the key was overwritten. */
    private static boolean isGone(Object reply) {
        return reply == null || reply instanceof LockException.Refused refused && refused.code().equals("WRONGTYPE");
    }

    private static boolean isForbidden(Object reply) {
        return reply instanceof LockException.Refused refused && refused.code().equals("NOPERM");
    }

    /** Keeps only a read hold: waiting readers are granted. */
    void downgrade() {
        follow();
        node.send("LOCK.RLOCK", key, owner, "" + lease, "HOLDS", "1", "TOKEN", "" + token);
        Object reply = node.send("LOCK.RELEASE", key, owner, "WRITE", "HOLDS", "0", "TOKEN", "" + token).join();
        if (!Long.valueOf(1).equals(reply)) {
            locks.with(this::lose);
            settle(CompletableFuture.completedFuture(isForbidden(reply) ? reply : null));
        }
    }

    /** Adds a write hold to the read hold. When the outcome is unknown, all is lost. */
    boolean upgrade(long left, boolean interruptible) throws InterruptedException {
        follow();
        locks.with(() -> upgrading = true);
        try {
            var words = new ArrayList<>(List.of("LOCK.WLOCK", key, owner, "" + lease, "HOLDS", "1", "TOKEN", "" + token));
            long granted = node.ask(words, owner, left, interruptible).token();
            locks.with(() -> token = Math.max(token, granted));
            check();
            return granted != 0;
        } catch (LockException.Refused e) { // it has changed nothing
            if (isGone(e)) {
                locks.with(this::lose);
                check();
            }
            throw e;
        } catch (RuntimeException | InterruptedException e) {
            locks.with(this::lose);
            throw e;
        } finally {
            locks.with(() -> upgrading = false);
        }
    }

    /** Counts the lock as held until a lease after that moment, less what clocks may differ by. */
    void extend(long begun) {
        until = Math.min(Math.max(until, begun + lease - lease / 100 - 2), limit);
        renewal = until == limit ? limit : begun + lease / 3;
    }

    /** Asks once more where more than half of the lease has gone by the time the grant is known. */
    void confirm(boolean interruptible) throws InterruptedException {
        long sent = Clock.now();
        if (until - sent > lease / 2 || until == limit) {
            return;
        }
        Object reply = Node.await(renew(), Locks.FOREVER, interruptible);
        if (!Long.valueOf(token).equals(reply) || Clock.now() >= until) {
            throw new LockException.Unanswered("the grant was told too late", null);
        }
        extend(sent);
    }

    private CompletableFuture<Object> renew() {
        return node.send("LOCK.RENEW", key, owner, "" + lease);
    }

    /** Renews it if that is due, and returns when to check again. Under the mutex, like the next ones. */
    long keep() {
        long sent = Clock.now();
        if (!state()) {
            return Long.MAX_VALUE;
        }
        if (sent >= renewal - lease / 12 && renewal < limit && !passing) {
            renewal = limit;
            long known = token;
            renew().thenAccept(reply -> locks.with(() -> renewed(sent, known, reply)));
        }
        return nextLook();
    }

    /** While it is being passed on, nothing is due before the reply. */
    long nextLook() {
        return passing ? until : Math.min(renewal, until);
    }

    /** Acts on the reply to a renewal. Most errors prove nothing: the renewal is repeated until the lock is lost. */
    private void renewed(long sent, long known, Object reply) {
        if (!state()) {
            return;
        } else if (reply instanceof LockException && !isGone(reply)) {
            renewal = Clock.now() + lease / 6;
            locks.refresh();
        } else if (reply instanceof Long now && (now == token || now == known || upgrading && now > token)) { // before an upgrade or after
            extend(sent);
        } else { // gone, or revoked: then it shall be free
            rests = NEVER;
            lose();
        }
        locks.keeper.lookBy(nextLook());
    }

    /** Finds the lock's node: in a cluster its slot may move, and Sentinel may name another primary. */
    void follow() {
        try {
            Node now = locks.node(key);
            locks.with(() -> node = now);
        } catch (LockException e) {
            // Nobody knows now.
        }
    }

    /** Whether it is held at this moment. */
    private boolean state() {
        if (Clock.now() >= until) {
            lose();
        }
        return !over;
    }

    /** A belief that has ended is never taken up again. */
    private void lose() {
        if (!over) {
            wasLost = true;
            locks.tell(key, this::farewell);
            end();
            lost.completeAsync(() -> null, locks.listeners);
        }
    }

    private void end() {
        over = true;
        locks.keeper.forget(this);
    }
}
