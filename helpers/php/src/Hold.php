<?php

/*
 * A hold: one acquisition of a lock, or of several at once, from the grant to its release or loss.
 */

declare(strict_types=1);

namespace Mortise;

use function count, getmypid, in_array, max, min;

final class Hold
{
    private readonly int $process;
    /** The first lock's name, and the only one but after `Locks::all()`. */
    public readonly string $name;
    private bool $lost = false;
    private bool $givenUp = false;

    /**
     * @internal `$until` is when it no longer counts as held. Null if another process took it: then only the server knows.
     *
     * @param list<string> $names
     */
    public function __construct(
        private readonly Locks $locks,
        public readonly array $names,
        public readonly string $owner,
        private int $token,
        private readonly float $lease,
        private ?float $until = null,
    ) {
        $this->name = $names[0];
        $this->process = $locks->process;
    }

    /** @internal Until when a hold counts as held by a request that was sent at that time. */
    public static function until(float $sent, float $lease): float
    {
        return $sent + $lease * 990 - 2 - Clock::ERROR;
    }

    /** Larger than every token granted before: send it with each write, and let the store refuse smaller ones. */
    public function token(): int
    {
        return $this->token;
    }

    /** Whether it counts as held, by this process's own clock, without asking the server. A check is not a fence; the token is. */
    public function held(): bool
    {
        return $this->left() > 0;
    }

    /** For how many seconds more it counts as held. */
    public function left(): float
    {
        return !$this->isOwn() || $this->lost || $this->until === null ? 0.0 : max(0.0, $this->until - Clock::now()) / 1000;
    }

    /** Whether it is held, asked from the server: also if another process took it. */
    public function isKnown(): bool
    {
        return !in_array(null, array_map($this->info(...), $this->names), true);
    }

    /** What the server knows of it at this name; null if nothing. */
    private function info(string $name): ?array
    {
        $info = Locks::fields($this->locks->call(['LOCK.INFO', $name, 'OWNER', $this->owner]) ?? []);
        return ($info['token'] ?? null) === $this->token ? $info : null;
    }

    /** @internal Whether this process has it to give back. To a child of fork() a lock of its parent is one that it does not hold. */
    public function isOwn(): bool
    {
        return !$this->givenUp && $this->process === getmypid();
    }

    /** A later request never shortens what an earlier one has granted. */
    private function believe(float $sent, float $lease): void
    {
        $this->until = max($this->until ?? 0.0, self::until($sent, $lease));
    }

    /** Throws `Lost` for a hold that is over, before any command about it is sent. */
    private function notOver(string $what): void
    {
        if ($this->lost || ($this->until !== null && $this->until <= Clock::now())) {
            throw $this->lose("it was over before its $what");
        }
    }

    /** `notOver()`, which also refuses a hold that was released or passed on, or that another process has. */
    private function mine(string $what): void
    {
        if (!$this->isOwn()) {
            throw new \LogicException("Cannot $what the lock $this->name: it was released or passed on, or another process holds it");
        }
        $this->notOver($what);
    }

    /** Refuses several locks that were taken at once, too: each would have a token of its own. */
    private function single(string $what): void
    {
        $this->mine($what);
        if (count($this->names) > 1) {
            throw new \LogicException("Cannot $what several locks that were taken at once");
        }
    }

    /** Has these names leave its locks. Not in a child that a signal's handler has forked meanwhile: the hold is its parent's. */
    private function leave(string ...$owners): void
    {
        if ($this->process === getmypid()) {
            $this->locks->leave(array_fill_keys($owners, $this->names));
        }
    }

    /** Leaves: ends the hold and all that may still exist of it on the server. */
    private function lose(string $how): Lost
    {
        if (!$this->lost && $this->until !== null) {
            $this->leave($this->owner);
        }
        $this->lost = true;
        return new Lost("The lock $this->name is lost: $how");
    }

    /**
     * From now on the lease is this many seconds, or what is left of it if that is more. Without an argument, as many as it was taken for.
     *
     * @throws Lost
     * @throws Unavailable if there was no answer while it counted as held, 10 s at most
     */
    public function refresh(?float $lease = null): void
    {
        $this->mine('refresh');
        $this->renew($lease ?? $this->lease, $this->until ?? INF);
    }

    /** @internal `refresh()` until the clock shows `$end`. */
    public function renew(float $lease, float $end): void
    {
        // The belief counts from the first time that it was sent, so that it does not matter which was answered.
        $sent = Clock::now();
        $end = min($end, $sent + 1000 * Locks::PATIENCE);
        foreach ($this->names as $name) {
            $words = ['LOCK.RENEW', $name, $this->owner, Lock::milliseconds($lease), 'TOKEN', $this->token];
            if ($this->locks->insist($words, $end) !== $this->token) {
                throw $this->lose('the server knows it no longer');
            }
        }
        if ($this->until !== null && !$this->held()) { // a lock that has run out is never held again
            throw $this->lose('it was over before its refresh was answered');
        }
        $this->believe($sent, $lease);
    }

    /**
     * Gives it back.
     *
     * @throws Lost if it was lost before; the lock is free then, or another's
     */
    public function release(): void
    {
        $this->giveBack() || $this->mine('release');
    }

