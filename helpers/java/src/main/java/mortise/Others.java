package mortise;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Commands about locks that others hold. */
final class Others {
    /** For how long a server that does not answer is asked again, in ms. */
    private static final long PATIENCE = 10_000;

    private final Locks locks;

    Others(Locks locks) {
        this.locks = locks;
    }

    /** The holders of the lock, by the server. */
    List<Map<String, Object>> holds(String key) {
        Object reply = ask("LOCK.INFO", key, "COUNT", "" + Integer.MAX_VALUE);
        return reply == null ? List.of()
            : ((List<?>) Node.fields((List<?>) reply).get("holds")).stream().map(hold -> Node.fields((List<?>) hold)).toList();
    }

    Duration revoke(String key, String owner) {
        return ask("LOCK.REVOKE", key, owner) instanceof Long left ? Duration.ofMillis(left) : Duration.ZERO;
    }

    static Duration later(Duration one, Duration other) {
        return one.compareTo(other) < 0 ? other : one;
    }

    private Object ask(String... words) {
        return checked(locks.node(words[1]).send(words));
    }

    private Object checked(CompletableFuture<Object> replied) {
        Object reply = replied.join();
        if (reply instanceof LockException e) {
            locks.refresh();
            throw e;
        }
        return reply;
    }

    /** Asks again where the server refuses only for now. If the outcome is unknown, the new name leaves. */
    Held takeOver(Locks.Request r, String owner, long token) throws InterruptedException {
        String heir = locks.newName(r.task, r.holder);
        long end = Clock.now() + PATIENCE;
        boolean known = true; // whether no hold can be left under the new name
        try {
            for (long pause = Locks.FIRST_PAUSE; ; pause = Math.min(2 * pause, Locks.LAST_PAUSE)) {
                Node node = locks.node(r.key);
                long sent = Clock.now();
                known = false;
                Object reply = Node.reply(node.send("LOCK.PASS", r.key, owner, heir, "" + r.lease, "TOKEN", "" + token), PATIENCE, true);
                if (reply instanceof Long granted) {
                    var held = new Held(locks, node, r, heir, granted);
                    held.extend(sent);
                    if (locks.replicas > 0) {
                        confirm(held);
                    }
                    known = true;
                    return start(held, heir);
                }
                known = !(reply instanceof LockException.Unanswered);
                if (!(reply instanceof LockException e)) {
                    throw new LockException.Lost(r.key);
                } else if (!known || !e.passes() || locks.isClosing() || Clock.now() >= end) {
                    throw e;
                }
                locks.refresh();
                Thread.sleep(pause);
            }
        } finally {
            if (!known) {
                locks.leave(r.keys(), heir);
            }
        }
    }

    /** Goes on with a hold under its own name. */
    Held resume(Locks.Request r, String owner, long token) {
        Node node = locks.node(r.key);
        long sent = Clock.now();
        if (checked(node.renew("LOCK.RENEW", r.key, owner, "" + r.lease, "TOKEN", "" + token)) == null) {
            throw new LockException.Lost(r.key);
        }
        var held = new Held(locks, node, r, owner, token);
        held.extend(sent);
        return start(held, owner);
    }

    private static void confirm(Held held) {
        LockException problem = held.confirm().join();
        if (problem != null) {
            throw problem;
        }
    }

    private Held start(Held held, String owner) {
        try {
            locks.keeper.start(held);
            return held;
        } catch (LockException.Closed e) {
            locks.leave(held.keys(), owner);
            throw e;
        }
    }
}
