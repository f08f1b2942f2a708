package mortise;

import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Threads of the library. They are daemons: none keeps a program from ending. */
final class Threads {
    private static final int MOST_LISTENERS = 64;

    private Threads() {}

    static Thread daemon(String name, Runnable run) {
        var thread = new Thread(run, name);
        thread.setDaemon(true);
        return thread;
    }

    static ScheduledThreadPoolExecutor timer() {
        return new ScheduledThreadPoolExecutor(1, run -> daemon("mortise-timer", run), new ThreadPoolExecutor.DiscardPolicy()); // once closed
    }

    /** For what a program does when a lock is granted or lost. It may block: neither the library nor the program's own pools wait for it. */
    static Executor listeners() {
        var pool = new ThreadPoolExecutor(
            MOST_LISTENERS, MOST_LISTENERS, 1, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), run -> daemon("mortise-lost", run));
        pool.allowCoreThreadTimeOut(true);
        return pool;
    }
}
