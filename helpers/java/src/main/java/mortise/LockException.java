package mortise;

/**
 * Why a lock was not granted, or is not held. It is an {@link IllegalMonitorStateException}, because that is what callers of
 * {@link java.util.concurrent.locks.Lock#unlock} catch, and those of Redisson's {@code RLock.unlock()}.
 */
public class LockException extends IllegalMonitorStateException {
    LockException(String message, Throwable cause) {
        super(message);
        initCause(cause);
    }

    /** It may be over soon: a broken connection, a failover, a slot that moves. */
    boolean passes() {
        return false;
    }

    /** Whether the request that failed has certainly changed nothing at the server. */
    boolean changedNothing() {
        return false;
    }

    /** The server did not answer, or its answer was lost or came too late. */
    public static sealed class Unanswered extends LockException {
        Unanswered(String message, Throwable cause) {
            super(message, cause);
        }

        /** A server that refuses for good will not answer later, nor will a client of a version that this library cannot use. */
        @Override
        boolean passes() {
            return !(getCause() instanceof LinkageError) && !(getCause() instanceof LockException why && !why.passes());
        }
    }

    /** There is no server or connection to which the request could have been sent. */
    static final class Unsent extends Unanswered {
        Unsent(String message, Throwable cause) {
            super(message, cause);
        }

        @Override
        boolean changedNothing() {
            return true;
        }
    }

    /** Others held the lock for as long as the request waited. */
    public static final class Busy extends LockException {
        public Busy(String key) {
            super("the lock " + key + " is held by somebody else", null);
        }

        @Override
        boolean changedNothing() {
            return true;
        }
    }

    /** Too few replicas had the lock in time: see {@link Locks.Builder#replicas}. A new lock was given back. */
    public static final class Unconfirmed extends LockException {
        private final int needed;
        private final int had;

        Unconfirmed(int needed, int had) {
            super(had + " replicas have the lock, and " + needed + " have to", null);
            this.needed = needed;
            this.had = had;
        }

        public int needed() {
            return needed;
        }

        public int had() {
            return had;
        }

        @Override
        boolean passes() {
            return true;
        }
    }

    /** The locks are closed. */
    public static final class Closed extends LockException {
        Closed() {
            super("the locks are closed", null);
        }
    }

    /** The server replied an error. */
    public static final class Refused extends LockException {
        private final String code;

        public Refused(String text) {
            super(explained(text), null);
            code = text.split(" ", 2)[0];
        }

        /** Adds what to do where the server's own words do not say it. */
        private static String explained(String text) {
            boolean hasNoModule = text.startsWith("ERR unknown command") && text.contains("LOCK.");
            return hasNoModule ? text + ": the server has not loaded the Mortise module; load it by \"loadmodule …/libmortise.so\""
                + " in redis.conf, or by MODULE LOAD" : text;
        }

        /** The first word of the error: {@code NOPERM}, {@code OOM}, … */
        public String code() {
            return code;
        }

        /** Waiting would have closed a cycle of owners that wait for each other. */
        public boolean isDeadlock() {
            return code.equals("DEADLOCK");
        }

        @Override
        boolean changedNothing() {
            return true;
        }

        @Override
        boolean passes() {
            return switch (code) {
                case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "READONLY", "UNBLOCKED",
                    "NOREPLICAS", "MISCONF", "BUSY" -> true;
                default -> getMessage().startsWith("ERR max number of clients");
            };
        }
    }

    /** The lock is no longer held: its lease ran out, or it was taken away. */
    public static final class Lost extends LockException {
        Lost(String key) {
            super("the lock " + key + " was lost", null);
        }
    }
}
