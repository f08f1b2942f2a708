<?php

/*
 * The worker of the conformance run (helpers/README.md): phpredis or predis. Each handle has a process of its own, since PHP has no
 * threads, and that process refreshes its lock as a program does, at a third of the lease.
 */

declare(strict_types=1);

use Mortise\Hold;
use Mortise\LockException;
use Mortise\Locks;
use Mortise\Lost;
use Mortise\Unavailable;

foreach (['Connection', 'Locks', 'Hold'] as $file) {
    require_once __DIR__ . "/../src/$file.php";
}

final class BodyError extends \Exception
{
}

/** Carries out the orders for one handle. */
final class Orders
{
    private const ROUNDS = 5; // of each task, of one object that tasks share
    private const POOL = 3; // permits

    private Locks $locks;
    private ?Hold $hold = null;
    private bool $isUnsure = false;
    private float $renewAt = INF;
    private float $lease = 0.0;

    /** @param resource $orders where the lines for this handle come from */
    public function __construct(string $name, private readonly int $port, private readonly ?string $password, private readonly string $handle, private $orders)
    {
        $this->locks = new Locks($name === 'predis' ? $this->predis() : fn () => $this->phpredis());
    }

    private function predis(): \Predis\Client
    {
        require_once 'Predis/autoload.php';
        return new \Predis\Client(['host' => '127.0.0.1', 'port' => $this->port] + ($this->password === null ? [] : ['password' => $this->password]));
    }

    private function phpredis(): \Redis
    {
        $redis = new \Redis();
        $redis->connect('127.0.0.1', $this->port, 2.0);
        $this->password === null || $redis->auth($this->password);
        return $redis;
    }

    public function run(): void
    {
        while (($line = $this->next()) !== null) {
            [$verb, , $words] = [...explode(' ', $line, 3), ''];
            $this->answer(fn () => $this->$verb(...array_filter(explode(' ', $words), fn ($word) => $word !== '')), $verb === 'block' ? 'caught lost' : 'lost');
        }
    }

    private function say(string $answer): void
    {
        fwrite(STDOUT, "$this->handle " . strtr($answer, "\n", ' ') . "\n");
    }

    private function answer(callable $do, string $lost): void
    {
        try {
            $this->say($do());
        } catch (Lost) {
            $this->say($lost);
        } catch (Unavailable $trouble) {
            $this->isUnsure = true;
            $this->say("unreachable {$trouble->getMessage()}");
        } catch (LockException $trouble) {
            $this->say("refused {$trouble->getMessage()}");
        }
    }

    /** The next order. Refreshes the lock meanwhile, and sends other commands, before which the library sends what it has to leave. */
    private function next(): ?string
    {
        while (true) {
            $wait = max(0.0, min($this->isUnsure ? 0.1 : 60.0, $this->renewAt - microtime(true)));
            $ready = [$this->orders];
            $none = null;
            if (stream_select($ready, $none, $none, (int) $wait, (int) (fmod($wait, 1) * 1e6))) {
                $line = fgets($this->orders);
                return $line === false ? null : trim($line);
            }
            microtime(true) < $this->renewAt ? $this->ask() : $this->refresh();
        }
    }

    private function ask(): void
    {
        try {
            $this->locks->holders('other');
            $this->isUnsure = false;
        } catch (LockException) {
            // and again
        }
    }

    private function refresh(): void
    {
        try {
            $this->hold?->refresh();
            $this->renewAt = microtime(true) + $this->lease / 3;
        } catch (Lost | \LogicException) {
            $this->renewAt = INF;
        } catch (LockException) {
            $this->renewAt = microtime(true) + $this->lease / 6;
        }
    }

    private function acquire(string $keys, string $lease, string $wait): string
    {
        $names = explode(',', $keys);
        $this->lease = (int) $lease / 1000;
        $lock = count($names) > 1 ? $this->locks->all($names, $this->lease) : $this->locks->lock($keys, $this->lease);
        $this->hold = $lock->acquire($wait === 'ever' ? INF : (int) $wait / 1000);
        $this->renewAt = $this->hold === null ? INF : microtime(true) + $this->lease / 3;
        return $this->hold === null ? 'busy' : 'granted';
    }

    private function fixed(string $keys, string $lease, string $wait): string
    {
        $answer = $this->acquire($keys, $lease, $wait);
        $this->renewAt = INF;
        return $answer;
    }

    private function extend(string $lease): string
    {
        $this->hold->refresh((int) $lease / 1000);
        return 'extended';
    }

    private function held(): string
    {
        return $this->hold->held() ? 'held' : 'lost';
    }

    private function release(): string
    {
        $this->renewAt = INF;
        try {
            $this->hold->release();
        } catch (\LogicException) {
            return 'not held';
        }
        return 'released';
    }

    private function block(string $key, string $lease): string
    {
        $this->lease = (int) $lease / 1000;
        try {
            $this->locks->lock($key, $this->lease)->run(function (Hold $hold) {
                [$this->hold, $this->renewAt] = [$hold, microtime(true) + $this->lease / 3];
                $this->say('inside');
                if (str_starts_with((string) $this->next(), 'fail')) {
                    throw new BodyError('body');
                }
            });
        } catch (BodyError $error) {
            return $error->getPrevious() instanceof Lost ? 'caught body with lost' : 'caught body';
        }
        return 'left';
    }

    /** Each task is a process, and tells over one pipe when it enters and leaves. */
    private function share(string $kind, string $key, string $tasks): string
    {
        $lock = match ($kind) {
            'lock' => $this->locks->lock($key),
            'read' => $this->locks->read($key),
            'permits' => $this->locks->semaphore($key, self::POOL),
        };
        [$told, $tell] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $children = [];
        for ($task = 0; $task < (int) $tasks; $task++) {
            if (!($child = pcntl_fork())) {
                for ($round = 0; $round < self::ROUNDS; $round++) {
                    $lock->run(function () use ($tell) {
                        fwrite($tell, '+');
                        usleep(1_000);
                        fwrite($tell, '-');
                    }, INF);
                }
                exit;
            }
            $children[] = $child;
        }
        fclose($tell);
        $inside = $most = 0;
        $marks = stream_get_contents($told);
        foreach (str_split($marks) as $mark) {
            $most = max($most, $inside += $mark === '+' ? 1 : -1);
        }
        array_map(fn ($child) => pcntl_waitpid($child, $status), $children);
        return 'done ' . substr_count($marks, '+') . " $most";
    }

    private function exit(): string
    {
        return 'leaves the hold';
    }
}

[, $name, $port] = $argv;
$processes = [];
while (($line = fgets(STDIN)) !== false) {
    [$verb, $handle] = explode(' ', trim($line));
    if (!isset($processes[$handle])) {
        [$orders, $tell] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $child = pcntl_fork();
        if (!$child) {
            array_map(fn ($other) => fclose($other[0]), $processes);
            fclose($tell);
            (new Orders($name, (int) $port, $argv[3] ?? null, $handle, $orders))->run();
            exit;
        }
        fclose($orders);
        $processes[$handle] = [$tell, $child];
    }
    fwrite($processes[$handle][0], trim($line) . "\n");
    if ($verb === 'exit') {
        break;
    }
}
foreach ($processes as [$tell, $child]) {
    fclose($tell);
    pcntl_waitpid($child, $status);
}
