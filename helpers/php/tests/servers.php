<?php

/* Servers, broken networks and other processes for the tests: all on loopback, on their own ports, and ended with the test. */

declare(strict_types=1);

namespace Mortise\Tests;

use PHPUnit\Framework\Assert;

function eventually(callable $condition, float $seconds = 60): mixed
{
    for ($end = microtime(true) + $seconds; microtime(true) < $end; usleep(10_000)) {
        if ($value = $condition()) {
            return $value;
        }
    }
    Assert::fail("not within $seconds s");
}

/**
 * A port that no other test of any language gets, even while its server is down. The process that listens 2,500 above owns it.
 */
function claimPort(): int
{
    static $claims = [];
    while (true) {
        $port = random_int(10_000, 12_499);
        $claim = @stream_socket_server('tcp://127.0.0.1:' . ($port + 2_500));
        $free = $claim ? @stream_socket_server("tcp://127.0.0.1:$port") : false;
        if ($free) {
            $claims[] = $claim;
            fclose($free);
            return $port;
        }
    }
}

/** A file of a framework's own tests. */
function contracts(string $path): string
{
    $file = dirname(__DIR__, 3) . "/target/helpers/php/contracts/$path";
    return is_file($file) ? $file : throw new \RuntimeException("$path is missing: ./interop prepare fetches it");
}

final class Server
{
    public readonly int $port;
    public \Redis $admin;
    private string $folder;
    /** @var resource */
    private $process;
    private int $tester;

    /** @param ?string $sentinel the configuration of a Sentinel, which is started instead of a server with the module */
    public function __construct(
        private readonly array $options = [],
        private readonly ?string $sentinel = null,
        private readonly ?string $password = null,
        private readonly bool $hasModule = true,
    ) {
        $this->port = claimPort();
        $this->tester = getmypid();
        mkdir($this->folder = sys_get_temp_dir() . '/mortise-php-' . bin2hex(random_bytes(6)));
        $this->start();
    }

    public function start(): void
    {
        $module = getenv('MORTISE_MODULE') ?: dirname(__DIR__, 3) . '/target/release/libmortise.so';
        $arguments = ['--port', $this->port, '--bind', '127.0.0.1', '--save', '', '--dir', $this->folder, ...$this->options];
        array_push($arguments, ...($this->hasModule ? ['--loadmodule', $module] : []));
        if ($this->sentinel !== null) {
            file_put_contents("$this->folder/sentinel.conf", "port $this->port\nbind 127.0.0.1\ndir $this->folder\n$this->sentinel\n");
            $arguments = ["$this->folder/sentinel.conf", '--sentinel'];
        }
        $this->process = proc_open(
            [getenv('MORTISE_SERVER') ?: 'redis-server', ...$arguments],
            [['file', '/dev/null', 'r'], ['file', '/dev/null', 'w'], ['file', '/dev/null', 'w']],
            $pipes,
        );
        eventually(function () {
            Assert::assertTrue(proc_get_status($this->process)['running'], 'the server did not start');
            try {
                $this->admin = $this->phpredis();
                return ($this->password === null || $this->admin->auth($this->password)) && $this->admin->ping();
            } catch (\RedisException) {
                return false;
            }
        });
    }

    public function phpredis(?int $port = null): \Redis
    {
        $redis = new \Redis();
        $redis->connect('127.0.0.1', $port ?? $this->port);
        $redis->setOption(\Redis::OPT_REPLY_LITERAL, true);
        return $redis;
    }

    /** A client of an application, by the library of this name. */
    public function client(string $library, ?int $port = null): object
    {
        return $library === 'phpredis' ? $this->phpredis($port) : new \Predis\Client(['host' => '127.0.0.1', 'port' => $port ?? $this->port]);
    }

    public function ask(string|int ...$words): mixed
    {
        return $this->admin->rawCommand(...$words);
    }

    public function lockInfo(string $field): int
    {
        return (int) $this->admin->info('lock')["lock_$field"];
    }

    /** How often a LOCK command was called. */
    public function calls(string $name): int
    {
        $stats = array_change_key_case($this->admin->info('commandstats'));
        preg_match('/calls=(\d+)/', $stats["cmdstat_lock.$name"] ?? '', $found);
        return (int) ($found[1] ?? 0);
    }

    /** Whether it is a primary. Sentinel closes the connections of a server that it promotes, even this one. */
    public function isPrimary(): bool
    {
        try {
            return $this->admin->info('replication')['role'] === 'master';
        } catch (\RedisException) {
            return false;
        }
    }

    public function waiters(): int
    {
        return $this->lockInfo('waiters');
    }

    /** Makes another owner hold the key from now on. */
    public function occupy(string $key, int $milliseconds = 600_000): void
    {
        Assert::assertIsInt($this->ask('LOCK.ACQUIRE', $key, 'somebody', $milliseconds));
    }

    public function vacate(string $key): void
    {
        $this->ask('LOCK.RELEASE', $key, 'somebody');
    }

    public function kill(): void
    {
        if (is_resource($this->process)) {
            proc_terminate($this->process, SIGKILL);
            proc_close($this->process);
        }
    }

    public function __destruct()
    {
        if ($this->tester === getmypid()) {
            $this->kill();
            array_map(unlink(...), glob("$this->folder/*"));
            rmdir($this->folder);
        }
    }
}

/** A proxy before a server, in its own process. It can hold back data in either direction, and cut connections. */
final class Relay
{
    public readonly int $port;
    /** @var resource */
    private $process;
    /** @var array<int, resource> */
    private array $pipes = [];

    public function __construct(int $target)
    {
        $this->process = proc_open([PHP_BINARY, __DIR__ . '/relay.php', $target], [['pipe', 'r'], ['pipe', 'w'], STDERR], $this->pipes);
        $this->port = (int) fgets($this->pipes[1]);
    }

    /** @param 'hold requests'|'hold replies'|'pass'|'cut' $what is done when this returns */
    public function tell(string $what): void
    {
        fwrite($this->pipes[0], "$what\n");
        Assert::assertSame("$what\n", fgets($this->pipes[1]));
    }

    public function __destruct()
    {
        proc_terminate($this->process, SIGKILL);
        proc_close($this->process);
    }
}

/** Work in a forked process, and its result. */
final class Child
{
    public readonly int $pid;
    /** @var resource */
    private $pipe;

    public function __construct(callable $work)
    {
        [$this->pipe, $end] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $this->pid = pcntl_fork();
        if ($this->pid === 0) {
            try {
                $result = ['returned' => $work()];
            } catch (\Throwable $thrown) {
                $result = ['threw' => $thrown::class . ': ' . $thrown->getMessage()];
            }
            fwrite($end, serialize($result));
            fclose($end);
            posix_kill(getmypid(), SIGKILL); // without PHPUnit's own end of a process
        }
    }

    public function result(float $seconds = 60): mixed
    {
        stream_set_timeout($this->pipe, (int) $seconds);
        $text = stream_get_contents($this->pipe);
        $this->await();
        Assert::assertNotSame('', $text, 'the other process has returned nothing');
        $result = unserialize($text);
        Assert::assertArrayHasKey('returned', $result, $result['threw'] ?? '');
        return $result['returned'];
    }

    public function kill(): void
    {
        posix_kill($this->pid, SIGKILL);
        $this->await();
    }

    public function await(): void
    {
        pcntl_waitpid($this->pid, $status);
    }
}
