<?php

/* PHP's libraries, one at a time: benches/peers/README.md says what a driver does. Each worker is a process, since PHP has no threads. */

declare(strict_types=1);

use Illuminate\Cache\RedisStore;
use Illuminate\Redis\RedisManager;
use Mortise\Laravel\MortiseStore;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore as SymfonyStore;

require_once 'Illuminate/autoload.php';
require_once 'Symfony/Component/Lock/autoload.php';
foreach (['Connection', 'Locks', 'Hold', 'Laravel/MortiseLock', 'Laravel/MortiseStore'] as $file) {
    require_once __DIR__ . "/../../../helpers/php/src/$file.php";
}
[, $name, $port, $seconds, $workers, $keys, $hold, $think, $writers] = $argv;

/** What takes the lock of a key, waiting without a limit, and returns what gives it back. */
function locker(string $name, int $port): Closure
{
    if ($name === 'symfony') {
        $redis = new Redis();
        $redis->connect('127.0.0.1', $port);
        $factory = new LockFactory(new SymfonyStore($redis));
        return function (string $key, bool $write) use ($factory) {
            $lock = $factory->createLock($key, 30);
            $write ? $lock->acquire(true) : $lock->acquireRead(true);
            return $lock->release(...);
        };
    }
    $manager = new RedisManager(null, 'phpredis', ['default' => ['host' => '127.0.0.1', 'port' => $port]]);
    $store = $name === 'mortise' ? new MortiseStore($manager) : new RedisStore($manager);
    return function (string $key, bool $write) use ($store) {
        if (!$write) {
            return $store->locks()->read($key)->acquire(INF)->release(...);
        }
        $lock = $store->lock($key, 30);
        $lock->block(3600);
        return $lock->release(...);
    };
}

const BEGIN = 0;
const ENTER = 1;

/** Sleeps for so many milliseconds. usleep(0) would take some 70 µs: the kernel rounds it up. */
function pause(int $milliseconds): void
{
    if ($milliseconds > 0) {
        usleep($milliseconds * 1000);
    }
}

/** Takes and gives locks until it is killed, and says when, in 16 bytes at a time. */
function work(int $worker, Closure $take, $report, int $workers, int $keys, int $hold, int $think, int $writers): never
{
    for ($number = $worker;; $number += $workers) {
        fwrite($report, pack('VVP', $worker, BEGIN, hrtime(true)));
        $give = $take('key:' . $number % $keys, $writers === 0 || $worker < $writers);
        fwrite($report, pack('VVP', $worker, ENTER, hrtime(true)));
        pause($hold);
        $give();
        pause($think);
    }
}

$take = locker($name, (int) $port);
for ($i = 0; $i < 200; $i++) {
    $take('warm', true)();
}
unset($take);
[$reports, $report] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
[$start, $started] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
$pids = [];
for ($worker = 0; $worker < $workers; $worker++) {
    $pids[$worker] = pcntl_fork();
    if ($pids[$worker] === 0) {
        fclose($start);
        $take = locker($name, (int) $port);
        $take("warm:$worker", true)();
        fwrite($report, pack('VVP', $worker, ENTER, 0));
        fread($started, 1); // the end of file
        work($worker, $take, $report, (int) $workers, (int) $keys, (int) $hold, (int) $think, (int) $writers);
    }
}
stream_get_contents($reports, 16 * $workers); // all have connected
echo "ready\n";
fgets(STDIN);
fclose($start);
$waits = array_fill(0, (int) $workers, []);
$since = [];
$text = '';
for ($end = hrtime(true) + $seconds * 1_000_000_000; ($left = $end - hrtime(true)) > 0;) {
    $ready = [$reports];
    $none = null;
    if (stream_select($ready, $none, $none, intdiv($left, 1_000_000_000), intdiv($left, 1000) % 1_000_000)) {
        $text .= fread($reports, 8192);
        foreach (str_split(substr($text, 0, strlen($text) & ~15), 16) as $one) {
            ['worker' => $worker, 'what' => $what, 'at' => $at] = unpack('Vworker/Vwhat/Pat', $one);
            if ($what === ENTER) {
                $waits[$worker][] = intdiv($at - $since[$worker], 1000);
                unset($since[$worker]);
            } else {
                $since[$worker] = $at;
            }
        }
        $text = substr($text, strlen($text) & ~15);
    }
}
array_map(fn ($pid) => posix_kill($pid, SIGKILL), $pids);
$served = array_map(count(...), $waits);
foreach ($since as $worker => $at) {
    $waits[$worker][] = max(0, intdiv($end - $at, 1000));
}
echo json_encode(['served' => $served, 'waits' => $waits]), "\n";
fgets(STDIN);