    /** @internal `release()`, or false if this process does not have it to give back. */
    public function giveBack(): bool
    {
        try { // around all: a signal's handler may throw before anything is sent
            if (!$this->isOwn()) {
                return false;
            }
            $this->notOver('release');
            $this->givenUp = true;
            if (in_array(null, $this->each('LOCK.RELEASE', ['ALL']), true)) {
                throw $this->lose('it was over before its release');
            }
            return true;
        } catch (\Throwable $trouble) {
            if (!$this->lost) {
                // It was held until now, so that nothing is lost. The name leaves as soon as the server answers.
                $this->givenUp = true;
                $this->leave($this->owner);
            }
            if ($trouble instanceof Unavailable || ($trouble instanceof Refused && $trouble->isPassing())) {
                return true;
            }
            throw $trouble;
        }
    }

    /**
     * Gives it back, but keeps it taken for so many seconds from now: a job then runs once in that time, however short it is. It passes
     * the hold to a name that nobody uses.
     *
     * @throws Lost|Refused|Unavailable as `passTo()`
     */
    public function keepFor(float $seconds): void
    {
        $nobody = $this->locks->owner();
        $this->mine('keep');
        if (in_array(null, $this->pass($nobody, $seconds), true)) {
            $this->leave($nobody); // has those that were not gone
            throw $this->lose('it was over before it was passed on');
        }
    }

    /**
     * Passes the hold to another owner's name, and returns its new token. That owner relies on it after a `restore()` of its own.
     *
     * @throws Lost|Refused|Unavailable
     * @throws \LogicException for several locks that were taken at once
     */
    public function passTo(string $owner, float $lease): int
    {
        $this->single('pass');
        [$token] = $this->pass($owner, $lease);
        return $token ?? throw $this->lose('it was over before it was passed on');
    }

    /** @return list<?int> the new tokens */
    private function pass(string $heir, float $lease): array
    {
        $tokens = $this->each('LOCK.PASS', [$heir, Lock::milliseconds($lease)], $heir);
        $this->givenUp = true;
        return $tokens;
    }

    /**
     * From reading to writing, if nobody else reads: else false. The token is a new one then.
     *
     * @throws Lost
     * @throws \LogicException for several locks that were taken at once
     */
    public function upgrade(): bool
    {
        $this->single('upgrade');
        $sent = Clock::now();
        [$token] = $this->each('LOCK.WLOCK', [Lock::milliseconds($this->lease), 'HOLDS', 1]);
        if ($token === null) {
            return $this->isKnown() ? false : throw $this->lose('the server knows it no longer');
        }
        $this->token = $token;
        $this->believe($sent, $this->lease);
        return true;
    }

    /**
     * From writing to reading: waiting readers are granted. What was upgraded has as many permits as before.
     *
     * @throws Lost
     * @throws \LogicException if it does not write, or for several locks that were taken at once
     */
    public function downgrade(): void
    {
        $this->single('downgrade');
        ['write' => $write, 'read' => $read] = $this->info($this->name) ?? throw $this->lose('the server knows it no longer');
        if ($write === 0) {
            throw new \LogicException("Cannot downgrade the lock $this->name: it is held for reading only");
        }
        $reading = [Lock::milliseconds($this->lease), 'HOLDS', max(1, $read)];
        [$token] = $this->each('LOCK.RLOCK', $reading);
        if ($token === null || $this->each('LOCK.RELEASE', ['WRITE', 'HOLDS', 0]) === [null]) {
            throw $this->lose('it was over before its downgrade');
        }
    }

    /**
     * Sends a command about the hold of each of the locks. If an outcome is unknown, or not that of the others, this hold ends, also one
     * that another process took, and `$heir` leaves, too.
     */
    private function each(string $command, array $more, ?string $heir = null): array
    {
        $replies = [];
        $sent = false; // if a LEAVE before it gets no reply
        try {
            foreach ($this->names as $name) {
                $replies[] = $this->locks->send([$command, $name, $this->owner, ...$more, 'TOKEN', $this->token], $sent);
            }
            return $replies;
        } catch (\Throwable $trouble) {
            if (($sent && !$trouble instanceof Refused) || $replies !== []) {
                $this->lost = true;
                $this->leave($this->owner, ...(array) $heir);
            }
            throw $trouble instanceof Refused && $trouble->reason === 'LEFT' && $heir === null ? $this->lose('its name has left') : $trouble;
        }
    }

    /**
     * Runs a Redis command on the lock's server if, in that moment, the lock, or the first of several, is held by this token. Returns its
     * reply.
     *
     * @throws Lost if it is not; nothing was run then
     * @throws Unavailable with `sent`: nobody knows whether it was run
     */
    public function guard(string|int ...$command): mixed
    {
        $this->mine('use');
        try {
            return $this->locks->send(['LOCK.GUARD', $this->name, $this->owner, $this->token, ...$command]);
        } catch (Refused $refused) {
            throw $refused->reason === 'NOTHELD' ? $this->lose('the server knows it no longer') : $refused;
        }
    }
}
