package mortise;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A server: what it is asked goes out in pipelines of one connection, what it answers later comes by mail over a second
 * one, whatever the number of locks. One thread each; they are daemons and platform threads, so that no virtual thread
 * is pinned by a client's I/O.
 */
final class Node {
    /** How long a server may take to answer. */
    static final Duration TIMEOUT = Duration.ofSeconds(1);

    private static final int MOST_COMMANDS = 512;
    private static final long IDLE = 10_000;

    final String name;
    private final Locks locks;
    private final LinkedBlockingQueue<Command> queue = new LinkedBlockingQueue<>();
    private final ReentrantLock guard = new ReentrantLock();
    private Box box;

    private record Command(List<String> words, CompletableFuture<Object> reply) {}

    /** What a letter said: a token and when its lease began, no token for denied, or why nothing can come. */
    record Answer(long token, long begun, RuntimeException error) {}

    Node(Locks locks, String name) {
        this.locks = locks;
        this.name = name;
        Locks.daemon("mortise-commands " + name, this::pump);
    }

    /** Has the command sent. Never blocks; there always is a reply: an exception where the server has none. */
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
            queue.drainTo(batch, MOST_COMMANDS - 1);
            List<Object> replies;
            try {
                replies = locks.client.send(name, batch.stream().map(Command::words).toList(), TIMEOUT);
                locks.answered = true;
            } catch (RuntimeException e) {
                replies = Collections.nCopies(batch.size(), new LockException.Unanswered("no answer from the server", e));
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

    /** Awaits letters for the owner, before its request is sent: a letter may come before the request's reply. */
    Pending expect(String owner) {
        guard.lock();
        try {
            if (box == null || box.isMisplaced()) {
                box = new Box(boxName());
                Locks.daemon("mortise-mail " + name, box::listen);
            }
            return box.expect(owner);
        } finally {
            guard.unlock();
        }
    }

    /** Ends all waits for letters: the locks close. */
    void endWaits() {
        guard.lock();
        try {
            if (box != null) {
                box.giveUp(new LockException.Closed());
            }
        } finally {
            guard.unlock();
        }
    }

    /** Makes up a name that is routed to this server: in a cluster the box has to be where the locks are. */
    private String boxName() {
        while (true) {
            String box = "{" + locks.newName(null) + "}";
            if (locks.client.node(box).equals(name)) {
                return box;
            }
        }
    }

    /** A request that waits for a letter. */
    final class Pending implements AutoCloseable {
        final Box box;
        final CompletableFuture<Answer> answer = new CompletableFuture<>();
        private final String owner;
        private volatile long since;

        private Pending(Box box, String owner) {
            this.box = box;
            this.owner = owner;
        }

        /** Hears which box the server put the request to. */
        void queued(List<?> reply) {
            since = (Long) reply.get(1);
        }

        @Override
        public void close() {
            box.forget(owner);
        }
    }

    /** Where the server puts the answers of this program's requests. It lives while it is of use. */
    final class Box {
        final String name;
        private final ReentrantLock guard = new ReentrantLock();
        private final Map<String, Pending> pending = new HashMap<>();
        private long since; // tells this box from an earlier one of the same name
        private long after; // the last letter that was read
        private long used = BootClock.now();

        private Box(String name) {
            this.name = name;
        }

        private Pending expect(String owner) {
            var p = new Pending(this, owner);
            guard.lock();
            try {
                pending.put(owner, p);
            } finally {
                guard.unlock();
            }
            return p;
        }

        private void forget(String owner) {
            guard.lock();
            try {
                pending.remove(owner);
            } finally {
                guard.unlock();
            }
        }

        private boolean isMisplaced() {
            try {
                return !locks.client.node(name).equals(Node.this.name);
            } catch (RuntimeException e) {
                return false; // nobody knows now
            }
        }

        /** Collects letters until nobody has waited for any for a while, or the box is not where the locks are. */
        private void listen() {
            long pause = Locks.FIRST_PAUSE;
            do {
                var words = new ArrayList<>(List.of("LOCK.MAIL", name, "WAIT", "2000"));
                if (since != 0) {
                    words.addAll(List.of("AFTER", Long.toString(since), Long.toString(after)));
                }
                long sent = BootClock.now();
                Object reply;
                try {
                    reply = locks.client.mail(Node.this.name, words, TIMEOUT.plusSeconds(2));
                } catch (RuntimeException e) {
                    reply = e;
                }
                if (reply instanceof List<?> mail && mail.size() == 3) {
                    read(sent, mail);
                    pause = Locks.FIRST_PAUSE;
                    continue;
                }
                if (reply instanceof LockException.Refused refused && !refused.passes()) {
                    giveUp(new LockException("no mail from the server: " + refused.getMessage(), refused));
                }
                locks.sleep(pause);
                pause = Math.min(2 * pause, Locks.LAST_PAUSE);
                locks.refresh();
            } while (!ends());
        }

        /** Says whether the box is of no use any more, and if so takes it out of it. */
        private boolean ends() {
            boolean misplaced = isMisplaced();
            Node.this.guard.lock();
            guard.lock();
            try {
                if (!pending.isEmpty()) {
                    used = BootClock.now();
                }
                if (!misplaced && !locks.isStopped() && BootClock.now() - used < IDLE) {
                    return false;
                }
                if (box == this) {
                    box = null;
                }
            } finally {
                guard.unlock();
                Node.this.guard.unlock();
            }
            giveUp(new LockException.Unanswered("the server does not serve this lock any more", null));
            return true;
        }

        private void giveUp(RuntimeException why) {
            guard.lock();
            try {
                pending.values().forEach(p -> p.answer.complete(new Answer(0, 0, why)));
            } finally {
                guard.unlock();
            }
        }

        /** Hands letters out. A request that was made to another box than this is gone. */
        private void read(long sent, List<?> mail) {
            long waited = (Long) mail.get(1);
            guard.lock();
            try {
                since = (Long) mail.get(0);
                for (Object entry : (List<?>) mail.get(2)) {
                    Map<String, Object> letter = fields((List<?>) entry);
                    long number = (Long) letter.get("number");
                    if (number > after) { // numbers grow from box to box, too
                        after = number;
                        deliver(letter, sent + waited);
                    }
                }
                for (Pending p : pending.values()) {
                    if (p.since != 0 && p.since != since) {
                        p.answer.complete(new Answer(0, 0, new LockException.Unanswered("the server forgot the request", null)));
                    }
                }
            } finally {
                guard.unlock();
            }
        }

        private void deliver(Map<String, Object> letter, long told) {
            var owner = (String) letter.get("owner");
            Pending p = pending.get(owner);
            boolean granted = "granted".equals(letter.get("result"));
            if (p == null) {
                if (granted) {
                    locks.leave((String) letter.get("key"), owner);
                }
            } else if (granted) {
                p.answer.complete(new Answer((Long) letter.get("token"), told - (Long) letter.get("age"), null));
            } else if ("refused".equals(letter.get("result"))) {
                p.answer.complete(new Answer(0, 0, new LockException.Refused((String) letter.get("error"))));
            } else {
                p.answer.complete(new Answer(0, 0, null));
            }
        }
    }

    private static Map<String, Object> fields(List<?> flat) {
        var read = new HashMap<String, Object>();
        for (int i = 0; i + 1 < flat.size(); i += 2) {
            read.put((String) flat.get(i), flat.get(i + 1));
        }
        return read;
    }
}
