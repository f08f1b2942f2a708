package mortise;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;

/**
 * A server: commands go out in pipelines over one connection, later answers come by mail over a second one, whatever the number of locks.
 * One thread each; they are daemons and platform threads, so that no virtual thread is pinned by a client's I/O.
 */
final class Node {
    /** How long a server may take to answer. */
    static final Duration TIMEOUT = Duration.ofSeconds(2);

    private static final long CONNECT = 10_000; // how long a request that does not wait waits for a first connection, in ms
    private static final long LATE = 1000; // how long after the end of a wait its answer may still come
    private static final Duration MAIL_WAIT = Duration.ofSeconds(2);
    private static final int MOST_COMMANDS = 512;
    private static final long IDLE = 10_000; // for how long a box outlives the last who waited, or the last call for letters

    private final Locks locks;
    private final String name;
    private final LinkedBlockingQueue<Command> queue = new LinkedBlockingQueue<>();
    private final Map<String, Pending> pending = new HashMap<>(); // by owner
    private Box box; // null while nobody listens

    private record Command(List<String> words, CompletableFuture<Object> reply) {}

    /** The outcome of a request: a token and when its lease began if known, no token for denied, or why nothing can come. */
    record Answer(long token, long begun, RuntimeException error) {
        static Answer failed(RuntimeException error) {
            return new Answer(0, 0, error);
        }
    }

    Node(Locks locks, String name) {
        this.locks = locks;
        this.name = name;
        Threads.daemon("mortise-commands " + name, this::pump).start();
    }

    /** Has the command sent. Never blocks; there always is a reply: a LockException where the server has none. */
    CompletableFuture<Object> send(String... words) {
        var command = new Command(List.of(words), new CompletableFuture<>());
        queue.add(command);
        if (locks.isStopped()) { // the pump may have gone
            command.reply.complete(new LockException.Closed());
        }
        return command.reply;
    }

    private void pump() {
        var batch = new ArrayList<Command>();
        while (!locks.isStopped()) {
            try {
                batch.add(queue.take());
            } catch (InterruptedException e) {
                continue; // stopped
            }
            locks.with(() -> queue.drainTo(batch, MOST_COMMANDS - 1)); // what is renewed together goes out together
            List<Object> replies;
            try {
                replies = exchange(batch.stream().map(Command::words).toList());
                locks.answered = true;
            } catch (RuntimeException | Error e) { // whatever a client throws, this thread goes on
                replies = Collections.nCopies(batch.size(), failure("no answer from the server", e));
            }
            for (int i = 0; i < batch.size(); i++) {
                batch.get(i).reply.complete(replies.get(i));
            }
            batch.clear();
        }
        for (Command left; (left = queue.poll()) != null; ) {
            left.reply.complete(new LockException.Closed());
        }
    }

    /** The replies. What is refused because its slot is moving to another server is asked there. */
    private List<Object> exchange(List<List<String>> batch) {
        var replies = new ArrayList<>(locks.client.send(name, batch, false, TIMEOUT));
        for (int i = 0; i < replies.size(); i++) {
            if (replies.get(i) instanceof LockException.Refused refused && refused.code().equals("ASK")) {
                String target = target(refused.getMessage(), name);
                replies.set(i, locks.client.send(target, List.of(List.of("ASKING"), batch.get(i)), false, TIMEOUT).get(1));
            }
        }
        return replies;
    }

    /** The server that an ASK names: without a host, or where that is unknown, it is the one that replied. */
    static String target(String ask, String replied) {
        String named = ask.split(" ")[2];
        int port = named.lastIndexOf(':');
        boolean isUnknown = port == 0 || named.startsWith("?:");
        return isUnknown ? replied.substring(0, replied.lastIndexOf(':')) + named.substring(port) : named;
    }

    /** What a client's exception says of the commands that it was to send. */
    private static LockException failure(String what, Throwable e) {
        return e instanceof LockException.Refused refused ? refused : new LockException.Unanswered(what, e);
    }

