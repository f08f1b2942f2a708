<?php

declare(strict_types=1);

namespace Mortise\Tests;

use Mortise\Locks;
use Mortise\Refused;

/** Handlers of signals that run in the middle of a request: with phpredis when its reply has come, with Predis amid its lines, too. */
final class SignalsTest extends TestCase
{
    /** Starts a process in which this is SIGUSR1's handler. */
    private function child(callable $handler, callable $work): Child
    {
        return new Child(function () use ($handler, $work) {
            pcntl_async_signals(true);
            pcntl_signal(SIGUSR1, $handler);
            return $work();
        });
    }

    /** @dataProvider libraries */
    public function testAHandlerThatThrowsDuringAWaitLeavesNoLock(string $library): void
    {
        self::$server->occupy('stock');
        $waiting = $this->child(fn () => throw new \DomainException('stop'), function () use ($library) {
            $locks = $this->locks($library);
            $this->assertThrows(\DomainException::class, fn () => $locks->lock('stock')->acquire(60));
            $left = self::$server->phpredis()->exists('stock');
            $hold = $locks->lock('other')->acquire();
            return [$left, $hold->owner === $locks->holders('other')[0]['owner'], $hold->token() === $locks->holders('other')[0]['token']];
        });
        eventually(fn () => self::$server->waiters() === 1);
        posix_kill($waiting->pid, SIGUSR1);
        self::$server->vacate('stock');
        $this->assertSame([0, true, true], $waiting->result());
    }

    /** @dataProvider libraries */
    public function testAHandlerThatThrowsBeforeTheWholeReplyLeavesNoneForTheNextCommand(string $library): void
    {
        self::$server->occupy('stock');
        $relay = new Relay(self::$server->port);
        $asking = $this->child(fn () => throw new \DomainException('stop'), function () use ($library, $relay) {
            $locks = $this->locks($library, $relay);
            for ($thrown = null; !$thrown instanceof \DomainException;) { // a slow machine may exceed the time for a reply
                $thrown = $this->assertThrows(\Exception::class, function () use ($locks) {
                    while (true) {
                        $locks->holders('stock');
                    }
                });
            }
            return $locks->lock('other')->acquire()->owner === $locks->holders('other')[0]['owner'];
        });
        $before = self::$server->calls('info');
        eventually(fn () => self::$server->calls('info') > $before);
        $relay->tell('hold replies'); // so that it waits for one
        posix_kill($asking->pid, SIGUSR1);
        $relay->tell('pass');
        $this->assertTrue($asking->result());
    }

    /** @dataProvider libraries */
    public function testAHandlerThatUsesTheSameLocksDoesNotDisturbTheWait(string $library): void
    {
        self::$server->occupy('stock');
        $waiting = $this->child(function () use (&$locks, &$refused) {
            $refused = $this->assertThrows(Refused::class, fn () => $locks->call(['LOCK.INFO']));
        }, function () use (&$locks, &$refused, $library) {
            $locks = $this->locks($library);
            $hold = $locks->lock('stock')->acquire(60);
            return [$refused?->reason, $hold->owner === $locks->holders('stock')[0]['owner']];
        });
        eventually(fn () => self::$server->waiters() === 1);
        posix_kill($waiting->pid, SIGUSR1);
        self::$server->vacate('stock');
        $this->assertSame(['ERR', true], $waiting->result());
    }

    /** Runs a script in the library's namespace, where a function can stand for a handler that runs as the library calls it. */
    private function script(string $code): int
    {
        $begin = 'namespace Mortise;
            foreach (["Connection", "Locks", "Hold"] as $file) {
                require "$argv[1]/$file.php";
            }
            function connect(): \Redis {
                $redis = new \Redis();
                $redis->connect("127.0.0.1", (int) $GLOBALS["argv"][2]);
                return $redis;
            }';
        $run = proc_open([PHP_BINARY, '-d', 'display_errors=stderr', '-r', $begin . $code, dirname(__DIR__) . '/src', (string) self::$server->port], [], $pipes);
        return proc_close($run);
    }

