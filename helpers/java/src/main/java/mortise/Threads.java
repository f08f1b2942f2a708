package mortise;

/** Threads of the library. They are daemons: none keeps a program from ending. */
final class Threads {
    private Threads() {}

    static Thread daemon(String name, Runnable run) {
        var thread = new Thread(run, name);
        thread.setDaemon(true);
        return thread;
    }
}