    /** Sends a request, by mail if it may wait. What becomes of it, a second after the wait at the latest, or after a time-out. */
    CompletableFuture<Answer> ask(List<String> words, String owner, long left) {
        var answer = new CompletableFuture<Answer>();
        if (locks.isClosing()) { // nobody would end this wait
            answer.complete(Answer.failed(new LockException.Closed()));
            return answer;
        }
        var arrived = new CompletableFuture<Answer>();
        Pending letter = left > 0 ? expect(owner, arrived) : null;
        if (letter != null) {
            words.addAll(List.of("WAIT", left > Locks.FOREVER / 2 ? "0" : "" + left, "MAIL", letter.box.name));
        }
        long least = left == 0 && !locks.answered ? CONNECT : TIMEOUT.toMillis();
        arrived.completeOnTimeout(null, Math.max(left + LATE, least), TimeUnit.MILLISECONDS).thenAccept(end -> {
            locks.with(() -> pending.remove(owner));
            var why = letter == null ? new LockException.Unanswered("no answer from the server", null)
                : new LockException.Unanswered("no letter from the server", letter.box.failure);
            answer.complete(end != null ? end : Answer.failed(why));
        });
        answer.thenAccept(arrived::complete); // nobody waits any more
        send(words.toArray(String[]::new)).thenAccept(reply -> {
            if (reply == null || reply instanceof Long) {
                arrived.complete(new Answer(reply instanceof Long token ? token : 0, 0, null));
            } else if (reply instanceof LockException e) {
                arrived.complete(Answer.failed(e));
            } else {
                letter.isIn((Long) ((List<?>) reply).get(1));
            }
        });
        return answer;
    }

    /** Awaits a reply; Unanswered after that many milliseconds, because null is a reply of the server. */
    static Object reply(CompletableFuture<Object> replied, long millis, boolean interruptible) throws InterruptedException {
        await(replied, millis, interruptible);
        return replied.getNow(new LockException.Unanswered("no answer from the server", null));
    }

