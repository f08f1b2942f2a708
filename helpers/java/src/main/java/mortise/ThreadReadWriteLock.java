package mortise;

import java.util.concurrent.locks.ReadWriteLock;

/** The two sides of one lock. */
public record ThreadReadWriteLock(ThreadLock writeLock, ThreadLock readLock) implements ReadWriteLock {}
