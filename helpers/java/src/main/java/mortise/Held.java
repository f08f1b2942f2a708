package mortise;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/** A lock that is held, until {@link #unlock} or until it is lost. */
public final class Held implements AutoCloseable {
    final long lease;
    private final Locks locks;
    private final Node granted; // the server that did
    private final String key;
    private final String owner;
    private final long limit; // of maxHold
    private final CompletableFuture<Void> lost = new CompletableFuture<>();

    private final ReentrantLock guard = new ReentrantLock();
    private long token;
    private long until; // it is believed until then
    private long asked; // when the server was last asked with success
    private boolean renewing;
    private boolean upgrading; // the token may be another one than is known
    private boolean over; // unlocked or lost
    private boolean wasLost;
    private Future<?> alarm;

    Held(Locks locks, Node node, Request r, String owner, long token, long begun, long limit) {
        this.locks = locks;
        this.granted = node;
        this.key = r.key;
        this.owner = owner;
        this.lease = r.lease;
        this.limit = limit;
        this.token = token;
        extend(begun);
    }

    public String key() {
        return key;
    }

    /**
     * The fencing token, larger than that of every grant before. Send it along with what you write, and refuse a write
     * whose token is smaller than one that was seen already.
     */
    public long token() {
        guard.lock();
        try {
            return token;
        } finally {
            guard.unlock();
        }
    }

    /** The token, if the lock is held at this moment. */
    public long check() {
        if (!isHeld()) {
            throw new LockException.Lost(key);
        }
        return token();
    }

    /**
     * The words of a command that runs that one only while the lock is held, judged by the server in the same moment; else its
     * answer is an error that begins with {@code NOTHELD}. For data on the lock's server, in the slot of its key. Send it
     * over a client that does not repeat commands by itself.
     */
    public List<String> guard(String... command) {
        var words = new ArrayList<>(List.of("LOCK.GUARD", key, owner, Long.toString(token())));
        words.addAll(List.of(command));
        return words;
    }

    public boolean isHeld() {
        return isHeld(BootClock.look());
    }

    private boolean isHeld(long now) {
        guard.lock();
        try {
            if (now >= until) {
                lose();
            }
            return !over;
        } finally {
            guard.unlock();
        }
    }

    /** Completes when the lock is lost; never, where it is unlocked before. */
    public CompletableFuture<Void> lost() {
        return lost.copy();
    }

    /**
     * Gives the lock back. A server that does not answer is told in the background.
     *
     * @throws LockException.Lost if it was lost before
     */
    public void unlock() {
        locks.job(+1);
        try {
            isHeld(BootClock.now());
            CompletableFuture<Object> released = release();
            if (released == null ? isLost() : released.join() == null) {
                throw new LockException.Lost(key);
            }
        } finally {
            locks.job(-1);
        }
    }

    @Override
    public void close() {
        unlock();
    }

    private boolean isLost() {
        guard.lock();
        try {
            return wasLost;
        } finally {
            guard.unlock();
        }
    }

    /** Sends the release, once: null if the lock is over already. What is not answered is left. */
    CompletableFuture<Object> release() {
        guard.lock();
        try {
            if (over) {
                return null;
            }
            locks.job(+1);
            end();
        } finally {
            guard.unlock();
        }
        return at().send("LOCK.RELEASE", key, owner, "ALL", "TOKEN", Long.toString(token)).thenApply(reply -> {
            if (reply instanceof RuntimeException) {
                locks.leave(key, owner);
            }
            locks.job(-1);
            return reply;
        });
    }

    /** Keeps a read hold only: waiting readers get in. */
    void downgrade() {
        Node node = at();
        node.send("LOCK.RLOCK", key, owner, Long.toString(lease), "HOLDS", "1", "TOKEN", Long.toString(token));
        Object reply = node.send("LOCK.RELEASE", key, owner, "WRITE", "HOLDS", "0", "TOKEN", Long.toString(token)).join();
        if (!(reply instanceof Long left) || left != 1) {
            giveUp();
            check();
        }
    }

