<?php

declare(strict_types=1);

namespace Mortise\Tests;

use Mortise\Deadlock;
use Mortise\Hold;
use Mortise\Locks;
use Mortise\Lost;
use Mortise\NotGranted;
use Mortise\Refused;

/** The library on a server and a network that work. */
final class LockTest extends TestCase
{
    /** @dataProvider libraries */
    public function testWorkRunsWhileTheLockIsHeldAndItsResultIsReturned(string $library): void
    {
        $locks = $this->locks($library);
        $result = $locks->lock('stock')->run(function (Hold $hold) use ($locks) {
            $this->assertTrue($hold->held());
            $this->assertNull($locks->lock('stock')->acquire());
            return 'sold';
        });
        $this->assertSame('sold', $result);
        $this->assertSame(0, self::$server->ask('EXISTS', 'stock'));
    }

    /** @dataProvider libraries */
    public function testWorkThatThrowsReleasesTheLock(string $library): void
    {
        try {
            $this->locks($library)->lock('stock')->run(fn () => throw new \DomainException('sold out'));
            $this->fail();
        } catch (\DomainException $thrown) {
            $this->assertSame('sold out', $thrown->getMessage());
        }
        $this->assertSame(0, self::$server->ask('EXISTS', 'stock'));
    }

    /** @dataProvider libraries */
    public function testAFiberThatIsDestroyedAmidTheWorkReleasesTheLock(string $library): void
    {
        $locks = $this->locks($library);
        $fiber = new \Fiber(fn () => $locks->lock('stock')->run(fn () => \Fiber::suspend()));
        $fiber->start();
        $this->assertSame(1, self::$server->ask('EXISTS', 'stock'));
        unset($fiber);
        gc_collect_cycles();
        $this->assertSame(0, self::$server->ask('EXISTS', 'stock'));
    }

    /** @dataProvider libraries */
    public function testNothingRunsWhileOthersHoldTheLock(string $library): void
    {
        self::$server->occupy('stock');
        $this->expectException(NotGranted::class);
        $this->locks($library)->lock('stock')->run(fn () => $this->fail('it was run'), wait: 0.1);
    }

    /** @dataProvider libraries */
    public function testAWaiterIsGrantedTheReleasedLockAndSendsOneRequest(string $library): void
    {
        self::$server->occupy('stock');
        $before = self::$server->calls('acquire');
        $waiting = new Child(fn () => $this->locks($library)->lock('stock')->acquire(60)->held());
        eventually(fn () => self::$server->waiters() === 1);
        self::$server->vacate('stock');
        $this->assertTrue($waiting->result());
        $this->assertSame($before + 1, self::$server->calls('acquire'));
    }

    /** @dataProvider libraries */
    public function testAWaiterHoldsForAWholeLeaseAfterALongWait(string $library): void
    {
        self::$server->occupy('stock', 3_000);
        $hold = $this->locks($library)->lock('stock', lease: 2)->acquire(60);
        $this->assertTrue($hold->held());
        $hold->release();
    }

    /** @dataProvider libraries */
    public function testTheRestOfAWaitNeverBecomesAWaitWithoutLimit(string $library): void
    {
        self::$server->occupy('stock');
        foreach ([0.0004, 0.001, 0, -1] as $wait) {
            $this->assertNull($this->locks($library)->lock('stock')->acquire($wait));
        }
    }

    /** @dataProvider libraries */
    public function testReadersShareAndAWriterWaitsForThem(string $library): void
    {
        $locks = $this->locks($library);
        $one = $locks->read('report')->acquire();
        $two = $locks->read('report')->acquire();
        $this->assertNull($locks->lock('report')->acquire());
        $this->assertFalse($one->upgrade());
        $two->release();
        $token = $one->token();
        $this->assertTrue($one->upgrade());
        $this->assertGreaterThan($token, $one->token());
        $this->assertNull($locks->read('report')->acquire());
        $one->downgrade();
        $this->assertNotNull($locks->read('report')->acquire());
        $this->assertNull($locks->lock('report')->acquire());
        $one->release();
    }