    /** Awaits the future; null after that many milliseconds. */
    static <T> T await(CompletableFuture<T> future, long millis, boolean interruptible) throws InterruptedException {
        boolean interrupted = false;
        try {
            for (long end = Clock.now() + millis; ; ) {
                try {
                    return future.get(end - Clock.now(), TimeUnit.MILLISECONDS);
                } catch (TimeoutException | ExecutionException e) { // none is completed by an exception
                    return null;
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

    /** Where the server puts the answers of this program's requests. */
    private static final class Box {
        final String name;
        volatile long since; // distinguishes it from an earlier one of the same name
        volatile boolean doubts; // a request may have been put to another than this
        volatile RuntimeException failure; // why no letters can be collected; null while they can

        Box(String name) {
            this.name = name;
        }
    }

    /** A request that waits for a letter. */
    static final class Pending {
        final Box box;
        final CompletableFuture<Answer> answer;
        volatile long since; // of the box that the server put it to

        private Pending(Box box, CompletableFuture<Answer> answer) {
            this.box = box;
            this.answer = answer;
        }

        private void isIn(long since) {
            this.since = since;
            if (since != box.since) {
                box.doubts = true;
            }
        }
    }

    /** Awaits letters for the owner, before its request is sent: a letter may come before the request's reply. */
    private Pending expect(String owner, CompletableFuture<Answer> answer) {
        while (true) {
            Box seen = locks.get(() -> box);
            Box served = served(seen);
            Pending letter = locks.get(() -> {
                if (box != seen) {
                    return null; // somebody else was faster
                } else if (served != seen) {
                    box = served;
                    Threads.daemon("mortise-mail " + name, () -> listen(served)).start();
                }
                pending.put(owner, new Pending(served, answer));
                return pending.get(owner);
            });
            if (letter != null) {
                return letter;
            }
        }
    }

    /** That box, or a new one where it is not routed to this server: in a cluster a box has to be where the locks are. */
    private Box served(Box box) {
        for (int i = 0; box == null || i < 100_000 && !isServed(box.name); i++) {
            box = new Box("{" + UUID.randomUUID() + "}");
        }
        return box;
    }

    private boolean isServed(String box) {
        try {
            return locks.client.node(box).equals(name);
        } catch (RuntimeException e) {
            return true; // nobody knows now
        }
    }

    /**
     * Collects letters while anybody waits for them, or did lately. A request that was made to another box is gone, and so is a box whose
     * letters could not be collected for long: then all ask again, and get what is free by now.
     */
    private void listen(Box box) {
        long after = 0; // the last letter that was read
        long pause = Locks.FIRST_PAUSE;
        long heard = Clock.now();
        for (long used = Clock.now(); isOfUse(box, used); ) {
            used = locks.get(pending::isEmpty) ? used : Clock.now();
            var words = new ArrayList<>(List.of("LOCK.MAIL", box.name, "WAIT", "" + MAIL_WAIT.toMillis()));
            if (box.since != 0) {
                words.addAll(List.of("AFTER", "" + box.since, "" + after));
            }
            long sent = Clock.now();
            Object reply;
            try {
                reply = locks.client.send(name, List.of(words), true, TIMEOUT.plus(MAIL_WAIT)).get(0);
            } catch (RuntimeException | Error e) {
                reply = failure("no letter from the server", e);
            }
            if (reply instanceof List<?> mail && mail.size() == 3) {
                long since = (Long) mail.get(0);
                boolean isNew = since != box.since;
                box.since = since;
                after = isNew ? 0 : after; // another primary may count from a lower number
                for (Object entry : (List<?>) mail.get(2)) {
                    Map<String, Object> letter = fields((List<?>) entry);
                    if ((Long) letter.get("number") > after) {
                        after = (Long) letter.get("number");
                        deliver(letter, sent + (Long) mail.get(1));
                    }
                }
                if (isNew || box.doubts) { // not with every letter: there may be tens of thousands who wait
                    box.doubts = false;
                    giveUp(p -> p.box == box && p.since != 0 && p.since != since, new LockException.Unanswered("the server forgot the request", null));
                }
                pause = Locks.FIRST_PAUSE;
                heard = Clock.now();
                box.failure = null;
                continue;
            }
            box.failure = reply instanceof RuntimeException e ? e : null;
            if (reply instanceof LockException.Refused refused && !refused.passes()) {
                giveUp(p -> p.box == box, new LockException("no mail from the server: " + refused.getMessage(), refused));
            }
            if (Clock.now() - heard > IDLE) {
                giveUp(p -> p.box == box, new LockException.Unanswered("no letter from the server", box.failure));
                heard = Clock.now();
            }
            locks.refresh();
            LockSupport.parkNanos(pause * 1_000_000);
            pause = Math.min(2 * pause, Locks.LAST_PAUSE);
        }
        giveUp(p -> p.box == box, new LockException.Unanswered("the server does not serve this lock any more", null));
    }

    /** Whether the box is, and if not takes it out of it. */
    private boolean isOfUse(Box box, long used) {
        boolean served = isServed(box.name);
        return locks.get(() -> {
            boolean ours = box == this.box;
            if (ours && served && !locks.isStopped() && (!pending.isEmpty() || Clock.now() - used < IDLE)) {
                return true;
            } else if (ours) {
                this.box = null;
            }
            return false;
        });
    }

    /** Ends all waits: nothing will come. */
    void giveUp(Predicate<Pending> which, LockException why) {
        locks.get(() -> pending.values().stream().filter(which).toList()).forEach(p -> p.answer.complete(Answer.failed(why)));
    }

    private void deliver(Map<String, Object> letter, long told) {
        var owner = (String) letter.get("owner");
        Pending waiting = locks.get(() -> pending.get(owner));
        Answer answer = switch ((String) letter.get("result")) {
            case "granted" -> new Answer((Long) letter.get("token"), told - (Long) letter.get("age"), null);
            case "refused" -> Answer.failed(new LockException.Refused((String) letter.get("error")));
            default -> new Answer(0, 0, null);
        };
        if (waiting != null) {
            waiting.answer.complete(answer);
        } else if (answer.token != 0) {
            List<?> keys = letter.get("keys") instanceof List<?> several ? several : List.of(letter.get("key"));
            locks.leave(keys.stream().map(String.class::cast).toList(), owner);
        }
    }

    static Map<String, Object> fields(List<?> flat) {
        var read = new HashMap<String, Object>();
        for (int i = 0; i + 1 < flat.size(); i += 2) {
            read.put((String) flat.get(i), flat.get(i + 1));
        }
        return read;
    }
}