    /** Adds a write hold to the read hold. Where it is not known whether that came about, all is lost. */
    boolean upgrade(long left, boolean interruptible) throws InterruptedException {
        setUpgrading(true);
        Node node = at();
        try (Node.Pending letter = left > 0 ? node.expect(owner) : null) {
            var words = new ArrayList<>(List.of("LOCK.WLOCK", key, owner, Long.toString(lease), "HOLDS", "1", "TOKEN", Long.toString(token)));
            if (letter != null) {
                words.addAll(List.of("WAIT", left == Locks.FOREVER ? "0" : Long.toString(left), "MAIL", letter.box.name));
            }
            long granted = locks.ask(node, words, letter, left, interruptible).token();
            guard.lock();
            try {
                token = Math.max(token, granted);
            } finally {
                guard.unlock();
            }
            check();
            return granted != 0;
        } catch (LockException.Refused e) {
            throw e; // it has changed nothing
        } catch (RuntimeException | InterruptedException e) {
            giveUp();
            throw e;
        } finally {
            setUpgrading(false);
        }
    }

    private void giveUp() {
        guard.lock();
        try {
            lose();
        } finally {
            guard.unlock();
        }
    }

    private void setUpgrading(boolean now) {
        guard.lock();
        try {
            upgrading = now;
        } finally {
            guard.unlock();
        }
    }

    /** Believes the lock until a lease after that moment, less what clocks may differ by. */
    private void extend(long begun) {
        until = Math.min(Math.max(until, begun + lease - lease / 100 - 2), limit);
        asked = Math.max(asked, begun);
    }

    /** Asks once more where more than half of the lease has gone by the time the grant is known. */
    void confirm(boolean interruptible) throws InterruptedException {
        if (until - BootClock.now() > lease / 2 || until == limit) {
            return;
        }
        long sent = BootClock.now();
        Object reply = Locks.await(renewal(), Locks.FOREVER, interruptible);
        if (!(reply instanceof Long same) || same != token || BootClock.now() >= until) {
            throw new LockException.Unanswered("the grant was told too late", null);
        }
        extend(sent);
    }

    /** The server that the lock is on: in a cluster its slot may move. */
    private Node at() {
        try {
            return locks.node(key);
        } catch (LockException e) {
            return granted;
        }
    }

    private CompletableFuture<Object> renewal() {
        return upgrading
            ? at().send("LOCK.RENEW", key, owner, Long.toString(lease))
            : at().send("LOCK.RENEW", key, owner, Long.toString(lease), "TOKEN", Long.toString(token));
    }

    /** Has the deadline looked at when it comes. */
    void start() {
        guard.lock();
        try {
            if (!over) {
                alarm = locks.timer.schedule(this::ring, Math.max(1, until - BootClock.now()), TimeUnit.MILLISECONDS);
            }
        } finally {
            guard.unlock();
        }
    }

    private void ring() {
        if (isHeld()) {
            start();
        }
    }

    void renewIfDue(long period) {
        if (!isHeld(BootClock.now())) {
            return;
        }
        guard.lock();
        try {
            if (!renewing && until != limit && BootClock.now() + period >= asked + lease / 3) {
                renewing = true;
                long sent = BootClock.now();
                renewal().thenAccept(reply -> renewed(sent, reply));
            }
        } finally {
            guard.unlock();
        }
    }

    /** Hears what became of a renewal. An error says nothing: it is tried again until the lock is lost. */
    private void renewed(long sent, Object reply) {
        guard.lock();
        try {
            renewing = false;
            boolean ours = reply instanceof Long now && (now == token || upgrading && now > token);
            if (over) {
                return;
            } else if (reply == null || BootClock.now() >= until || reply instanceof Long && !ours) {
                lose();
            } else if (ours) {
                extend(sent);
            } else {
                locks.refreshSoon();
            }
        } finally {
            guard.unlock();
        }
    }

    /** A belief that has ended is never taken up again. The guard is held. */
    private void lose() {
        if (!over) {
            wasLost = true;
            locks.leave(key, owner);
            end();
            lost.completeAsync(() -> null);
        }
    }

    private void end() {
        over = true;
        if (alarm != null) {
            alarm.cancel(false);
        }
        locks.forget(this);
    }
}
