<?php

/*
 * Several locks at once, all or none: each is a hold of its own, refreshed and given back like any other.
 */

declare(strict_types=1);

namespace Mortise;

/** Several locks to be taken: see `Locks::all()`. */
final class MultiLock
{
    private readonly Lock $lock;

    /** @internal */
    public function __construct(private readonly Locks $locks, array $names, float $lease, ?string $task)
    {
        if ($names === [] || array_filter($names, fn ($name) => !is_string($name))) {
            throw new \InvalidArgumentException('Several locks have names, which are strings');
        }
        [$first, $more] = [array_values($names)[0], array_slice(array_values($names), 1)];
        $this->lock = new Lock($locks, 'LOCK.MACQUIRE', $first, $lease, Lock::task($task), more: $more);
    }

    /**
     * Takes all of them; null if others hold one for `$wait` seconds. As `Lock::acquire()` otherwise.
     *
     * @throws Deadlock|Refused|Unavailable
     */
    public function acquire(float $wait = 0.0): ?MultiHold
    {
        $holds = $this->locks->acquire($this->lock, $wait);
        return $holds === null ? null : new MultiHold($holds);
    }

    /**
     * Runs `$work`, which is given the MultiHold, while holding all of them, and returns what it returns.
     *
     * @throws NotGranted if others hold one for `$wait` seconds, without having run anything
     * @throws Lost if one was lost before the work ended; what the work threw is that one's `getPrevious()`
     */
    public function run(callable $work, float $wait = 10.0): mixed
    {
        $hold = $this->acquire($wait) ?? throw new NotGranted('One of the locks is held by others: ' . implode(', ', $this->lock->names()));
        try {
            return $work($hold);
        } finally {
            if ($hold->isOwn()) {
                $hold->release();
            }
        }
    }
}

/** Several locks that were taken at once by one token. */
final class MultiHold
{
    /** @internal @param list<Hold> $holds */
    public function __construct(public readonly array $holds)
    {
    }

    /** The fencing token of all of them: see `Hold::token()`. */
    public function token(): int
    {
        return $this->holds[0]->token();
    }

    /** Whether all of them may be believed in. */
    public function held(): bool
    {
        return $this->left() > 0;
    }

    /** For how many seconds more all of them may be believed in. */
    public function left(): float
    {
        return min(array_map(fn ($hold) => $hold->left(), $this->holds));
    }

    /** @internal Whether this process has them to give back. */
    public function isOwn(): bool
    {
        return $this->holds[0]->isOwn();
    }

    /** @throws Lost|Unavailable as `Hold::refresh()` */
    public function refresh(?float $lease = null): void
    {
        $this->each(fn ($hold) => $hold->refresh($lease));
    }

    /**
     * Gives all of them back.
     *
     * @throws Lost if one of them was lost before
     */
    public function release(): void
    {
        $this->each(fn ($hold) => $hold->release());
    }

    /** What is done with one is done with all, whatever becomes of the first. */
    private function each(callable $do): void
    {
        $failed = null;
        foreach ($this->holds as $hold) {
            try {
                $do($hold);
            } catch (LockException $trouble) {
                $failed ??= $trouble;
            }
        }
        if ($failed !== null) {
            throw $failed;
        }
    }
}
