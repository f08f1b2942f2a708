package mortise;

import java.util.concurrent.Executor;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Threads of the library. They are daemons: none keeps a program from ending. */
final class Threads {
    private Threads() {}

    static Thread daemon(String name, Runnable run) {
        var thread = new Thread(run, name);
        thread.setDaemon(true);
        return thread;
    }

    static ScheduledThreadPoolExecutor timer() {
        return new ScheduledThreadPoolExecutor(1, run -> daemon("mortise-timer", run), new ThreadPoolExecutor.DiscardPolicy()); // once closed
    }

    /**
     * For what a program does when a lock is granted or lost. It may block, also until another lock is granted: so there is a thread for each
     * that is at work.
     */
    static Executor listeners() {
        return new ThreadPoolExecutor(0, Integer.MAX_VALUE, 1, TimeUnit.SECONDS, new SynchronousQueue<>(), run -> daemon("mortise-lost", run));
    }
}
