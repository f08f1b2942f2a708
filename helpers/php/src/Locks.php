<?php

/*
 * Locks in the server: what a PHP process requests, relies on and leaves.
 *
 * One rule stands above the others: a hold whose state is unknown is never kept. Each attempt has a name of its own. If its outcome
 * is unknown, the name leaves the lock (LOCK.LEAVE … FOR), and the next attempt has another name.
 *
 * A PHP process has no background work. It waits blocked in its request, and only a call of `refresh()` renews a lease.
 */

declare(strict_types=1);

namespace Mortise;

use function count, getmypid, max, min;

/** All locks of one process on one server. They share one connection of their own. */
final class Locks
{
    private const REPLY = 2.0; // seconds in which the server has to answer
    private const LEAVE = 0.5; // seconds in which a LEAVE has to be answered, or is sent again later
    /** @internal Seconds for which a refresh, or a wait without a limit, bears a server that answers nothing. */
    public const PATIENCE = 10.0;
    private const PAUSE = 50_000; // µs between attempts of which the server has answered nothing useful
    private const LEAVE_FOR = 60_000; // ms in which what arrives late of a name that has left changes nothing

    private readonly \Closure $connect;
    private Connection $connection;
    private string $id;
    /** @internal The process whose names and connection these are. */
    public ?int $process = null;
    private int $count = 0;
    /** @var array<string, list<string|int>> the LEAVEs that the server has not answered yet, by the name that leaves and the lock's */
    private array $leaves = [];
    /** @var array<string, list<string>> the names that will leave if the program ends now, and the locks: of requests in flight */
    private array $asked = [];
    /** @var list<Connection> of the processes that this one was forked from: closing them here could disturb those */
    private static array $inherited = [];

    /** @param \Redis|\Predis\ClientInterface|\Closure(): (\Redis|\Predis\ClientInterface) $client says where the server is; it is not
     *     used itself. A closure makes a connection, anew after any trouble: for TLS options of phpredis, or to ask Sentinel */
    public function __construct(object $client)
    {
        $this->connect = Connection::like($client);
        $this->here();
    }

    private function __clone() // two would give the same names
    {
    }

    /** A child of fork() has neither the names of its parent nor its connection. */
    private function here(): void
    {
        if ($this->process === getmypid()) {
            return;
        }
        if ($this->process !== null) {
            self::$inherited[] = $this->connection;
        }
        $this->connection = new Connection($this->connect);
        $this->process = getmypid();
        $this->id = self::random();
        $this->leaves = $this->asked = [];
    }

    /**
     * A lock that one holds at a time.
     *
     * @param float $lease seconds for which it is held without a `refresh()`, 0.02 at least
     * @param ?string $task who asks: the server finds deadlocks between tasks, and another process finds the hold by this name
     */
    public function lock(string $name, float $lease = 30.0, ?string $task = null): Lock
    {
        return new Lock($this, 'LOCK.ACQUIRE', [$name], $lease, Lock::task($task));
    }

    /** The same lock for readers, who share it; `lock()` is its writer. */
    public function read(string $name, float $lease = 30.0, ?string $task = null): Lock
    {
        return new Lock($this, 'LOCK.RLOCK', [$name], $lease, Lock::task($task));
    }

    /** A lock that is shared up to a total of `$limit` permits. All its users have to name the same limit. */
    public function semaphore(string $name, int $limit, int $permits = 1, float $lease = 30.0, ?string $task = null): Lock
    {
        return new Lock($this, 'LOCK.RLOCK', [$name], $lease, Lock::task($task), ['HOLDS', $permits, 'LIMIT', $limit]);
    }

    /**
     * Several locks at once, all or none, each like that of `lock()`: nothing is held while the request waits. The hold is lost as soon as
     * one of them is.
     *
     * @param list<string> $names 1 to 16 of them
     */
    public function all(array $names, float $lease = 30.0, ?string $task = null): Lock
    {
        if ($names === [] || array_filter($names, fn ($name) => !is_string($name))) {
            throw new \InvalidArgumentException('Several locks have names, which are strings');
        }
        return new Lock($this, 'LOCK.MACQUIRE', array_values($names), $lease, Lock::task($task));
    }

    /** Continues what another process holds, under the same name: null if that is over. The other must not go on with it. */
    public function restore(string $name, string $owner, int $token, float $lease = 30.0): ?Hold
    {
        $hold = $this->hold($name, $owner, $token, $lease);
        try {
            $hold->refresh($lease);
            return $hold;
        } catch (Lost) {
            return null;
        }
    }

    /**
     * Takes what another process holds over to a name of its own: null if that is over. Of several who try, one gets it.
     *
     * @throws Lost if it was over again before it was known
     */
    public function takeOver(string $name, string $owner, int $token, float $lease = 30.0): ?Hold
    {
        $own = $this->owner();
        $words = ['LOCK.PASS', $name, $owner, $own, Lock::milliseconds($lease), 'TOKEN', $token];
        return $this->request($words, $own, [$name], $lease, Clock::now());
    }

