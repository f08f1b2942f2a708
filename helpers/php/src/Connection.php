<?php

/*
 * The locks' own connection, over phpredis or predis, the clock for leases, and the exceptions. Nothing here knows locks.
 */

declare(strict_types=1);

namespace Mortise;

use function count, hrtime, is_int, max, min;

/** Everything that this library throws, except for wrong arguments (\InvalidArgumentException). */
abstract class LockException extends \RuntimeException
{
}

/** Others held the lock for as long as the call was to wait. */
final class NotGranted extends LockException
{
}

/** The hold is over though nobody released it: another may hold the lock by now. */
final class Lost extends LockException
{
}

/** The server could not be reached, or has not answered in time. */
final class Unavailable extends LockException
{
    /** @param bool $sent whether the request may have reached the server */
    public function __construct(string $message, public readonly bool $sent, ?\Throwable $previous = null)
    {
        parent::__construct($message, 0, $previous);
    }
}

/** The server has refused. The text is its own; `$reason` is the first word of it, such as DEADLOCK or NOPERM. */
class Refused extends LockException
{
    private const NO_MODULE = ': the server has not loaded the Mortise module; load it by "loadmodule …/libmortise.so" in redis.conf, or by MODULE LOAD';

    public readonly string $reason;

    public function __construct(string $message)
    {
        $isUnknown = str_starts_with($message, 'ERR unknown command') && str_contains($message, 'LOCK.');
        parent::__construct($isUnknown ? $message . self::NO_MODULE : $message);
        $this->reason = strtok($message, ' ') ?: '';
    }

    /** Whether the server only says "not here" or "not now": it has changed nothing, and a later attempt may succeed. */
    public function isPassing(): bool
    {
        $elsewhere = '/^(READONLY|MOVED|ASK|CLUSTERDOWN|MASTERDOWN|UNBLOCKED|LEFT|TRYAGAIN|LOADING|NOREPLICAS|MISCONF|BUSY|ERR max number of clients)\b/';
        return (bool) preg_match($elsewhere, $this->getMessage());
    }
}

/** The server found that this wait would never end. The text names the keys. */
final class Deadlock extends Refused
{
}

/** Milliseconds that go on while the machine sleeps, as leases do, and do not step with the wall clock. */
final class Clock
{
    /** By how many ms the difference of two times may be too small: a step of the uptime, and what two readings may be apart. */
    public const ERROR = 11;

    private const UPTIME = '/proc/uptime'; // in steps of 10 ms
    private const EXACT = 0.5; // ms that the wall clock may move against hrtime() unnoticed
    private const READINGS = 5; // of the uptime, of which the process may be interrupted in some

    /** For how many ms the machine has slept since the clock was first read. */
    private static float $slept = 0.0;
    /** The wall clock less hrtime(), which stands still while the machine sleeps, when that was last looked at; INF before. */
    private static float $wall = INF;
    /** The uptime less hrtime(), when it was last read; -INF before. */
    private static float $uptime = -INF;

    /** Reads the uptime, which is slow, only if the wall clock moved against hrtime(): then the machine slept, or somebody set the clock. */
    public static function now(): float
    {
        $wall = microtime(true) * 1000;
        $now = hrtime(true) / 1e6;
        $moved = $wall - $now - self::$wall;
        if ($moved > self::EXACT || $moved < -self::EXACT) {
            self::look($wall - $now);
        }
        return $now + self::$slept;
    }

    /** Asks the uptime which of the two it was. Where it cannot be read, a clock that was set forward counts as a sleep. */
    private static function look(float $wall): void
    {
        // The first time, too little only has locks given up early.
        $readings = self::$uptime === -INF ? 1 : self::READINGS;
        for ($uptime = -INF; $readings > 0 && ($read = @file_get_contents(self::UPTIME)) !== false; $readings--) {
            // At least so much, whatever came between: the uptime is rounded down, and hrtime() is read after it.
            $uptime = max($uptime, (float) $read * 1000 - hrtime(true) / 1e6);
        }
        $slept = $uptime === -INF || self::$uptime === -INF ? $wall - self::$wall : $uptime - self::$uptime;
        self::$slept += max(0.0, $slept);
        self::$uptime = max($uptime, self::$uptime);
        self::$wall = $wall;
    }
}

