package mortise;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.LockSupport;
import mortise.Node.Answer;

/** Collects a server's later answers to requests, by a thread of its own, while anybody waits for one. */
final class Mailbox {
    private static final Duration WAIT = Duration.ofSeconds(2);

    private final Locks locks;
    private final String server;
    final Link link;

    // All below under the locks' mutex.
    private final Map<String, CompletableFuture<Answer>> pending = new HashMap<>(); // by owner
    private final Condition awaited; // somebody waits, or the locks are closed
    private String box; // its name at the server
    private long since; // distinguishes the box from an earlier one of the same name
    private boolean isFresh; // whoever waits does so since the box was last heard of: it may be another one
    private long last; // the number of the last letter that was read
    private LockException failure; // why no letters can be collected; null while they can

    Mailbox(Locks locks, String server) {
        this.locks = locks;
        this.server = server;
        link = new Link(locks.client, server);
        awaited = locks.mutex.newCondition();
        box = newBox();
        Locks.daemon("mortise-mail " + server, this::listen).start();
    }

    /** Awaits a letter to the owner, before its request is sent: it may come before the request's reply. Returns the box to name. */
    String expect(String owner, CompletableFuture<Answer> answer) {
        return locks.get(() -> {
            isFresh |= pending.isEmpty();
            pending.put(owner, answer);
            awaited.signal();
            return box;
        });
    }

    /** The server has put the request into the box of that number. Into another one than is known, it has to be put again. */
    void queued(String owner, long number) {
        locks.with(() -> {
            CompletableFuture<Answer> answer = pending.get(owner);
            if (isFresh) {
                use(number);
            } else if (number != since && answer != null) {
                answer.complete(Answer.failed(forgotten()));
            }
        });
    }

    private static LockException forgotten() {
        return new LockException.Unanswered("the server forgot the request", null);
    }

    private void use(long number) {
        if (number != since) { // another primary may count from a lower number
            since = number;
            last = 0;
        }
        isFresh = false;
    }

    /** Awaits no letter to the owner any more. Returns why none could be collected lately. */
    LockException forget(String owner) {
        return locks.get(() -> pending.remove(owner) == null ? null : failure);
    }

    /** Ends all waits: nothing will come. */
    void giveUp(LockException why) {
        locks.get(() -> List.copyOf(pending.values())).forEach(answer -> answer.complete(Answer.failed(why)));
    }

    void end() {
        link.close();
        locks.with(awaited::signal);
    }

    /** A name that is routed to this server: in a cluster a box has to be where the locks are. */
    private String newBox() {
        String made;
        int number = 0;
        do {
            made = "{" + locks.uuid + ":" + number++ + "}";
        } while (!isServed(made) && number < 100_000);
        return made;
    }

    private boolean isServed(String box) {
        try {
            return locks.client.node(box).equals(server);
        } catch (RuntimeException e) {
            return true; // nobody knows now
        }
    }

    /** Where no letters can be collected for long, all ask again, and get what is free. */
    private void listen() {
        long pause = Locks.FIRST_PAUSE;
        long failing = 0; // since when no letters can be collected; 0 while they can
        while (isAwaited()) {
            long sent = Clock.SYSTEM.now();
            Object reply = collect();
            if (reply instanceof LockException why) {
                failing = failing == 0 ? sent : failing;
                locks.with(() -> failure = why);
                if (!why.passes() || Clock.SYSTEM.now() - failing > Locks.PATIENCE) {
                    giveUp(new LockException.Unanswered("no letter from the server", why));
                    failing = 0;
                }
                locks.refresh();
                LockSupport.parkNanos(pause * 1_000_000);
                pause = Math.min(2 * pause, Locks.LAST_PAUSE);
            } else {
                locks.with(() -> read(sent, (List<?>) reply));
                pause = Locks.FIRST_PAUSE;
                failing = 0;
            }
            follow();
        }
        link.close();
    }

    /** Waits until anybody waits for a letter. False once the locks are closed. */
    private boolean isAwaited() {
        locks.with(() -> {
            while (pending.isEmpty() && !locks.isStopped()) {
                awaited.awaitUninterruptibly();
            }
        });
        return !locks.isStopped();
    }

    /** The reply to LOCK.MAIL, or why there is none. */
    private Object collect() {
        List<String> words = locks.get(() -> List.of("LOCK.MAIL", box, "WAIT", "" + WAIT.toMillis(), "AFTER", "" + since, "" + last));
        try {
            return link.send(List.of(words), Node.TIMEOUT.plus(WAIT)).get(0);
        } catch (RuntimeException | Error e) {
            return Node.failure("no letter from the server", e);
        }
    }

    /** Once the box is routed to another server, all who wait for its letters ask again. */
    private void follow() {
        if (!isServed(box)) {
            locks.with(() -> {
                box = newBox();
                isFresh = true;
                giveUp(new LockException.Unanswered("the server does not serve this lock any more", null));
            });
        }
    }

    /** Hands letters out. The requests in another box are gone. */
    private void read(long sent, List<?> reply) {
        long number = (Long) reply.get(0);
        long waited = (Long) reply.get(1);
        boolean isKnown = isFresh || number == since;
        failure = null;
        use(number);
        for (Object entry : (List<?>) reply.get(2)) {
            Map<String, Object> letter = fields((List<?>) entry);
            last = Math.max(last, (Long) letter.get("number"));
            CompletableFuture<Answer> answer = pending.get((String) letter.get("owner"));
            if (answer != null) { // else nobody wants it any more, and its name has left
                answer.complete(answer(letter, sent + waited));
            }
        }
        if (!isKnown) {
            giveUp(forgotten());
        }
    }

    private static Answer answer(Map<String, Object> letter, long replied) {
        return switch ((String) letter.get("result")) {
            case "granted" -> new Answer((Long) letter.get("token"), replied - (Long) letter.get("age"), null);
            case "refused" -> Answer.failed(new LockException.Refused((String) letter.get("error")));
            default -> new Answer(0, 0, null);
        };
    }

    /** The fields of a map that came as an array. */
    static Map<String, Object> fields(List<?> flat) {
        var read = new HashMap<String, Object>();
        for (int i = 0; i + 1 < flat.size(); i += 2) {
            read.put((String) flat.get(i), flat.get(i + 1));
        }
        return read;
    }
}