    /** @dataProvider libraries */
    public function testADowngradeGivesBackNothingButTheWriting(string $library): void
    {
        $locks = $this->locks($library);
        $all = $locks->semaphore('pool', limit: 3, permits: 3)->acquire();
        $reader = $locks->read('report')->acquire();
        foreach ([$all, $reader] as $hold) {
            $this->assertThrows(\LogicException::class, $hold->downgrade(...));
            $this->assertTrue($hold->upgrade());
            $hold->downgrade();
            $this->assertTrue($hold->held() && $hold->isKnown());
        }
        $this->assertNull($locks->semaphore('pool', limit: 3)->acquire());
        $this->assertNotNull($locks->read('report')->acquire());
    }

    /** @dataProvider libraries */
    public function testASemaphoreAdmitsUpToItsLimitAndThenWaitersInOrder(string $library): void
    {
        $locks = $this->locks($library);
        $holds = [$locks->semaphore('pool', limit: 3)->acquire(), $locks->semaphore('pool', limit: 3)->acquire()];
        $this->assertNull($locks->semaphore('pool', limit: 3, permits: 2)->acquire());
        $waiting = [];
        foreach ([2, 1] as $permits) {
            $waiting[] = new Child(function () use ($library, $permits) {
                $this->locks($library)->semaphore('pool', limit: 3, permits: $permits)->acquire(60);
                self::$server->phpredis()->rPush('order', $permits);
            });
            eventually(fn () => self::$server->waiters() === count($waiting));
        }
        $holds[0]->release();
        $waiting[0]->result();
        $this->assertNull($locks->semaphore('pool', limit: 3)->acquire(), 'the third permit is not for the last request');
        $holds[1]->release();
        $waiting[1]->result();
        $this->assertSame(['2', '1'], self::$server->admin->lRange('order', 0, -1));
    }

    /** @dataProvider libraries */
    public function testAPermitOfAKilledProcessIsFreeAtTheEndOfItsLease(string $library): void
    {
        $killed = new Child(function () use ($library) {
            $this->locks($library)->semaphore('pool', limit: 1, lease: 3)->acquire();
            posix_kill(getmypid(), SIGKILL);
        });
        $killed->await();
        $this->assertNull($this->locks($library)->semaphore('pool', limit: 1)->acquire());
        $this->assertNotNull($this->locks($library)->semaphore('pool', limit: 1)->acquire(60));
    }

    /** @dataProvider libraries */
    public function testARefreshLengthensTheLeaseAndNeverShortensIt(string $library): void
    {
        $locks = $this->locks($library);
        $hold = $locks->lock('stock', lease: 10)->acquire();
        $hold->refresh(60);
        $this->assertGreaterThan(50, $hold->left());
        $hold->refresh(1);
        $this->assertGreaterThan(50, $hold->left());
        $this->assertGreaterThan(50_000, $locks->holders('stock')[0]['lease']);
    }

    /** @dataProvider libraries */
    public function testAHoldIsValidNoLongerThanItsLeaseOnTheServer(string $library): void
    {
        $locks = $this->locks($library);
        $hold = $locks->lock('stock', lease: 0.3)->acquire();
        do {
            $isKnown = $hold->isKnown();
            $isHeld = $hold->held(); // and it was at the server's reply
            $this->assertTrue($isKnown || !$isHeld);
        } while ($isHeld);
        $next = $locks->lock('stock')->acquire(5);
        $this->assertGreaterThan($hold->token(), $next->token());
        $this->assertLost($hold->refresh(...));
        $this->assertLost($hold->release(...));
        $this->assertTrue($next->held(), 'the late release has not ended the next hold');
        $next->release();
    }

    /** @dataProvider libraries */
    public function testAReleaseOfALostHoldFails(string $library): void
    {
        $locks = $this->locks($library);
        $hold = $locks->lock('stock')->acquire();
        self::$server->ask('DEL', 'stock');
        self::$server->occupy('stock');
        $this->assertLost($hold->release(...));
        $this->assertNull($locks->lock('stock')->acquire(), 'the other one still holds');
        $this->assertLost(fn () => $locks->lock('other')->run(fn () => self::$server->ask('DEL', 'other')));
    }

    /** @dataProvider libraries */
    public function testARefreshOfARevokedHoldReportsTheLossAndLeavesAtOnce(string $library): void
    {
        $hold = $this->locks($library)->lock('stock')->acquire();
        self::$server->ask('LOCK.REVOKE', 'stock', $hold->owner);
        $this->assertLost($hold->refresh(...));
        $this->assertSame(0, self::$server->ask('EXISTS', 'stock'));
    }

