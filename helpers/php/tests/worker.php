<?php

/* The worker of the common run (helpers/README.md): phpredis or predis. Its tasks are processes, since PHP has no threads. */

declare(strict_types=1);

use Mortise\Hold;
use Mortise\LockException;
use Mortise\Locks;

foreach (['Connection', 'Locks', 'Hold'] as $file) {
    require_once __DIR__ . "/../src/$file.php";
}
[, $name, $port, $key, $seconds, $path] = $argv;

/** Its end of file ends all tasks: when the worker closes it, and when the worker dies. */
[$over, $running] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);

function isOver($over): bool
{
    $ready = [$over];
    $none = null;
    return stream_select($ready, $none, $none, 0) !== 0;
}

/** One stay inside, which writes only times at which the lock was certainly held. Returns whether there was any. */
function section(Hold $hold, $ledger, string $name, string $key, string $share): bool
{
    $last = hrtime(true);
    if (!$hold->held()) {
        return false;
    }
    $line = fn (string $word, int $at) => fwrite($ledger, "$word {$hold->token()} $at $name:" . getmypid() . rtrim(" $share") . "\n");
    $line('enter', $last);
    if ($share === '') {
        try {
            $hold->guard('RPUSH', "list:{{$key}}", "write:{$hold->token()}:$name");
        } catch (LockException) {
            // the lock is lost, or the reply
        }
    }
    for ($i = 0; $i < 3; $i++) {
        usleep(700);
        $at = hrtime(true);
        if (!$hold->held()) {
            break;
        }
        $last = $at;
    }
    $line('leave', $last);
    return true;
}

/** What each task acquires in a round: nothing for the lock, `read`, a number of permits, or the numbers of several keys. */
$tasks = [
    'alone' => fn (int $round) => '',
    'reading' => fn (int $round) => 'read',
    'permits' => fn (int $round) => (string) (1 + $round % 3),
    'several' => fn (int $round) => $round % 3 . ',' . ($round + 1) % 3,
];

/** `$share` returns what the task acquires in a round. */
function task(string $name, string $port, string $key, string $path, $over, Closure $share): int
{
    if ($name === 'predis') {
        require_once 'Predis/autoload.php';
        $client = new Predis\Client(['host' => '127.0.0.1', 'port' => $port]);
    } else {
        $client = function () use ($port) {
            $redis = new Redis();
            $redis->connect('127.0.0.1', (int) $port, 2.0);
            return $redis;
        };
    }
    $locks = new Locks($client);
    $ledger = fopen($path, 'a');
    stream_set_write_buffer($ledger, 0);
    for ($count = $round = 0; !isOver($over); $round++) {
        $taken = $share($round);
        try {
            $lock = match (true) {
                $taken === '' => $locks->lock($key, lease: 1.0),
                $taken === 'read' => $locks->read($key, lease: 1.0),
                str_contains($taken, ',') => $locks->all(array_map(fn ($i) => $i === '0' ? $key : "$key:$i", explode(',', $taken)), lease: 1.0),
                default => $locks->semaphore("$key:permits", 5, (int) $taken, lease: 1.0),
            };
            $hold = $lock->acquire(5.0);
            if ($hold !== null) {
                $count += (int) section($hold, $ledger, $name, $key, $taken);
                if ($taken === '' && $hold->token() % 4 === 0) {
                    // It passes the lock on to a name, takes it over from there, and is inside again.
                    $heir = "$name:" . getmypid() . ':' . $hold->token();
                    $hold = $locks->takeOver($key, $heir, $hold->passTo($heir, 1.0), 1.0);
                    $count += (int) ($hold && section($hold, $ledger, $name, $key, ''));
                }
                $hold?->release();
            }
        } catch (LockException) {
            usleep(20_000);
        }
    }
    return $count;
}

$counts = [];
foreach (['alone', 'alone', 'alone', 'alone', 'reading', 'reading', 'permits', 'permits', 'several', 'several'] as $task) {
    [$count, $end] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    if (pcntl_fork() === 0) {
        fclose($running);
        fclose(STDIN);
        fwrite($end, (string) task($name, $port, $key, $path, $over, $tasks[$task]));
        exit;
    }
    fclose($end);
    $counts[] = $count;
}
$limit = microtime(true) + (float) $seconds;
do {
    $ready = [STDIN];
    $none = null;
    $left = max(0, $limit - microtime(true));
    stream_select($ready, $none, $none, (int) $left, (int) (fmod($left, 1) * 1e6));
} while (microtime(true) < $limit && $ready && fread(STDIN, 1024) !== '');
fclose($running);
echo 'done ', array_sum(array_map(fn ($count) => (int) stream_get_contents($count), $counts)), "\n";