/** One connection, made when it is needed and made anew after any trouble. Sends nothing twice. */
final class Connection
{
    private const CONNECT = 2.0; // seconds that each step of connecting may take
    private const LATE = 1.0; // seconds after the end of a wait in which its answer may still come
    private const IDLE = 1_000_000_000; // ns since the last request after which a PING asks whether the connection still exists
    private const PING = 0.5; // seconds in which it has to be answered

    /** @var \Redis|\Predis\Client|null */
    private ?object $client = null;
    /** Whether an exchange has begun and not ended: after a signal's handler threw in the middle of one, or while a handler runs there. */
    private bool $busy = false;
    private int $used = 0;

    /** @param \Closure(float): object $connect makes a client of its own; takes the seconds after which a read fails */
    public function __construct(private readonly \Closure $connect)
    {
    }

    /**
     * Connects to the server of this client, as it is configured now, with a client of its own.
     *
     * @param \Redis|\Predis\ClientInterface|\Closure(): (\Redis|\Predis\ClientInterface) $client
     * @return \Closure(float): object
     */
    public static function like(object $client): \Closure
    {
        return match (true) {
            $client instanceof \Closure => fn (float $timeout) => self::given($client, $timeout),
            $client instanceof \Redis => self::phpredis($client),
            $client instanceof \Predis\ClientInterface => fn (float $timeout) => self::given(fn () => $client, $timeout),
            default => throw new \InvalidArgumentException('Locks need a \Redis, a Predis\Client or a closure that makes one, not ' . get_debug_type($client)),
        };
    }

    /** What the closure makes: a \Redis itself, which is nobody else's; a copy of a Predis client, which takes a time-out only when it connects. */
    private static function given(\Closure $make, float $timeout): object
    {
        // Limits AUTH and SELECT, and what asks Sentinel, where nothing else is set, and the host has not disabled it.
        $before = function_exists('ini_set') ? ini_set('default_socket_timeout', (string) ceil($timeout)) : false;
        try {
            try {
                $client = $make();
            } catch (\InvalidArgumentException $wrong) {
                throw $wrong;
            } catch (\Exception $trouble) {
                throw self::said($trouble) ?? new Unavailable("The closure has made no connection: {$trouble->getMessage()}", false, $trouble);
            }
            return match (true) { // `call()` catches the errors of Predis: others here are those of signals' handlers
                $client instanceof \Predis\ClientInterface => self::predis($client, $timeout),
                $client instanceof \Redis && $client->getPersistentID() === null => $client,
                default => throw new \InvalidArgumentException('The closure has to return a Predis\Client, or a \Redis that it connects each time, by connect(); this is ' . get_debug_type($client)),
            };
        } finally {
            $before === false || ini_set('default_socket_timeout', $before);
        }
    }

    /** Reads the model once: a later select() of the application moves no lock. */
    private static function phpredis(\Redis $model): \Closure
    {
        if (!$model->getHost()) {
            throw new \InvalidArgumentException('This \Redis has not been connected, so that nobody knows where to; hand over a closure that connects');
        }
        [$host, $port, $limit, $auth, $database] = [$model->getHost(), $model->getPort(), $model->getTimeout(), $model->getAuth(), $model->getDbNum()];
        return static function (float $timeout) use ($host, $port, $limit, $auth, $database) {
            $client = new \Redis();
            @$client->connect($host, $port, min($limit ?: $timeout, $timeout), null, 0, $timeout);
            $auth && $client->auth($auth);
            $database > 0 && $client->select($database);
            return $client;
        };
    }

    private static function predis(\Predis\ClientInterface $model, float $timeout): \Predis\Client
    {
        $node = $model->getConnection();
        if (method_exists($node, 'querySentinel')) { // asked anew, in a copy: the application's own keeps what it knows
            $node = clone $node;
            $node->getSentinelConnection()->disconnect(); // which a process may have inherited
            $node->querySentinel();
        }
        if (method_exists($node, 'getMaster')) {
            $node = $node->getMaster();
        }
        if (!$node instanceof \Predis\Connection\NodeConnectionInterface) {
            throw new \InvalidArgumentException('Locks need a client of one server, not ' . get_debug_type($node));
        }
        $own = ['persistent' => false, 'async_connect' => false, 'read_write_timeout' => $timeout];
        $parameters = $node->getParameters()->toArray();
        unset($parameters['retry']); // it is for sending again
        $own['timeout'] = min((float) ($parameters['timeout'] ?? $timeout), $timeout);
        return new \Predis\Client($own + $parameters);
    }