    /** @dataProvider libraries */
    public function testACommandRunsOnlyWhileTheLockIsHeld(string $library): void
    {
        $hold = $this->locks($library)->lock('stock')->acquire();
        $this->assertSame('OK', $hold->guard('SET', 'level', 7));
        $this->assertSame('7', $hold->guard('GET', 'level'));
        $this->assertNull($hold->guard('GET', 'nothing'));
        try {
            $hold->guard('LPUSH', 'level', 1);
            $this->fail();
        } catch (Refused $refused) {
            $this->assertSame('WRONGTYPE', $refused->reason);
        }
        self::$server->ask('DEL', 'stock');
        $this->assertLost(fn () => $hold->guard('SET', 'level', 8));
        $this->assertSame('7', self::$server->admin->get('level'));
    }

    /** @dataProvider libraries */
    public function testALockStaysTakenForAWhileAfterShortWork(string $library): void
    {
        $locks = $this->locks($library);
        $locks->lock('nightly', lease: 600)->run(fn (Hold $hold) => $hold->keepFor(2));
        $left = $locks->holders('nightly')[0]['lease'];
        $this->assertTrue($left > 0 && $left <= 2_000, "$left");
        $this->assertNull($locks->lock('nightly')->acquire());
        $this->assertNotNull($locks->lock('nightly')->acquire(60));
    }

    /** @dataProvider libraries */
    public function testALockThatTheServerDoesNotKeepForSoLongIsHeldAsBefore(string $library): void
    {
        $hold = $this->locks($library)->lock('stock')->acquire();
        $this->assertThrows(Refused::class, fn () => $hold->keepFor(1e9));
        $this->assertTrue($hold->held());
        $hold->release();
    }

    /** @dataProvider libraries */
    public function testTheErrorOfTheWorkWinsAndTheLossIsAttached(string $library): void
    {
        $work = function (): void {
            self::$server->ask('DEL', 'stock');
            throw new \DomainException('sold out', 0, new \RuntimeException('before'));
        };
        $thrown = $this->assertThrows(\DomainException::class, fn () => $this->locks($library)->lock('stock')->run($work));
        $this->assertSame('before', $thrown->getPrevious()->getMessage());
        $this->assertInstanceOf(Lost::class, $thrown->getPrevious()->getPrevious());
        $this->assertLost(fn () => $this->locks($library)->lock('stock')->run(fn () => self::$server->ask('DEL', 'stock')));
    }

    public function testABeliefIsShorterThanTheLeaseByTheErrorOfTheClock(): void
    {
        $this->assertLessThanOrEqual(0.99 * 5 - 0.013, $this->locks('phpredis')->lock('stock', lease: 5)->acquire()->left());
    }

    /** @dataProvider sights */
    public function testALeaseGoesOnWhileTheMachineSleepsAndNotWithTheWallClock(string $sight, string $setForward): void
    {
        $run = proc_open([PHP_BINARY, __DIR__ . '/sleeper.php', (string) self::$server->port, $sight], [1 => ['pipe', 'w']], $pipes);
        $this->assertSame("at first: held, set back: held, after half: held, at the end: held, after all: over, set forward: $setForward, ", stream_get_contents($pipes[1]));
        proc_close($run);
    }

    /** Who does not see the uptime takes a clock that is set forward for a sleep. */
    public static function sights(): array
    {
        return [['sees', 'held'], ['late', 'held'], ['blind', 'over']];
    }

    /** @dataProvider libraries */
    public function testARestoredHoldIsRefreshedForTheLeaseThatItWasRestoredWith(string $library): void
    {
        $hold = $this->locks($library)->lock('stock', lease: 5)->acquire();
        $restored = $this->locks($library)->restore('stock', $hold->owner, $hold->token(), lease: 600);
        $sent = $restored->left();
        usleep(20_000);
        $restored->refresh();
        $this->assertGreaterThan($sent - 0.01, $restored->left(), 'not for the 30 s of a lock that names none');
    }

    /** @dataProvider libraries */
    public function testAnUpgradeOfAHoldThatIsGoneIsALoss(string $library): void
    {
        $locks = $this->locks($library);
        $reader = $locks->read('report')->acquire();
        $other = $locks->read('report')->acquire();
        $this->assertFalse($reader->upgrade());
        $this->assertTrue($reader->held());
        self::$server->ask('DEL', 'report');
        self::$server->occupy('report');
        $this->assertLost($reader->upgrade(...));
        $this->assertFalse($reader->held());
    }

