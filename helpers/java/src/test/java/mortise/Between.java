package mortise;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;

/** A client between the locks and a real one: it decides what becomes of each command. */
final class Between implements Client {
    final AtomicInteger looks = new AtomicInteger(); // for the server of a key
    final AtomicInteger unknown = new AtomicInteger(); // how many of the next looks find none
    private final Client real;
    private final Relay relay;

    /** Gets what the real client would do with a command. */
    interface Relay {
        Object reply(List<String> words, Function<List<String>, Object> real);
    }

    Between(Client real, Relay relay) {
        this.real = real;
        this.relay = relay;
    }

    @Override
    public String node(String key) {
        looks.incrementAndGet();
        if (unknown.getAndDecrement() > 0) {
            throw new IllegalStateException("nobody serves " + key);
        }
        return real.node(key);
    }

    @Override
    public Channel connect(String node) {
        Channel channel = real.connect(node);
        return new Channel() {
            @Override
            public List<Object> send(List<List<String>> commands, Duration timeout) {
                return commands.stream().map(words -> relay.reply(words, own -> channel.send(List.of(own), timeout).get(0))).toList();
            }

            @Override
            public void close() {
                channel.close();
            }
        };
    }

    @Override
    public void refresh() {
        real.refresh();
    }

    @Override
    public void close() {
        real.close();
    }
}