    /**
     * The reply: int, string, array or null. An error reply is thrown.
     *
     * @param list<string|int> $words
     * @param float $seconds for which the reply is awaited, and then the connection given up; after a wait, at least until a second after its end
     * @param ?bool $sent becomes whether the server may have got them: a signal's handler may throw here, too
     * @param int $wait for how many ms the server waits, by the last word: the time until the words are sent is a part of that
     * @throws Refused|Unavailable
     */
    public function call(array $words, float $seconds, ?bool &$sent = null, int $wait = 0): mixed
    {
        $before = $this->used;
        $now = $this->used = hrtime(true);
        if ($this->busy) {
            $this->client = null; // a reply to something else will come there
        } elseif ($this->client !== null && $now > $before + self::IDLE) {
            try {
                $this->call(['PING'], self::PING);
            } catch (Refused | Unavailable) {
            }
        }
        $sent = false;
        $this->busy = true;
        try {
            $client = $this->client;
            if ($client === null) {
                $this->client = $client = $this->open($seconds);
            }
            if ($wait > 0) {
                $wait = $words[count($words) - 1] = max(1, $wait - intdiv(hrtime(true) - $now, 1_000_000));
                $seconds = max($seconds, $wait / 1000 + self::LATE);
            }
            $sent = true;
            $reply = $client instanceof \Redis ? self::askPhpredis($client, $words, $seconds) : self::askPredis($client, $words, $seconds);
        } catch (\RedisException | \Predis\PredisException $trouble) {
            $this->close();
            $this->busy = false;
            throw ($sent ? null : self::said($trouble)) ?? new Unavailable("$words[0]: {$trouble->getMessage()}", $sent, $trouble);
        }
        $this->busy = false;
        if ($reply instanceof Refused) {
            $reply->isPassing() && $this->close(); // the server may be another one next time
            throw $reply;
        }
        return $reply;
    }

    private function open(float $seconds): object
    {
        $client = ($this->connect)(min(self::CONNECT, $seconds));
        if ($client instanceof \Redis) {
            $client->clearLastError(); // of connecting
            $client->setOption(\Redis::OPT_MAX_RETRIES, 0);
            $client->setOption(\Redis::OPT_REPLY_LITERAL, true);
            $client->setOption(\Redis::OPT_TCP_KEEPALIVE, true);
        } else {
            $client->connect();
        }
        return $client;
    }

    /** The reply, or the error in its place, after so many seconds at most. */
    private static function askPhpredis(\Redis $client, array $words, float $seconds): mixed
    {
        $client->setOption(\Redis::OPT_READ_TIMEOUT, $seconds);
        $trouble = null;
        try {
            $reply = $client->rawCommand(...$words);
            if (is_int($reply)) {
                return $reply;
            }
        } catch (\RedisException $trouble) { // a server's error, too, by its first word
        }
        $error = $client->getLastError();
        if ($error !== null) {
            $client->clearLastError();
            return self::refusal($error);
        }
        return $trouble ? throw $trouble : ($reply === false ? null : $reply);
    }

    private static function askPredis(\Predis\Client $client, array $words, float $seconds): mixed
    {
        $stream = $client->getConnection()->getResource();
        is_resource($stream) || $stream = (fn () => $this->stream)->call($stream); // Predis 3 wraps it, without a time-out of its own
        stream_set_timeout($stream, (int) $seconds, (int) (fmod($seconds, 1) * 1e6));
        $reply = $client->executeRaw(array_map(strval(...), $words), $error);
        return $error ? self::refusal($reply) : $reply;
    }

    /** What the server itself said while a client connected: that the password is wrong, say. */
    private static function said(\Exception $trouble): ?Refused
    {
        return preg_match('/\b(WRONGPASS|NOAUTH|NOPERM|ERR) .*/', $trouble->getMessage(), $said) ? self::refusal($said[0]) : null;
    }

    private static function refusal(string $error): Refused
    {
        return str_starts_with($error, 'DEADLOCK ') ? new Deadlock($error) : new Refused($error);
    }

    private function close(): void
    {
        [$client, $this->client] = [$this->client, null];
        $client instanceof \Redis ? $client->close() : $client?->disconnect();
    }
}