    /** What another process holds, to be released here or asked about; nothing is asked now. */
    public function hold(string $name, string $owner, int $token, float $lease = 30.0): Hold
    {
        $this->here();
        return new Hold($this, [$name], $owner, $token, $lease);
    }

    /**
     * Who holds the lock, by the server.
     *
     * @return list<array{owner: string, write: int, read: int, token: int, lease: int}> `lease` in milliseconds left
     */
    public function holders(string $name): array
    {
        $info = self::fields($this->call(['LOCK.INFO', $name, 'COUNT', 2 ** 31 - 1]) ?? []);
        return array_map(self::fields(...), $info['holds'] ?? []);
    }

    /**
     * Makes all holds of the lock end with their leases, or only that of `$owner`: holders learn of it at their next refresh, and nobody else
     * is granted before. Returns for how many seconds the last one lasts at most.
     */
    public function revoke(string $name, ?string $owner = null): float
    {
        $owners = $owner === null ? array_column($this->holders($name), 'owner') : [$owner];
        $left = array_map(fn ($owner) => $this->call(['LOCK.REVOKE', $name, $owner]) ?? 0, $owners);
        return max([0, ...$left]) / 1000;
    }

    /** @internal A map as RESP2 and RESP3 have it. */
    public static function fields(array $map): array
    {
        return array_is_list($map) ? array_column(array_chunk($map, 2), 1, 0) : $map;
    }

    /** @internal What nobody guesses. */
    public static function random(): string
    {
        return bin2hex(random_bytes(12));
    }

    /** @internal A name that was never used before. */
    public function owner(string $prefix = ''): string
    {
        $this->here();
        $count = $this->count++;
        return "$prefix$this->id:$count";
    }

    /** @internal Sends one command, after what has to leave. */
    public function call(array $words): mixed
    {
        $this->here();
        return $this->send($words);
    }

    /** @internal `call()` without `here()`, for callers that have checked the process already: getmypid() is a system call. */
    public function send(array $words, ?bool &$sent = null, int $wait = 0): mixed
    {
        $this->leaves === [] || $this->sendLeaves();
        return $this->connection->call($words, self::REPLY, $sent, $wait);
    }

    /** @internal Sends one command until it is answered, or `pause()` throws. */
    public function insist(array $words, float $end): mixed
    {
        for ($silent = null;;) {
            try {
                return $this->send($words);
            } catch (LockException $trouble) {
                $silent = $this->pause($trouble, $end, $silent);
            }
        }
    }

    /**
     * @internal Pauses before an attempt that failed only for now is made again, and returns since when the server has answered nothing,
     *     which was `$silent` before. Throws the trouble if it is of another kind, or the clock shows `$end`; without an end, after 10 s
     *     without an answer.
     */
    public function pause(LockException $trouble, float $end, ?float $silent): ?float
    {
        $now = Clock::now();
        $silent = $trouble instanceof Unavailable ? $silent ?? $now : null;
        $last = $silent !== null && $end === INF ? $silent + 1000 * self::PATIENCE : $end;
        if ($now >= $last || ($trouble instanceof Refused && !$trouble->isPassing())) {
            throw $trouble;
        }
        usleep(self::PAUSE);
        return $silent;
    }

    /**
     * @internal Leaves locks by names of unknown outcome: now if the server answers, else before the next command, or when this object goes.
     *
     * @param array<string, list<string>> $owners the names that leave, and the locks
     */
    public function leave(array $owners): void
    {
        foreach ($owners as $owner => $names) {
            foreach ($names as $name) {
                $this->leaves["$owner $name"] = ['LOCK.LEAVE', $name, $owner, 'FOR', self::LEAVE_FOR];
            }
        }
        try {
            $this->sendLeaves();
        } catch (LockException | \InvalidArgumentException) { // the last of a client that nobody can connect
        }
    }

    private function sendLeaves(): void
    {
        foreach ($this->leaves as $who => $words) {
            try {
                $this->connection->call($words, self::LEAVE);
            } catch (Refused $refused) {
                if ($refused->isPassing()) { // as the next command will be, if it writes
                    return;
                }
            }
            unset($this->leaves[$who]);
        }
    }

    public function __destruct()
    {
        if ($this->process === getmypid()) {
            $this->leave($this->asked); // exit() runs no other code
        }
    }

