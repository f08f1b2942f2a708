package mortise;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/** A lock that is held, or several that were taken at once, until {@link #unlock} or until it is lost. */
public final class Held implements AutoCloseable {
    private static final long NEVER = Long.MAX_VALUE;

    private final Locks locks;
    private final List<String> keys;
    final String owner;
    final long token;
    final long lease;
    private final long limit; // of maxHold, as a moment
    private final boolean isFixed; // it is not renewed
    private final CompletableFuture<Void> lost = new CompletableFuture<>();

    // All below under the mutex.
    private long until; // it counts as held until then
    private long renewal; // when it is to be renewed
    private boolean passing; // it is being passed on: nobody may rely on it
    private CompletableFuture<Held> upgrade; // under way, or null; during one the server may know the lock by a new token
    private boolean over; // unlocked or lost
    private volatile boolean wasLost;

    Held(Locks locks, Locks.Request r, String owner, long token) {
        this.locks = locks;
        this.keys = r.keys;
        this.owner = owner;
        this.lease = r.lease;
        this.limit = r.reader == null ? Clock.SYSTEM.now() + r.maxHold : r.reader.limit;
        this.isFixed = r.isFixed;
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
        Clock.SYSTEM.look();
        return locks.get(() -> state() && !passing);
    }

    /**
     * Completes when the lock is lost; never, where it is unlocked before. What depends on it may block: it has threads of its own. Each call
     * returns another future, which is kept until the lock is over: to ask often, use {@link #isHeld}.
     */
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
        settle(release(0));
    }

    @Override
    public void close() {
        unlock();
    }

    /**
     * Sends the release of all but so many permits of a semaphore: nothing if the lock is over already. Without an answer a release of some is
     * repeated, and of all is followed by a LEAVE.
     */
    CompletableFuture<List<Object>> release(int left) {
        return locks.get(() -> {
            if (!state()) {
                return CompletableFuture.completedFuture(List.of());
            }
            locks.job(+1);
            Function<String, List<String>> words = key -> left == 0 ? List.of("LOCK.RELEASE", key, owner, "ALL", "TOKEN", "" + token)
                : List.of("LOCK.RELEASE", key, owner, "READ", "HOLDS", "" + left, "TOKEN", "" + token);
            var replies = each(words);
            if (left == 0) {
                end();
            }
            return replies.thenApply(arrived -> {
                if (left > 0 && arrived.get(0) instanceof LockException e && e.passes()) {
                    locks.insist(words.apply(key())); // it lowers the count, also where it is done already
                } else if (left > 0 && !(arrived.get(0) instanceof Long)) {
                    locks.with(this::lose);
                } else if (arrived.stream().anyMatch(Held::isFailure)) {
                    locks.leave(keys, owner);
                }
                locks.job(-1);
                return arrived;
            });
        });
    }

    /** Awaits the replies to a release, and reports that it is refused for good, or a loss. */
    void settle(CompletableFuture<List<Object>> released) {
        List<Object> replies = released.join();
        for (LockException problem : failures(replies)) {
            if (isRefusal(problem)) {
                throw problem;
            }
        }
        if (wasLost || replies.stream().anyMatch(Held::isGone)) {
            throw gone();
        }
    }

    /** The locks close: what is renewed is unlocked. */
    void abandon() {
        if (isFixed) {
            locks.with(this::end);
        } else {
            release(0);
        }
    }

    /** The replies to a command for each of the keys, which go out together. Under the mutex. */
    private CompletableFuture<List<Object>> each(Function<String, List<String>> command) {
        var replies = keys.stream().map(key -> locks.send(command.apply(key))).toList();
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
     * @throws IllegalStateException while another thread passes it on, or if several locks were taken at once: each would have a token of
     *     its own then
     */
    public long passTo(String owner, Duration lease) {
        if (keys.size() > 1) {
            throw new IllegalStateException("several locks that were taken at once cannot be passed on");
        }
        return pass(Objects.requireNonNull(owner, "owner"), lease, false);
    }

    /**
     * Unlocks it, but keeps it taken for that long from now: a job then runs once in that time, however short it is. It passes the lock to a
     * name that nobody uses. If a server does not answer, the library repeats that in the background.
     *
     * @throws LockException.Lost if it was lost before
     * @throws LockException.Refused after which it is held as before
     * @throws LockException.Unconfirmed if it stays taken, and too few replicas know that
     */
    public void keepFor(Duration time) {
        String nobody = locks.newName(null, null);
        pass(nobody, time, true);
        if (locks.replicas > 0) {
            var failures = failures(locks.get(() -> each(key -> List.of("LOCK.RENEW", key, nobody, "" + time.toMillis()))).join());
            if (!failures.isEmpty()) {
                throw failures.get(0);
            }
        }
    }

    private long pass(String heir, Duration lease, boolean isRepeated) {
        String ms = "" + Locks.lease(lease);
        Function<String, List<String>> words = key -> List.of("LOCK.PASS", key, owner, heir, ms, "TOKEN", "" + token);
        locks.job(+1);
        try {
            List<Object> replies = locks.get(() -> {
                if (passing) {
                    throw new IllegalStateException("the lock " + key() + " is being passed on already");
                } else if (!state()) {
                    throw gone();
                }
                passing = true;
                return each(words);
            }).join();
            return locks.get(() -> passed(replies, heir, isRepeated ? words : null));
        } finally {
            locks.job(-1);
        }
    }

    /**
     * Acts on the replies to a pass. If only some of the locks were passed, or nobody knows, it is repeated by these words; without any both
     * names leave all of them.
     */
    private long passed(List<Object> replies, String heir, Function<String, List<String>> words) {
        passing = false;
        boolean isGone = replies.stream().anyMatch(Held::isGone);
        List<LockException> failures = failures(replies);
        if (!isGone && failures.isEmpty()) {
            end();
            return replies.stream().mapToLong(Long.class::cast).max().orElseThrow();
        }
        LockException why = isGone ? gone() : failures.get(0);
        boolean isNonePassed = failures.size() == replies.size() && why instanceof LockException.Refused;
        if (isNonePassed && (words == null || !why.passes())) { // it has changed nothing
            locks.keeper.lookBy(nextLook());
        } else if (words != null && !isGone) {
            keys.forEach(key -> locks.insist(words.apply(key)));
            end();
            return 0;
        } else {
            lose();
            locks.leave(keys, heir);
        }
        throw why;
    }

    /** Whether this reply proves that nothing is held: there is no such hold, or the key was overwritten. */
    private static boolean isGone(Object reply) {
        return reply == null || reply instanceof LockException.Refused refused && refused.code().equals("WRONGTYPE");
    }

    /** Whether this reply proves nothing about a hold. */
    private static boolean isFailure(Object reply) {
        return reply instanceof LockException && !isGone(reply);
    }

    private static List<LockException> failures(List<Object> replies) {
        return replies.stream().filter(Held::isFailure).map(LockException.class::cast).toList();
    }

    /** Whether this reply says that the server never does that. */
    private static boolean isRefusal(Object reply) {
        return isFailure(reply) && reply instanceof LockException.Refused refused && !refused.passes();
    }

    /** Keeps only a read hold: waiting readers are granted. */
    void downgrade() {
        Object reply = locks.send(List.of("LOCK.RLOCK", key(), owner, "" + lease, "HOLDS", "1", "TOKEN", "" + token)).join();
        if (reply instanceof Long) {
            reply = locks.send(List.of("LOCK.RELEASE", key(), owner, "WRITE", "HOLDS", "0", "TOKEN", "" + token)).join();
            if (isRefusal(reply)) {
                locks.with(this::lose);
            }
        }
        if (isFailure(reply) && reply instanceof LockException.Refused refused) { // without memory, say: it writes as before
            throw refused;
        }
        if (!Long.valueOf(1).equals(reply)) {
            locks.with(this::lose);
            throw gone();
        }
    }

    /**
     * Adds a write hold to the read hold. Returns both, as another lock that takes the place of this one; null if others read for that
     * long. When the outcome is unknown, all is lost.
     */
    Held upgrade(long wait, boolean interruptible) throws InterruptedException {
        Locks.Request request = locks.take(key());
        request.reader = this;
        request.lease = lease;
        try {
            Held both = request.within(wait, interruptible);
            if (both != null) {
                locks.with(() -> (state() ? this : both).end());
                both.check();
            }
            return both;
        } catch (LockException e) {
            if (!e.changedNothing() || isGone(e)) {
                locks.with(this::lose);
            }
            throw isGone(e) ? gone() : e;
        } catch (InterruptedException e) {
            locks.with(this::lose);
            throw e;
        } finally {
            locks.with(() -> upgrade = null);
        }
    }

    /** Names the request to upgrade the lock. It fails once the lock is lost: no letter would come. */
    void upgradeBy(CompletableFuture<Held> request) {
        locks.with(() -> {
            upgrade = request;
            if (over) {
                request.completeExceptionally(gone());
            }
        });
    }

    /** Counts the lock as held until a lease after that moment, less what clocks may differ by. */
    private void believe(long begun, long lease) {
        until = Math.min(Math.max(until, begun + lease - lease / 100 - 2), limit);
        renewal = isFixed || until == limit ? NEVER : begun + lease / 3;
    }

    /**
     * Counts a lock as held that was granted at that moment. It asks once more where replicas have to confirm the lock, or where more than
     * half of the lease has gone by the time the grant is known, if it is renewed at all. Why it is not held then; null if it is.
     */
    CompletableFuture<LockException> confirm(long granted) {
        believe(granted, lease);
        boolean isRecent = until - Clock.SYSTEM.now() > lease / 2 || until == limit || isFixed;
        return isRecent && locks.replicas == 0 ? CompletableFuture.completedFuture(null) : prolong(lease);
    }

    /**
     * Makes the lock last for that long from now on, if it lasts no longer anyway: one that is not renewed by itself.
     *
     * @throws LockException.Lost if it was lost
     * @throws LockException.Unanswered when the outcome is unknown; it is held until it would have been without
     */
    public void extend(Duration lease) {
        check();
        LockException problem = prolong(Locks.lease(lease)).join();
        if (problem instanceof LockException.Lost) {
            locks.with(this::lose);
        }
        if (problem != null) {
            throw problem;
        }
    }

    /** Renews it out of turn. Why it is not held then; null if it is. */
    CompletableFuture<LockException> prolong(long lease) {
        return locks.get(() -> renew(lease, key -> List.of("LOCK.RENEW", key, owner, "" + lease, "TOKEN", "" + token)));
    }

    /** Sends a renewal. Most errors prove nothing; another token shows that it was revoked, or taken over. Under the mutex. */
    private CompletableFuture<LockException> renew(long lease, Function<String, List<String>> words) {
        long sent = Clock.SYSTEM.now();
        return each(words).thenApply(replies -> locks.get(() -> {
            if (over || !replies.stream().allMatch(reply -> isFailure(reply) || isToken(reply))) {
                return gone();
            }
            var failures = failures(replies);
            if (failures.isEmpty()) {
                believe(sent, lease);
                return Clock.SYSTEM.now() < until ? null : gone();
            }
            return failures.get(0);
        }));
    }

    /** Renews it if that is due, and returns when to check again. Under the mutex, like the next ones. */
    long keep() {
        if (!state()) {
            return NEVER;
        }
        if (Clock.SYSTEM.now() >= renewal - lease / 12 && !passing) {
            renewal = NEVER;
            renew(lease, key -> List.of("LOCK.RENEW", key, owner, "" + lease)).thenAccept(problem -> locks.with(() -> renewed(problem)));
        }
        return nextLook();
    }

    /** While it is being passed on, nothing is due before the reply. */
    long nextLook() {
        return passing ? until : Math.min(renewal, until);
    }

    /** Acts on what a renewal has shown: without an answer it is repeated until the lock is lost. */
    private void renewed(LockException problem) {
        if (!state()) {
            return;
        } else if (problem instanceof LockException.Lost) { // gone, or revoked: then it shall be free
            lose();
        } else if (problem != null) {
            renewal = Clock.SYSTEM.now() + lease / 6;
            locks.refresh();
        }
        locks.keeper.lookBy(nextLook());
    }

    /** Whether it is the hold's token, before an upgrade or after. */
    private boolean isToken(Object reply) {
        return reply instanceof Long now && (now == token || upgrade != null && now > token);
    }

    /** Whether it is held at this moment. */
    private boolean state() {
        if (Clock.SYSTEM.now() >= until) {
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
            lost.completeAsync(() -> null, locks::listen);
            if (upgrade != null) {
                upgrade.completeExceptionally(gone());
            }
        }
    }

    private void end() {
        over = true;
        locks.keeper.forget(this);
    }
}
