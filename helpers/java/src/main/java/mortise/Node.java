package mortise;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * A server: commands go out in pipelines over one connection, renewals that replicas have to confirm over another one, and later answers
 * come by {@link Mailbox}. A thread for each; they are daemons and platform threads, so that no virtual thread is pinned by a client's I/O.
 */
final class Node {
    /** How long a server may take to answer. */
    static final Duration TIMEOUT = Duration.ofSeconds(2);

    private static final long LATE = 1000; // how long after the end of a wait its answer may still come
    private static final String CONFIRM = "1000"; // for how many ms replicas may take to confirm
    private static final int MOST_COMMANDS = 512;

    private final Locks locks;
    private final String name;
    private final Link link;
    private final LinkedBlockingQueue<Command> queue = new LinkedBlockingQueue<>();
    private final Link renewing;
    private final LinkedBlockingQueue<Command> renewals = new LinkedBlockingQueue<>(); // that replicas are to confirm
    final Mailbox mail;

    private record Command(List<String> words, CompletableFuture<Object> reply) {}

    /** The outcome of a request: a token and when its lease began if known, no token for denied, or why nothing can come. */
    record Answer(long token, long begun, LockException error) {
        static Answer failed(LockException error) {
            return new Answer(0, 0, error);
        }
    }

    Node(Locks locks, String name) {
        this.locks = locks;
        this.name = name;
        link = new Link(locks.client, name);
        renewing = new Link(locks.client, name);
        mail = new Mailbox(locks, name);
        Locks.daemon("mortise-commands " + name, () -> pump(queue, link, this::exchange)).start();
        if (locks.replicas > 0) {
            Locks.daemon("mortise-renewals " + name, () -> pump(renewals, renewing, this::confirm)).start();
        }
    }

    /**
     * Has the command sent. Never blocks; there always is a reply: a LockException where the server has none, and to a renewal
     * LockException.Unconfirmed where too few replicas have it.
     */
    CompletableFuture<Object> send(List<String> words) {
        return add(locks.replicas > 0 && words.get(0).equals("LOCK.RENEW") ? renewals : queue, words);
    }

    /** Ends its threads. */
    void end() {
        add(queue, List.of("PING"));
        add(renewals, List.of("PING"));
        link.close();
        renewing.close();
        mail.end();
    }

    private CompletableFuture<Object> add(LinkedBlockingQueue<Command> queue, List<String> words) {
        var command = new Command(words, new CompletableFuture<>());
        queue.add(command);
        if (locks.isStopped()) { // the pump may have gone
            command.reply.complete(new LockException.Closed());
        }
        return command.reply;
    }

    private void pump(LinkedBlockingQueue<Command> queue, Link link, Function<List<List<String>>, List<Object>> exchange) {
        var batch = new ArrayList<Command>();
        while (!locks.isStopped()) {
            List<Object> replies;
            try {
                batch.add(queue.take());
                if (locks.isStopped()) {
                    break; // without a connection that would have to be opened for it
                }
                locks.with(() -> queue.drainTo(batch, MOST_COMMANDS - 1)); // what is renewed together goes out together
                replies = exchange.apply(batch.stream().map(Command::words).toList());
                locks.answered = true;
            } catch (InterruptedException | RuntimeException | Error e) { // whatever a client throws, this thread goes on
                replies = Collections.nCopies(batch.size(), failure("no answer from the server", e));
            }
            for (int i = 0; i < batch.size(); i++) {
                batch.get(i).reply.complete(replies.get(i));
            }
            batch.clear();
        }
        link.close();
        queue.drainTo(batch);
        batch.forEach(left -> left.reply.complete(new LockException.Closed()));
    }

    /** The replies. What is refused because its slot is moving to another server is asked there. */
    private List<Object> exchange(List<List<String>> batch) {
        var replies = new ArrayList<>(link.send(batch, TIMEOUT));
        for (int i = 0; i < replies.size(); i++) {
            if (replies.get(i) instanceof LockException.Refused refused && refused.code().equals("ASK")) {
                try (var there = new Link(locks.client, target(refused.getMessage(), name))) {
                    replies.set(i, there.send(List.of(List.of("ASKING"), batch.get(i)), TIMEOUT).get(1));
                } catch (RuntimeException e) {
                    replies.set(i, failure("no answer from the server that has the slot", e));
                }
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
        if (renewing.whole() == null) {
            LockException problem = problem(renewing.send(List.of(wait), TIMEOUT).get(0));
            if (problem != null) {
                return Collections.nCopies(batch.size(), problem);
            }
        }
        var commands = new ArrayList<>(batch);
        commands.add(wait);
        var replies = new ArrayList<>(renewing.send(commands, TIMEOUT));
        LockException problem = problem(replies.remove(batch.size()));
        replies.replaceAll(reply -> reply instanceof Long && problem != null ? problem : reply);
        return replies;
    }

    /** What WAIT's reply says against renewals. A primary that has lost its replicas may have a successor. */
    private LockException problem(Object had) {
        if (had instanceof Long count && count >= locks.replicas) {
            return null;
        }
        link.reconnect();
        renewing.reconnect();
        mail.link.reconnect();
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
    static LockException failure(String what, Throwable e) {
        return e instanceof LockException known ? known : new LockException.Unanswered(what, e);
    }

    /**
     * Sends a request. If it may wait, the server answers by mail. The returned future completes with the outcome: a second after the wait at
     * the latest, or after the time-out. Whoever completes {@code arrived} ends the wait early.
     */
    CompletableFuture<Answer> ask(List<String> request, String owner, long left, CompletableFuture<Answer> arrived) {
        var words = new ArrayList<>(request);
        if (left > 0) {
            words.addAll(List.of("WAIT", left > Locks.FOREVER / 2 ? "0" : "" + left, "MAIL", mail.expect(owner, arrived)));
        }
        long least = left == 0 && !locks.answered ? Locks.PATIENCE : TIMEOUT.toMillis();
        var answer = arrived.completeOnTimeout(null, Math.max(left + LATE, least), TimeUnit.MILLISECONDS).thenApply(end -> {
            LockException cause = mail.forget(owner);
            String what = left > 0 ? "letter" : "answer";
            return end != null ? end : Answer.failed(new LockException.Unanswered("no " + what + " from the server", cause));
        });
        if (locks.closing) { // nobody may end this wait: close ends those that it knows of
            arrived.complete(Answer.failed(new LockException.Closed()));
        } else {
            send(words).thenAccept(reply -> {
                if (reply instanceof LockException e) {
                    arrived.complete(Answer.failed(e));
                } else if (reply instanceof List<?> queued) {
                    mail.queued(owner, (Long) queued.get(1));
                } else {
                    arrived.complete(new Answer(reply instanceof Long token ? token : 0, 0, null));
                }
            });
        }
        return answer;
    }
}
