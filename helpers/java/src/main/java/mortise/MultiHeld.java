package mortise;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;

/** Several locks that were taken at once by one token, until {@link #unlock} or until one of them is lost. */
public final class MultiHeld implements AutoCloseable {
    private final List<Held> all;

    MultiHeld(List<Held> all) {
        this.all = all;
    }

    /** Each of them, in the order of the keys: a hold of its own, renewed and given back like any other. */
    public List<Held> all() {
        return all;
    }

    /** The fencing token of all of them: see {@link Held#token}. */
    public long token() {
        return all.get(0).token();
    }

    /** The token, if all of them are held at this moment. */
    public long check() {
        all.forEach(Held::check);
        return token();
    }

    public boolean isHeld() {
        return all.stream().allMatch(Held::isHeld);
    }

    /** Completes when one of them is lost; never, where they are unlocked before. */
    public CompletableFuture<Void> lost() {
        return CompletableFuture.anyOf(all.stream().map(Held::lost).toArray(CompletableFuture[]::new)).thenApply(none -> null);
    }

    /**
     * Gives all of them back, in one pipeline. If a server does not answer, the release is repeated in the background.
     *
     * @throws LockException.Lost if one of them was lost before
     * @throws LockException.Refused if the server's user may not release them: the library leaves them, if it may do that
     */
    public void unlock() {
        var released = all.stream().map(Held::release).toList();
        Held.settleAll(IntStream.range(0, all.size()).<Runnable>mapToObj(i -> () -> all.get(i).settle(released.get(i))).toList());
    }

    @Override
    public void close() {
        unlock();
    }
}
