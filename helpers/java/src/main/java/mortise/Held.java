package mortise;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/** A lock that is held, or several that were taken at once, until {@link #unlock} or until it is lost. */
public final class Held implements AutoCloseable {
    private final Locks locks;
    private final List<String> keys;
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
    private boolean upgrading; // the token may be another one than is known
    private boolean over; // unlocked or lost
    private volatile boolean wasLost;

    Held(Locks locks, Node node, Locks.Request r, String owner, long token) {
        this.locks = locks;
        this.node = node;
        this.keys = r.keys();
        this.owner = owner;
        this.lease = r.lease;
        this.limit = Clock.now() + r.maxHold;
        this.token = token;
    }

    /** The key, or the first of several. */
    public String key() {
        return keys.get(0);
    }

    public List<String> keys() {
        return keys;
    }

    private LockException.Lost gone() {
        return new LockException.Lost(String.join(", ", keys));
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
            throw gone();
        }
        return token;
    }

    /**
     * The words of a command that runs the given one only while the lock is held, which the server checks in the same moment; else its
     * reply is an error that begins with {@code NOTHELD}. For data on the lock's server, in the slot of its key. Send it
     * over a client that does not repeat commands by itself. Of several locks, the server checks the first.
     */
    public List<String> guard(String... command) {
        var words = new ArrayList<>(List.of("LOCK.GUARD", key(), owner, "" + token));
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
     * Gives the lock back. If a server does not answer, the library leaves the lock in the background.
     *
     * @throws LockException.Lost if it was lost before
     * @throws LockException.Refused if the server's user may not release it: the library leaves the lock, if it may do that
     */
    public void unlock() {
        settle(release());
    }

    @Override
    public void close() {
        unlock();
    }

    /** Sends the release, once: null if the lock is over already. What is not answered is left. */
    CompletableFuture<List<Object>> release() {
        follow();
        return locks.get(() -> {
            if (!state()) {
                return null;
            }
            locks.job(+1);
            end();
            return each(key -> List.of("LOCK.RELEASE", key, owner, "ALL", "TOKEN", "" + token)).thenApply(replies -> {
                if (replies.stream().anyMatch(Held::isFailure)) {
                    locks.leave(keys, owner);
                }
                locks.job(-1);
                return replies;
            });
        });
    }

    /** Awaits the answers to a release, and reports a loss or that it is forbidden. */
    void settle(CompletableFuture<List<Object>> released) {
        List<Object> replies = released == null ? List.of() : released.join();
        if (released == null ? wasLost : replies.stream().anyMatch(Held::isGone)) {
            throw gone();
        }
        replies.stream().filter(Held::isForbidden).findFirst().ifPresent(reply -> {
            throw (LockException) reply;
        });
    }

    /** The replies to a command for each of the keys, which go out together. Under the mutex. */
    private CompletableFuture<List<Object>> each(Function<String, List<String>> command) {
        return all(keys.stream().map(key -> node.send(command.apply(key).toArray(String[]::new))).toList());
    }

    private CompletableFuture<List<Object>> renew(String owner, long lease) {
        return all(keys.stream().map(key -> node.renew("LOCK.RENEW", key, owner, "" + lease)).toList());
    }

    private static CompletableFuture<List<Object>> all(List<CompletableFuture<Object>> replies) {
        return CompletableFuture.allOf(replies.toArray(CompletableFuture[]::new))
            .thenApply(all -> replies.stream().map(CompletableFuture::join).toList());
    }

    /**
     * Gives the lock to another name with that lease, and nobody is granted in between. Returns the new token: a program that knows the
     * token and the name goes on with {@link Locks.Request#takeOver}.
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
            CompletableFuture<List<Object>> replies = locks.get(() -> {
                if (passing) {
                    throw new IllegalStateException("the lock " + key() + " is being passed on already");
                }
                passing = state();
                return passing ? each(key -> List.of("LOCK.PASS", key, this.owner, owner, "" + ms, "TOKEN", "" + token)) : null;
            });
            if (replies == null) {
                throw gone();
            }
            List<Object> arrived = replies.join();
            return locks.get(() -> passed(arrived, owner));
        } finally {
            locks.job(-1);
        }
    }

    /**
     * Unlocks it, but keeps it taken for that long from now: a job then runs once in that time, however short it is. It passes the lock to a
     * name that nobody uses, and throws what {@link #passTo} does.
     *
     * @throws LockException.Unconfirmed if it stays taken, and too few replicas know that
     */
    public void keepFor(Duration time) {
        String nobody = locks.newName(null, null);
        passTo(nobody, time);
        if (locks.replicas > 0) {
            locks.get(() -> renew(nobody, Times.lease(time))).join().stream().filter(Held::isFailure).findFirst().ifPresent(reply -> {
                throw (LockException) reply;
            });
        }
    }

    /** Acts on the replies to a pass. If only some of the locks were passed, or nobody knows, both names leave all of them. */
    private long passed(List<Object> replies, String heir) {
        passing = false;
        List<LockException> failures = replies.stream().filter(Held::isFailure).map(LockException.class::cast).toList();
        boolean isNonePassed = failures.size() == replies.size();
        if (isNonePassed && failures.get(0) instanceof LockException.Refused refused) { // it has changed nothing
            renewal = Math.min(renewal, Clock.now());
            locks.keeper.lookBy(renewal);
            throw refused;
        } else if (replies.stream().anyMatch(Held::isGone)) {
            lose();
            throw gone();
        } else if (!failures.isEmpty()) {
            lose();
            locks.leave(keys, heir);
            throw failures.get(0);
        }
        if (!over) {
            end();
        }
        return replies.stream().mapToLong(Long.class::cast).max().orElseThrow();
    }

    /** Keeps only that many permits of a semaphore, and returns as {@link #release}. */
    CompletableFuture<List<Object>> keepPermits(int left) {
        follow();
        return locks.get(() -> !state() ? null
            : each(key -> List.of("LOCK.RELEASE", key, owner, "READ", "HOLDS", "" + left, "TOKEN", "" + token)).thenApply(replies -> {
                if (replies.get(0) instanceof Long) {
                    return replies;
                }
                locks.with(this::lose);
                return isForbidden(replies.get(0)) ? replies : null;
            }));
    }

    /** Whether this reply proves that nothing is held: there is no such hold, or the key was overwritten. */
    private static boolean isGone(Object reply) {
        return reply == null || reply instanceof LockException.Refused refused && refused.code().equals("WRONGTYPE");
    }

    /** Whether this reply proves nothing about a hold. */
    private static boolean isFailure(Object reply) {
        return reply instanceof LockException && !isGone(reply);
    }

    private static boolean isForbidden(Object reply) {
        return reply instanceof LockException.Refused refused && refused.code().equals("NOPERM");
    }

    /** Keeps only a read hold: waiting readers are granted. */
    void downgrade() {
        follow();
        node.send("LOCK.RLOCK", key(), owner, "" + lease, "HOLDS", "1", "TOKEN", "" + token);
        Object reply = node.send("LOCK.RELEASE", key(), owner, "WRITE", "HOLDS", "0", "TOKEN", "" + token).join();
        if (!Long.valueOf(1).equals(reply)) {
            locks.with(this::lose);
            throw isForbidden(reply) ? (LockException) reply : gone();
        }
    }

    /** Adds a write hold to the read hold. When the outcome is unknown, all is lost. */
    boolean upgrade(long left, boolean interruptible) throws InterruptedException {
        follow();
        locks.with(() -> upgrading = true);
        var words = new ArrayList<>(List.of("LOCK.WLOCK", key(), owner, "" + lease, "HOLDS", "1", "TOKEN", "" + token));
        var asked = node.ask(words, owner, left);
        try {
            Node.Answer answer = Node.await(asked, Locks.FOREVER, interruptible);
            if (answer.error() != null) {
                throw answer.error();
            }
            confirmUpgrade(answer.token());
            locks.with(() -> token = Math.max(token, answer.token()));
            check();
            return answer.token() != 0;
        } catch (LockException.Refused e) { // it has changed nothing
            if (isGone(e)) {
                locks.with(this::lose);
                check();
            }
            throw e;
        } catch (RuntimeException | InterruptedException e) {
            locks.with(this::lose);
            asked.complete(Node.Answer.failed(new LockException.Unanswered("nobody waits any more", e)));
            throw e;
        } finally {
            locks.with(() -> upgrading = false);
        }
    }

    /** A writer only once replicas have that: by its new token. */
    private void confirmUpgrade(long granted) {
        if (locks.replicas == 0 || granted <= token) {
            return;
        }
        long sent = Clock.now();
        Object reply = node.renew("LOCK.RENEW", key(), owner, "" + lease, "TOKEN", "" + granted).join();
        if (reply instanceof LockException.Unconfirmed few) {
            throw few;
        } else if (!Long.valueOf(granted).equals(reply)) {
            throw new LockException.Unanswered("the upgrade is not confirmed", reply instanceof LockException e ? e : null);
        }
        locks.with(() -> {
            if (state()) {
                extend(sent);
            }
        });
    }

    /** Counts the lock as held until a lease after that moment, less what clocks may differ by. */
    void extend(long begun) {
        until = Math.min(Math.max(until, begun + lease - lease / 100 - 2), limit);
        renewal = until == limit ? limit : begun + lease / 3;
    }

    /**
     * Asks once more where replicas have to confirm the lock, or where more than half of the lease has gone by the time the grant is known.
     * Why it is not held then; null if it is.
     */
    CompletableFuture<LockException> confirm() {
        long sent = Clock.now();
        boolean isRecent = until - sent > lease / 2 || until == limit;
        if (isRecent && locks.replicas == 0) {
            return CompletableFuture.completedFuture(null);
        }
        return locks.get(() -> renew(owner, lease)).thenApply(replies -> locks.get(() -> {
            for (Object reply : replies) {
                if (isFailure(reply)) {
                    return (LockException) reply;
                } else if (!Long.valueOf(token).equals(reply) || Clock.now() >= until) {
                    return new LockException.Unanswered("the grant was told too late", null);
                }
            }
            extend(sent);
            return null;
        }));
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
            renew(owner, lease).thenAccept(replies -> locks.with(() -> renewed(sent, known, replies)));
        }
        return nextLook();
    }

    /** While it is being passed on, nothing is due before the reply. */
    long nextLook() {
        return passing ? until : Math.min(renewal, until);
    }

    /** Acts on the replies to a renewal. Most errors prove nothing: the renewal is repeated until the lock is lost. */
    private void renewed(long sent, long known, List<Object> replies) {
        if (!state()) {
            return;
        } else if (!replies.stream().allMatch(reply -> isFailure(reply) || isToken(reply, known))) { // gone, or revoked: then it shall be free
            lose();
        } else if (replies.stream().anyMatch(Held::isFailure)) {
            renewal = Clock.now() + lease / 6;
            locks.refresh();
        } else {
            extend(sent);
        }
        locks.keeper.lookBy(nextLook());
    }

    /** Whether it is the hold's token, before an upgrade or after. */
    private boolean isToken(Object reply, long known) {
        return reply instanceof Long now && (now == token || now == known || upgrading && now > token);
    }

    /** Finds the lock's node: in a cluster its slot may move, and Sentinel may name another primary. */
    void follow() {
        try {
            Node now = locks.node(key());
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
            locks.leave(keys, owner);
            end();
            lost.completeAsync(() -> null, locks.listeners);
        }
    }

    private void end() {
        over = true;
        locks.keeper.forget(this);
    }
}
