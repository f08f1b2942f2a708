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
import java.util.function.Function;

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
    private static final String CONFIRM = "1000"; // for how many ms replicas may take to confirm
    private static final int MOST_COMMANDS = 512;
    private static final long IDLE = 10_000; // for how long letters are collected after the last who waited, or waited for where none can be

    private final Locks locks;
    private final String name;
    private final LinkedBlockingQueue<Command> queue = new LinkedBlockingQueue<>();
    private final LinkedBlockingQueue<Command> renewals = new LinkedBlockingQueue<>(); // that replicas are to confirm
    private boolean isAttached; // whether the connection for renewals leads to enough replicas: of the thread that sends them

    // All below under the mutex.
    private final Map<String, Pending> pending = new HashMap<>(); // by owner
    private String box; // where the server puts the answers of this program's requests; null while nobody collects them
    private long since; // distinguishes the box from an earlier one of the same name
    private long last; // the number of the last letter that was read
    private boolean doubts; // a request may have been put into another box than this
    private RuntimeException failure; // why no letters can be collected; null while they can

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
        Threads.daemon("mortise-commands " + name, () -> pump(queue, this::exchange)).start();
        if (locks.replicas > 0) {
            Threads.daemon("mortise-renewals " + name, () -> pump(renewals, this::confirm)).start();
        }
    }

    /** Has the command sent. Never blocks; there always is a reply: a LockException where the server has none. */
    CompletableFuture<Object> send(String... words) {
        return add(queue, words);
    }

    /** The same with a renewal; its reply is LockException.Unconfirmed where too few replicas have it. */
    CompletableFuture<Object> renew(String... words) {
        return add(locks.replicas > 0 ? renewals : queue, words);
    }

    /** Wakes its threads, which end. */
    void end() {
        send("PING");
        renew("PING");
    }

    private CompletableFuture<Object> add(LinkedBlockingQueue<Command> queue, String... words) {
        var command = new Command(List.of(words), new CompletableFuture<>());
        queue.add(command);
        if (locks.isStopped()) { // the pump may have gone
            command.reply.complete(new LockException.Closed());
        }
        return command.reply;
    }

    private void pump(LinkedBlockingQueue<Command> queue, Function<List<List<String>>, List<Object>> exchange) {
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
                replies = exchange.apply(batch.stream().map(Command::words).toList());
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
        var replies = new ArrayList<>(locks.client.send(name, batch, Client.Use.COMMANDS, TIMEOUT));
        for (int i = 0; i < replies.size(); i++) {
            if (replies.get(i) instanceof LockException.Refused refused && refused.code().equals("ASK")) {
                String target = target(refused.getMessage(), name);
                replies.set(i, locks.client.send(target, List.of(List.of("ASKING"), batch.get(i)), Client.Use.COMMANDS, TIMEOUT).get(1));
            }
        }
        return replies;
    }

    /**
     * The replies to renewals, which go with WAIT in one write: it is about what its connection has written. Before a new one has written
     * anything, WAIT counts the replicas that are attached.
     */
    private List<Object> confirm(List<List<String>> batch) {
        List<String> wait = List.of("WAIT", "" + locks.replicas, CONFIRM);
        boolean isNew = !isAttached;
        isAttached = false;
        if (isNew) {
            LockException problem = problem(locks.client.send(name, List.of(wait), Client.Use.RENEWALS, TIMEOUT).get(0));
            if (problem != null) {
                return Collections.nCopies(batch.size(), problem);
            }
        }
        var commands = new ArrayList<>(batch);
        commands.add(wait);
        var replies = new ArrayList<>(locks.client.send(name, commands, Client.Use.RENEWALS, TIMEOUT));
        LockException problem = problem(replies.remove(batch.size()));
        isAttached = problem == null;
        replies.replaceAll(reply -> reply instanceof Long && problem != null ? problem : reply);
        return replies;
    }

    /** What WAIT's reply says against renewals. A primary that has lost its replicas may have a successor. */
    private LockException problem(Object had) {
        if (had instanceof Long count && count >= locks.replicas) {
            return null;
        }
        locks.client.reconnect(name);
        locks.refresh();
        boolean isReplica = had instanceof LockException e && e.getMessage().contains("WAIT cannot be used with replica");
        return had instanceof LockException e && !isReplica ? e
            : new LockException.Unconfirmed(locks.replicas, had instanceof Long count ? count.intValue() : 0);
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
            words.addAll(List.of("WAIT", left > Locks.FOREVER / 2 ? "0" : "" + left, "MAIL", letter.box));
        }
        long least = left == 0 && !locks.answered ? CONNECT : TIMEOUT.toMillis();
        arrived.completeOnTimeout(null, Math.max(left + LATE, least), TimeUnit.MILLISECONDS).thenAccept(end -> {
            RuntimeException cause = locks.get(() -> pending.remove(owner) == null ? null : failure);
            String what = letter == null ? "answer" : "letter";
            answer.complete(end != null ? end : Answer.failed(new LockException.Unanswered("no " + what + " from the server", cause)));
        });
        answer.thenAccept(arrived::complete); // nobody waits any more
        send(words.toArray(String[]::new)).thenAccept(reply -> {
            if (reply == null || reply instanceof Long) {
                arrived.complete(new Answer(reply instanceof Long token ? token : 0, 0, null));
            } else if (reply instanceof LockException e) {
                arrived.complete(Answer.failed(e));
            } else {
                locks.with(() -> {
                    letter.since = (Long) ((List<?>) reply).get(1);
                    doubts |= letter.since != since;
                });
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

    /** A request that waits for a letter. */
    private static final class Pending {
        final String box;
        final CompletableFuture<Answer> answer;
        long since; // of the box that the server put it into

        Pending(String box, CompletableFuture<Answer> answer) {
            this.box = box;
            this.answer = answer;
        }
    }

    /** Awaits letters for the owner, before its request is sent: a letter may come before the request's reply. */
    private Pending expect(String owner, CompletableFuture<Answer> answer) {
        String made = locks.get(() -> box) == null ? newBox() : null;
        Pending letter = locks.get(() -> {
            if (box == null && made != null) { // nobody was faster
                box = made;
                since = last = 0;
                Threads.daemon("mortise-mail " + name, () -> listen(made)).start();
            }
            return box == null ? null : pending.compute(owner, (key, none) -> new Pending(box, answer));
        });
        return letter == null ? expect(owner, answer) : letter;
    }

    /** A name that is routed to this server: in a cluster a box has to be where the locks are. */
    private String newBox() {
        String made = "{" + UUID.randomUUID() + "}";
        for (int i = 0; i < 100_000 && !isServed(made); i++) {
            made = "{" + UUID.randomUUID() + "}";
        }
        return made;
    }

    private boolean isServed(String box) {
        try {
            return locks.client.node(box).equals(name);
        } catch (RuntimeException e) {
            return true; // nobody knows now
        }
    }

    /** Collects letters while anybody waits for them, or did lately. Where none can be collected for long, all ask again, and get what is free. */
    private void listen(String box) {
        long pause = Locks.FIRST_PAUSE;
        long heard = Clock.now();
        for (long used = Clock.now(); isOfUse(box, used); ) {
            used = locks.get(pending::isEmpty) ? used : Clock.now();
            long sent = Clock.now();
            Object reply = collect(box);
            if (reply instanceof List<?> mail && mail.size() == 3) {
                locks.with(() -> read(sent, (Long) mail.get(0), (Long) mail.get(1), (List<?>) mail.get(2)));
                pause = Locks.FIRST_PAUSE;
                heard = Clock.now();
                continue;
            }
            var why = reply instanceof LockException e ? e : null;
            locks.with(() -> failure = why);
            if (why != null && !why.passes()) {
                giveUp(new LockException("no mail from the server: " + why.getMessage(), why));
            } else if (Clock.now() - heard > IDLE) {
                giveUp(new LockException.Unanswered("no letter from the server", why));
                heard = Clock.now();
            }
            locks.refresh();
            LockSupport.parkNanos(pause * 1_000_000);
            pause = Math.min(2 * pause, Locks.LAST_PAUSE);
        }
    }

    /** The reply to LOCK.MAIL, or why there is none. */
    private Object collect(String box) {
        var words = new ArrayList<>(List.of("LOCK.MAIL", box, "WAIT", "" + MAIL_WAIT.toMillis()));
        if (since != 0) { // which only this thread changes
            words.addAll(List.of("AFTER", "" + since, "" + last));
        }
        try {
            return locks.client.send(name, List.of(words), Client.Use.MAIL, TIMEOUT.plus(MAIL_WAIT)).get(0);
        } catch (RuntimeException | Error e) {
            return failure("no letter from the server", e);
        }
    }

    /** Whether the box still is. Once it is routed to another server, all who wait for its letters ask again. */
    private boolean isOfUse(String box, long used) {
        boolean isServed = isServed(box);
        boolean isOfUse = locks.get(() -> {
            boolean isUsed = !pending.isEmpty() || Clock.now() - used < IDLE;
            this.box = isServed && isUsed && !locks.isStopped() ? box : null;
            return this.box != null;
        });
        if (!isOfUse) {
            giveUp(new LockException.Unanswered("the server does not serve this lock any more", null));
        }
        return isOfUse;
    }

    /** Hands letters out. A request that was put into another box than this is gone. */
    private void read(long sent, long since, long waited, List<?> letters) {
        failure = null;
        if (since != this.since) { // another primary may count from a lower number
            this.since = since;
            last = 0;
            doubts = true;
        }
        for (Object entry : letters) {
            Map<String, Object> letter = fields((List<?>) entry);
            last = Math.max(last, (Long) letter.get("number"));
            Pending waiting = pending.get((String) letter.get("owner"));
            if (waiting != null) { // else nobody wants it any more, and its name has left
                waiting.answer.complete(answer(letter, sent + waited));
            }
        }
        if (doubts) { // not with every letter: there may be tens of thousands who wait
            doubts = false;
            var why = new LockException.Unanswered("the server forgot the request", null);
            List.copyOf(pending.values()).stream().filter(p -> p.since != 0 && p.since != since).forEach(p -> p.answer.complete(Answer.failed(why)));
        }
    }

    private static Answer answer(Map<String, Object> letter, long replied) {
        return switch ((String) letter.get("result")) {
            case "granted" -> new Answer((Long) letter.get("token"), replied - (Long) letter.get("age"), null);
            case "refused" -> Answer.failed(new LockException.Refused((String) letter.get("error")));
            default -> new Answer(0, 0, null);
        };
    }

    /** Ends all waits: nothing will come. */
    void giveUp(LockException why) {
        locks.get(() -> List.copyOf(pending.values())).forEach(p -> p.answer.complete(Answer.failed(why)));
    }

    static Map<String, Object> fields(List<?> flat) {
        var read = new HashMap<String, Object>();
        for (int i = 0; i + 1 < flat.size(); i += 2) {
            read.put((String) flat.get(i), flat.get(i + 1));
        }
        return read;
    }
}