    /** @dataProvider libraries */
    public function testLocksThatAreMadeForEachCallLeaveNoConnection(string $library): void
    {
        $client = self::$server->client($library);
        $client->ping();
        $before = count(self::$server->admin->client('list'));
        for ($i = 0; $i < 50; $i++) {
            (new Locks($client))->lock('stock')->run(fn () => null);
        }
        $this->assertTrue(eventually(fn () => count(self::$server->admin->client('list')) <= $before));
    }

    /** @dataProvider libraries */
    public function testAllHoldersOfARevokedLockLearnOfIt(string $library): void
    {
        $locks = $this->locks($library);
        $readers = [$locks->read('page', lease: 60)->acquire(), $locks->read('page', lease: 30)->acquire()];
        $left = $locks->revoke('page');
        $this->assertTrue($left > 30 && $left <= 60, "$left");
        foreach ($readers as $reader) {
            $this->assertLost($reader->refresh(...));
        }
        $this->assertSame(0.0, (float) $locks->revoke('page'));
    }

    /** @dataProvider libraries */
    public function testAPassedHoldBelongsToTheNewOwner(string $library): void
    {
        $locks = $this->locks($library);
        $hold = $locks->lock('stock')->acquire();
        $token = $hold->passTo('the-runner', 60);
        $this->assertFalse($hold->held());
        $this->assertThrows(\LogicException::class, $hold->release(...));
        $other = $this->locks($library)->restore('stock', 'the-runner', $token);
        $this->assertTrue($other->held());
        $other->release();
        $this->assertNull($locks->restore('stock', 'the-runner', $token));
    }

    /** @dataProvider libraries */
    public function testAHoldWhosePassIsRefusedIsStillHeldAndCanBeReleased(string $library): void
    {
        $hold = $this->locks($library)->lock('stock')->acquire();
        $this->assertThrows(Refused::class, fn () => $hold->passTo($hold->owner, 60));
        $this->assertTrue($hold->held());
        $hold->refresh();
        $hold->release();
        $this->assertSame(0, self::$server->ask('EXISTS', 'stock'));
    }

    /** @dataProvider libraries */
    public function testOneOfSeveralTakeoversSucceeds(string $library): void
    {
        $hold = $this->locks($library)->lock('stock')->acquire();
        $this->assertNull($this->locks($library)->takeOver('stock', $hold->owner, $hold->token() + 1));
        $this->assertNull($this->locks($library)->restore('stock', $hold->owner, $hold->token() + 1));
        $this->assertTrue($hold->held());
        $hold->refresh();
        $runs = array_map(fn () => $this->locks($library)->takeOver('stock', $hold->owner, $hold->token()), range(1, 3));
        $this->assertSame([true, false, false], array_map(fn ($run) => $run !== null, $runs));
        $this->assertGreaterThan($hold->token(), $runs[0]->token());
        $this->assertLost($hold->refresh(...));
        $this->assertTrue($runs[0]->held());
        $runs[0]->release();
    }

    /** @dataProvider libraries */
    public function testAnotherProcessCanReleaseByOwnerAndToken(string $library): void
    {
        $hold = $this->locks($library)->lock('stock')->acquire();
        $this->assertLost(fn () => $this->locks($library)->hold('stock', $hold->owner, $hold->token() + 1)->release());
        $this->locks($library)->hold('stock', $hold->owner, $hold->token())->release();
        $this->assertSame(0, self::$server->ask('EXISTS', 'stock'));
    }

    /** @dataProvider libraries */
    public function testADeadlockBetweenTasksIsReported(string $library): void
    {
        $locks = $this->locks($library);
        $locks->lock('a', task: 'one')->acquire();
        $locks->lock('b', task: 'two')->acquire();
        $waiting = new Child(fn () => $this->locks($library)->lock('b', task: 'one')->acquire(60));
        eventually(fn () => self::$server->waiters() === 1);
        $this->assertThrows(Deadlock::class, fn () => $locks->lock('a', task: 'two')->acquire(60));
        $waiting->kill();
    }

    /** @dataProvider libraries */
    public function testAKeyThatIsNoLockIsAnErrorAtOnce(string $library): void
    {
        self::$server->admin->set('stock', 'bread');
        $this->assertSame('WRONGTYPE', $this->assertThrows(Refused::class, fn () => $this->locks($library)->lock('stock')->acquire(60))->reason);
    }