    public function testAHandlerWhoseOwnRequestFailsDoesNotDisturbTheOneThatItInterrupts(): void
    {
        $this->assertSame(7, $this->script('
            function intdiv(int $one, int $two): int {
                try {
                    $GLOBALS["locks"]->holders("any");
                } catch (Unavailable) {
                }
                return \intdiv($one, $two);
            }
            $made = 0;
            $locks = new Locks(function () use (&$made) {
                return ++$made === 2 ? throw new \Exception("down") : connect();
            });
            exit($locks->lock("stock")->acquire(60) && $made > 1 ? 7 : 8);
        '));
    }

    public function testAHandlerThatThrowsAsTheLockIsGivenBackLeavesNoLock(): void
    {
        $this->assertSame(7, $this->script('
            $throws = false;
            function microtime(): float {
                [$throws, $GLOBALS["throws"]] = [$GLOBALS["throws"], false];
                return $throws ? throw new \DomainException("stop") : \microtime(true);
            }
            $locks = new Locks(connect());
            try {
                $locks->lock("stock")->run(function (Hold $hold) use (&$given, &$throws) {
                    [$given, $throws] = [$hold, true];
                });
            } catch (\DomainException) {
                exit($locks->holders("stock") === [] && !$given->held() ? 7 : 8);
            }
        '));
    }

    /** Starts a process whose handler forks: the new one throws amid the request of its parent, and ends as the exception leaves the work. */
    private function forking(callable $work): Child
    {
        return $this->child(fn () => pcntl_fork() ?: throw new \DomainException('the new one failed'), function () use ($work) {
            $process = getmypid();
            try {
                return $work();
            } finally {
                getmypid() === $process ? pcntl_wait($status) : posix_kill(getmypid(), SIGKILL);
            }
        });
    }

    /** @dataProvider libraries */
    public function testAProcessThatAHandlerForksDuringAWaitDoesNotLeaveItsParentsLock(string $library): void
    {
        self::$server->occupy('stock');
        $waiting = $this->forking(fn () => $this->locks($library)->lock('stock')->acquire(60)->token());
        eventually(fn () => self::$server->waiters() === 1);
        posix_kill($waiting->pid, SIGUSR1);
        self::$server->vacate('stock');
        $token = $waiting->result();
        $this->assertSame($token, $this->locks($library)->holders('stock')[0]['token'] ?? null);
    }

    /** @dataProvider libraries */
    public function testAProcessThatAHandlerForksDuringAnUpgradeDoesNotLeaveItsParentsLock(string $library): void
    {
        $relay = new Relay(self::$server->port);
        $before = self::$server->calls('wlock');
        $upgrading = $this->forking(function () use ($library, $relay) {
            $hold = $this->locks($library, $relay)->read('stock')->acquire();
            $relay->tell('hold replies');
            $hold->upgrade();
            return $hold->token();
        });
        eventually(fn () => self::$server->calls('wlock') > $before);
        posix_kill($upgrading->pid, SIGUSR1);
        $relay->tell('pass');
        $token = $upgrading->result();
        $this->assertSame($token, $this->locks($library)->holders('stock')[0]['token'] ?? null);
    }

    public function testAHandlerThatThrowsWhileASentinelIsAskedEndsTheWait(): void
    {
        $relay = new Relay(self::$server->port);
        $relay->tell('hold replies');
        $asking = new Child(function () use ($relay) {
            pcntl_async_signals(true);
            pcntl_signal(SIGALRM, fn () => throw new \DomainException('stop'));
            $locks = new Locks(new \Predis\Client(["tcp://127.0.0.1:$relay->port"], ['replication' => 'sentinel', 'service' => 'locks']));
            return $this->assertThrows(\DomainException::class, function () use ($locks) {
                pcntl_alarm(1);
                $locks->lock('stock')->acquire(4);
            })->getMessage();
        });
        $this->assertSame('stop', $asking->result());
    }

    /** @dataProvider libraries */
    public function testAHandlerThatExitsDuringAWaitLeavesNoLock(string $library): void
    {
        self::$server->occupy('stock');
        $waiting = proc_open([PHP_BINARY, __DIR__ . '/exits.php', $library, (string) self::$server->port], [], $pipes);
        eventually(fn () => self::$server->waiters() === 1);
        posix_kill(proc_get_status($waiting)['pid'], SIGUSR1);
        self::$server->vacate('stock');
        $this->assertSame(7, proc_close($waiting));
        $this->assertSame(0, self::$server->ask('EXISTS', 'stock'));
    }
}