    /** @internal What a request gets that was made at `$sent` for a name that was never used before, and waits for so many ms. */
    public function request(array $words, string $owner, array $names, float $lease, float $sent, int $wait = 0): ?Hold
    {
        $isSent = false;
        $hold = null;
        $process = $this->process;
        try {
            $this->asked[$owner] = $names;
            $token = $this->send($words, $isSent, $wait);
            if ($token !== null) {
                $until = Hold::until($sent, $lease);
                // The server began the lease with the grant, at an unknown time. Past half of it, the library asks again.
                $isLate = $until - Clock::now() < $lease * 500;
                $hold = new Hold($this, $names, $owner, $token, $lease, $isLate ? null : $until);
                $isLate && $hold->renew($lease, $sent + $wait);
            }
            unset($this->asked[$owner]);
            return $hold;
        } catch (\Throwable $trouble) {
            // A child that a signal's handler has forked here may throw, too: the request is its parent's.
            if ($process === getmypid() && ($hold || ($isSent && !$trouble instanceof Refused))) {
                $this->leave([$owner => $names]);
            }
            unset($this->asked[$owner]);
            throw $trouble;
        }
    }
}

/** A lock to be taken: what is asked for, each time that `acquire()` or `run()` is called. */
final class Lock
{
    private const SLICE = 600_000; // ms of a wait without a limit after which it is asked for anew, so that a dead network shows

    private readonly int $milliseconds;

    /**
     * @internal `$prefix` is what each name begins with, `$options` the command's.
     *
     * @param list<string> $names
     */
    public function __construct(
        private readonly Locks $locks,
        private readonly string $command,
        public readonly array $names,
        public readonly float $lease,
        private readonly string $prefix = '',
        private readonly array $options = [],
    ) {
        $this->milliseconds = self::milliseconds($lease);
    }

    /** @internal To the server, owners that are the same up to their last ## are one task. */
    public static function task(?string $task): string
    {
        return match ($task) {
            null => '',
            '' => throw new \InvalidArgumentException('A task has a name'),
            default => "$task##",
        };
    }

    /** @internal */
    public static function milliseconds(float $lease): int
    {
        // From a shorter one nothing would be left.
        if (!($lease >= 0.02 && $lease < 1e12)) {
            throw new \InvalidArgumentException("A lease is 0.02 seconds at least, and not $lease");
        }
        return (int) ($lease * 1000 + 0.5);
    }

    /** @return list<string|int> */
    private function words(string $owner, int $wait): array
    {
        $words = $this->command === 'LOCK.MACQUIRE'
            ? [$this->command, $owner, $this->milliseconds, count($this->names), ...$this->names]
            : [$this->command, $this->names[0], $owner, $this->milliseconds, ...$this->options];
        if ($wait > 0) { // 0 would be without a limit
            $words[] = 'WAIT';
            $words[] = $wait;
        }
        return $words;
    }

    /**
     * Takes the lock; null if others hold it for `$wait` seconds. The process waits blocked, in the server's queue. INF is without a
     * limit.
     *
     * @throws Deadlock|Refused|Unavailable at the end of the wait, or after 10 s of a wait without a limit in which nothing was answered
     * @throws Lost if it was granted at the end of the wait, for a lease that was over before the reply came
     */
    public function acquire(float $wait = 0.0): ?Hold
    {
        $now = Clock::now();
        $end = $now + 1000 * max(0.0, $wait);
        for ($silent = null;; $now = Clock::now()) {
            $left = max(0.0, $end - $now);
            try {
                $owner = $this->locks->owner($this->prefix);
                $ms = (int) min($left, self::SLICE);
                $hold = $this->locks->request($this->words($owner, $ms), $owner, $this->names, $this->lease, $now, $ms);
                if ($hold !== null) { // without a jump, at which PHP runs signals' handlers: one could throw, and nobody would have the hold
                    return $hold;
                }
                if ($left <= self::SLICE) {
                    return null;
                }
                $silent = null;
            } catch (LockException $trouble) { // a Lost, too: it was over before it was known
                $silent = $this->locks->pause($trouble, $end, $silent);
            }
        }
    }

    /**
     * Runs `$work`, which is given the Hold, while holding the lock, and returns what it returns. It may give the lock back itself.
     *
     * @throws NotGranted if others hold it for `$wait` seconds, without having run anything
     * @throws Lost if it was lost before the work ended. What the work throws itself is thrown as it is; the Lost is the last of its
     *     `getPrevious()` then
     */
    public function run(callable $work, float $wait = 10.0): mixed
    {
        $failed = null;
        $hold = $this->acquire($wait);
        if ($hold !== null) { // without a jump, see there
            try {
                return $work($hold);
            } catch (\Throwable $failed) {
            } finally { // which a fiber that is destroyed runs, too
                try {
                    $hold->giveBack();
                } finally {
                    $failed && throw $failed; // with what was thrown here as its previous one
                }
            }
        }
        throw new NotGranted('The lock ' . implode(', ', $this->names) . ' is held by others');
    }
}
