package mortise;

import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import mortise.jedis.JedisClient;
import mortise.lettuce.LettuceClient;
import org.junit.jupiter.api.AfterEach;

/** A server for each test, and locks over both clients. */
abstract class EachClient {
    enum Via {
        JEDIS, LETTUCE;

        Client connect(int port) {
            return this == JEDIS ? JedisClient.of("127.0.0.1", port) : LettuceClient.of(RedisURI.create("127.0.0.1", port));
        }
    }

    final TestServer server = new TestServer();
    final ArrayList<Locks> open = new ArrayList<>();

    Locks locks(Via via) {
        var locks = new Locks(via.connect(server.port));
        open.add(locks);
        return locks;
    }

    @AfterEach
    void stop() {
        open.forEach(locks -> locks.close(Duration.ofSeconds(2)));
        server.close();
    }

    static <T> FutureTask<T> start(Callable<T> call) {
        var task = new FutureTask<>(call);
        var thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return task;
    }
}
