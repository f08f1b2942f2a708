<?php

/* What Cache::lock() returns. */

declare(strict_types=1);

namespace Mortise\Laravel;

use Illuminate\Cache\Lock as LaravelLock;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Mortise\Hold;
use Mortise\Lock;
use Mortise\Locks;
use Mortise\Lost;

/**
 * Laravel's owner is the first part of the server's: `<owner>#<a name for this acquisition>`. So two acquisitions by one owner are two,
 * and whoever knows the owner finds the hold.
 */
final class MortiseLock extends LaravelLock
{
    private ?Hold $hold = null;

    public function __construct(private MortiseStore $store, private Locks $locks, string $name, int $seconds, string $owner)
    {
        parent::__construct($name, $seconds, $owner);
    }

    /** Waits for up to `$seconds`. */
    public function acquire(float $seconds = 0.0): bool
    {
        $hold = (new Lock($this->locks, 'LOCK.ACQUIRE', [$this->name], $this->store->lease($this->seconds), "$this->owner#"))->acquire($seconds);
        if ($hold !== null) { // without a jump, see Lock::acquire()
            $this->hold = $hold;
            return true;
        }
        return false;
    }

    /** As Laravel's, but it waits in the server's queue, and for `$seconds` to the millisecond. */
    public function block($seconds, $callback = null)
    {
        if (!is_callable($callback)) {
            return $this->acquire((float) $seconds) ?: throw new LockTimeoutException();
        }
        $before = $this->hold;
        try { // around the wait, too: a signal's handler may throw before the callback
            return $this->acquire((float) $seconds) ? $callback() : throw new LockTimeoutException();
        } finally {
            $this->hold === $before || $this->release();
        }
    }

    /** False where it was lost, or was another's. */
    public function release()
    {
        try {
            return ($this->hold ?? $this->restored())?->giveBack() ?? false;
        } catch (Lost) {
            return false;
        }
    }

    /** `$seconds` from now on, or what is left if that is more; false where it was lost, or is another's. */
    public function refresh($seconds = null)
    {
        try {
            $hold = $this->hold();
            $hold?->refresh($this->store->lease($seconds ?? $this->seconds));
            return $hold !== null;
        } catch (Lost) {
            return false;
        }
    }

    /** Takes it from its holder, which does not learn of it. */
    public function forceRelease()
    {
        $this->locks->call(['DEL', $this->name]);
    }

    /**
     * The hold, for its fencing token and for `guard()`. Of a restored lock it is the owner's, by the server. Null if there is none, or it was
     * released here, or the parent of this process has it.
     */
    public function hold(): ?Hold
    {
        $hold = $this->hold ?? $this->restored();
        return $hold?->isOwn() ? $hold : null;
    }

    private function restored(): ?Hold
    {
        foreach ($this->locks->holders($this->name) as $holder) {
            if (self::laravels($holder['owner']) === $this->owner) {
                return $this->locks->hold($this->name, $holder['owner'], $holder['token'], $this->store->lease($this->seconds));
            }
        }
        return null;
    }

    protected function getCurrentOwner()
    {
        $holder = $this->locks->holders($this->name)[0] ?? null;
        return $holder === null ? null : self::laravels($holder['owner']);
    }

    /** The name of the Redis connection that the lock is on. */
    public function getConnectionName(): ?string
    {
        return $this->store->lockConnection()->getName();
    }

    private static function laravels(string $owner): string
    {
        return substr($owner, 0, (int) strrpos($owner, '#'));
    }
}