    /** @dataProvider libraries */
    public function testTheApplicationsConnectionIsNotUsed(string $library): void
    {
        $client = self::$server->client($library);
        $client->select(3);
        $client->multi();
        $locks = new Locks($client);
        $hold = $locks->lock('stock')->acquire();
        $this->assertTrue($hold->held());
        $hold->release();
        $client->discard();
    }

    /** @dataProvider libraries */
    public function testASelectOfTheApplicationMovesNoLock(string $library): void
    {
        $client = self::$server->client($library);
        $locks = new Locks($client);
        $hold = $locks->lock('stock')->acquire();
        $client->select(3);
        self::$server->ask('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        $hold->refresh();
        $child = new Child(fn () => $locks->lock('stock')->acquire());
        $this->assertNull($child->result());
        $hold->release();
    }

    public function testLocksCannotBeCloned(): void
    {
        $locks = $this->locks('phpredis');
        $this->assertThrows(\Error::class, fn () => clone $locks);
    }

    public function testAClosureConnectsWhereIniSetIsDisabled(): void
    {
        $run = proc_open([PHP_BINARY, '-d', 'disable_functions=ini_set', '-d', 'display_errors=stderr', '-r', '
            foreach (["Connection", "Locks", "Hold"] as $file) {
                require "$argv[1]/$file.php";
            }
            $locks = new Mortise\Locks(function () use ($argv) {
                $redis = new Redis();
                $redis->connect("127.0.0.1", (int) $argv[2]);
                return $redis;
            });
            exit($locks->lock("stock")->acquire() ? 7 : 8);
        ', dirname(__DIR__) . '/src', (string) self::$server->port], [], $pipes);
        $this->assertSame(7, proc_close($run));
    }

    public function testAClosureMakesTheConnectionAndIsCalledAgainWhenItBreaks(): void
    {
        $made = 0;
        $locks = new Locks(function () use (&$made) {
            $made++;
            return self::$server->phpredis();
        });
        $this->assertSame(0, $made);
        $locks->lock('one')->acquire();
        $locks->lock('two')->acquire();
        $this->assertSame(1, $made);
        self::$server->ask('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        $this->assertNotNull($locks->lock('three')->acquire(5));
        $this->assertSame(2, $made);
    }

    public function testAClosureThatReturnsABrokenConnectionIsToldToConnect(): void
    {
        $client = self::$server->phpredis();
        $locks = new Locks(fn () => $client);
        $locks->holders('any');
        self::$server->ask('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        $wrong = $this->assertThrows(\InvalidArgumentException::class, fn () => $locks->lock('stock')->acquire(60));
        $this->assertStringContainsString('each time', $wrong->getMessage());
    }

    public function testAnInvalidClientLeaseOrTaskIsAnArgumentError(): void
    {
        $locks = $this->locks('phpredis');
        foreach ([
            fn () => new Locks(new \stdClass()),
            fn () => $locks->lock('stock', lease: 0.019),
            fn () => $locks->lock('stock', lease: NAN),
            fn () => $locks->lock('stock', lease: INF),
            fn () => $locks->lock('stock', task: ''),
            fn () => (new Locks(fn () => self::persistent()))->lock('stock')->acquire(),
            fn () => new Locks(new \Redis()),
            fn () => (new Locks(fn () => null))->lock('stock')->acquire(),
            fn () => (new Locks(fn () => null))->hold('stock', 'owner', 1)->release(),
            fn () => (new Locks(fn () => null))->hold('stock', 'owner', 1)->upgrade(),
            fn () => (new Locks(new \Predis\Client(['tcp://127.0.0.1:1', 'tcp://127.0.0.1:2'], ['cluster' => 'predis'])))->lock('stock')->acquire(),
        ] as $wrong) {
            $this->assertThrows(\InvalidArgumentException::class, $wrong);
        }
        foreach ([0, 3] as $permits) {
            $this->assertThrows(Refused::class, fn () => $locks->semaphore('pool', limit: 2, permits: $permits)->acquire());
        }
    }

    private static function persistent(): \Redis
    {
        $redis = new \Redis();
        $redis->pconnect('127.0.0.1', self::$server->port, 0, 'persistent');
        return $redis;
    }
}
