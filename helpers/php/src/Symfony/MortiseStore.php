<?php

/* The store of Symfony's Lock component: locks that wait in the server's queue, for writing and reading. */

declare(strict_types=1);

namespace Mortise\Symfony;

use Mortise\Hold;
use Mortise\Locks;
use Mortise\Lost;
use Symfony\Component\Lock\BlockingSharedLockStoreInterface;
use Symfony\Component\Lock\BlockingStoreInterface;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Store\ExpiringStoreTrait;

/** A key's state is the name, the token and the lease of its hold, so that a key can be serialized and used in another process. */
final class MortiseStore implements BlockingStoreInterface, BlockingSharedLockStoreInterface
{
    use ExpiringStoreTrait;

    private const POLL = 100_000; // µs between attempts to write of a key that reads, which keeps its lock meanwhile

    /** @var \WeakMap<Key, int> the process whose hold a key has: a child of fork() has not what its parent holds */
    private readonly \WeakMap $processes;

    /** @param float $initialTtl seconds for which a lock is held that has no TTL of its own */
    public function __construct(private readonly Locks $locks, private readonly float $initialTtl = 300.0)
    {
        $this->processes = new \WeakMap();
    }

    public function save(Key $key): void
    {
        $this->take($key, 'write', 0.0);
    }

    public function saveRead(Key $key): void
    {
        $this->take($key, 'read', 0.0);
    }

    public function waitAndSave(Key $key): void
    {
        $this->take($key, 'write', INF);
    }

    public function waitAndSaveRead(Key $key): void
    {
        $this->take($key, 'read', INF);
    }

    private function take(Key $key, string $mode, float $wait): void
    {
        $key->reduceLifetime($this->initialTtl); // for a reader that may not write, and goes on to read
        while (($hold = $this->hold($key)) !== null && !$this->change($key, $hold, $mode)) {
            match (true) {
                !$hold->isKnown() => $key->removeState(self::class),
                $wait === 0.0 => throw new LockConflictedException(),
                default => usleep(self::POLL),
            };
        }
        if ($hold === null) {
            $locks = $this->locks;
            $lock = $mode === 'read' ? $locks->read((string) $key, $this->initialTtl) : $locks->lock((string) $key, $this->initialTtl);
            $hold = $lock->acquire($wait) ?? throw new LockConflictedException();
            $this->keep($key, $hold->owner, $hold->token(), $mode, $this->initialTtl);
        }
        if ($wait > 0.0) {
            $key->resetLifetime(); // the wait is no part of it
        }
        $key->reduceLifetime($hold->left());
        $this->checkNotExpired($key);
    }

    /** What a key holds already, in this mode now; whether it is. */
    private function change(Key $key, Hold $hold, string $mode): bool
    {
        ['mode' => $before, 'lease' => $lease] = $key->getState(self::class);
        try {
            if ($before === 'read' && $mode === 'write' && !$hold->upgrade()) {
                return false;
            }
            $before === 'write' && $mode === 'read' && $hold->downgrade();
            $this->keep($key, $hold->owner, $hold->token(), $mode, max($lease, $this->initialTtl));
            $hold->refresh($this->initialTtl);
            return true;
        } catch (Lost) {
            return false;
        }
    }

    /** A renewal never shortens a lease. Where it has to be shorter, the hold is passed to a new name, with that lease. */
    public function putOffExpiration(Key $key, float $ttl): void
    {
        $key->reduceLifetime($ttl);
        $hold = $this->hold($key) ?? throw new LockConflictedException();
        ['mode' => $mode, 'lease' => $lease] = $key->getState(self::class);
        $least = max(0.02, $ttl);
        try {
            if ($least < $lease) {
                $owner = $this->locks->owner();
                $this->keep($key, $owner, $hold->passTo($owner, $least), $mode, $least);
            } else {
                $hold->refresh($least);
                $this->keep($key, $hold->owner, $hold->token(), $mode, $least);
            }
        } catch (Lost) {
            throw new LockConflictedException();
        }
        $this->checkNotExpired($key);
    }

    public function delete(Key $key): void
    {
        $hold = $this->hold($key);
        $key->removeState(self::class);
        try {
            $hold?->release();
        } catch (Lost $lost) {
            throw new LockReleasingException($lost->getMessage(), 0, $lost);
        }
    }

    public function exists(Key $key): bool
    {
        return $this->hold($key)?->isKnown() ?? false;
    }

    /**
     * What the key holds: for its fencing token, and for commands that are run only while it holds. When its lease ends, only the server knows.
     * Null where it was not saved, or by the parent of this process.
     */
    public function hold(Key $key): ?Hold
    {
        if (!$key->hasState(self::class) || ($this->processes[$key] ??= getmypid()) !== getmypid()) {
            return null;
        }
        ['owner' => $owner, 'token' => $token, 'lease' => $lease] = $key->getState(self::class);
        return $this->locks->hold((string) $key, $owner, $token, $lease);
    }

    private function keep(Key $key, string $owner, int $token, string $mode, float $lease): void
    {
        $this->processes[$key] = getmypid();
        $key->setState(self::class, ['owner' => $owner, 'token' => $token, 'mode' => $mode, 'lease' => $lease]);
    }
}
