<?php

declare(strict_types=1);

namespace Mortise\Tests;

use Mortise\Locks;
use Mortise\Symfony\MortiseStore;
use Symfony\Component\Lock\Exception\LockAcquiringException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

require_once __DIR__ . '/symfony.php';

/** Locks of Symfony's factory on our store, beyond the framework's own tests. */
final class SymfonyTest extends TestCase
{
    private function factory(string $library = 'phpredis'): LockFactory
    {
        return new LockFactory(new MortiseStore($this->locks($library)));
    }

    /** @dataProvider libraries */
    public function testARequestWaitsInTheServersQueueWithoutPolling(string $library): void
    {
        $held = $this->factory($library)->createLock('invoice', 60);
        $held->acquire();
        $before = self::$server->calls('acquire');
        $waiting = new Child(fn () => $this->factory($library)->createLock('invoice', 60)->acquire(true));
        eventually(fn () => self::$server->waiters() === 1);
        $held->release();
        $this->assertTrue($waiting->result());
        $this->assertSame($before + 1, self::$server->calls('acquire'));
    }

    public function testReadersWaitInTheQueueToo(): void
    {
        $held = $this->factory()->createLock('report', 60);
        $held->acquire();
        $before = self::$server->calls('rlock');
        $readers = [];
        foreach ([1, 2] as $number) {
            $readers[] = new Child(fn () => $this->factory()->createLock('report', 60)->acquireRead(true));
            eventually(fn () => self::$server->waiters() === $number);
        }
        $held->release();
        foreach ($readers as $reader) {
            $this->assertTrue($reader->result());
        }
        $this->assertSame($before + 2, self::$server->calls('rlock'));
    }

    public function testALeaseIsTheTtlOfTheLockEvenIfShorterThanThatOfTheStore(): void
    {
        $lock = $this->factory()->createLock('invoice', 5);
        $lock->acquire();
        $this->assertLessThanOrEqual(5_000, $this->locks('phpredis')->holders('invoice')[0]['lease']);
        $lock->refresh(60);
        $this->assertGreaterThan(50_000, $this->locks('phpredis')->holders('invoice')[0]['lease']);
        $lock->release();
        $this->assertSame(0, self::$server->ask('EXISTS', 'invoice'));
    }

    public function testAKeyThatChangesItsModeIsHeldForAsLongAsItExpects(): void
    {
        $lock = $this->factory()->createLock('report', null);
        $lock->acquire();
        $lock->refresh(5.0);
        $lock->acquireRead();
        $this->assertLessThanOrEqual($this->locks('phpredis')->holders('report')[0]['lease'] / 1000, $lock->getRemainingLifetime() - 1);
        $lock->refresh(5.0);
        $lock->acquire();
        $this->assertLessThanOrEqual($this->locks('phpredis')->holders('report')[0]['lease'] / 1000, $lock->getRemainingLifetime() - 1);
    }

    public function testAKeyWhoseRenewalFailsAfterItsUpgradeCanBeReleased(): void
    {
        $fails = false;
        $store = new MortiseStore(new Locks(function () use (&$fails) {
            $redis = new class ($fails) extends \Redis {
                public function __construct(private bool &$fails)
                {
                }

                public function rawCommand($command, ...$words): mixed
                {
                    return $this->fails && $command === 'LOCK.RENEW' ? throw new \DomainException('stop') : parent::rawCommand($command, ...$words);
                }
            };
            $redis->connect('127.0.0.1', self::$server->port);
            return $redis;
        }));
        $lock = (new LockFactory($store))->createLock('report', 60);
        $lock->acquireRead();
        $fails = true;
        $this->assertThrows(LockAcquiringException::class, $lock->acquire(...));
        $lock->release();
        $this->assertSame(0, self::$server->ask('EXISTS', 'report'));
    }

    public function testTheLockOfAKilledWorkerIsFreeAtTheEndOfItsLeaseAndNotBefore(): void
    {
        $worker = new Child(function () {
            $lock = $this->factory()->createLock('invoice', 3.0);
            $lock->acquire();
            posix_kill(getmypid(), SIGKILL);
        });
        $worker->await();
        $next = $this->factory()->createLock('invoice', 60);
        $this->assertFalse($next->acquire());
        $this->assertTrue($next->acquire(true));
        $next->release();
    }

    public function testAReaderThatRequestsToWriteKeepsItsLockUntilTheOthersHaveLeft(): void
    {
        $one = $this->factory()->createLock('report', 60);
        $one->acquireRead();
        $leaving = new Child(function () {
            $two = $this->factory()->createLock('report', 60);
            $two->acquireRead();
            $redis = self::$server->phpredis();
            $redis->rPush('reads', 1);
            $redis->blPop('go', 0);
            usleep(300_000);
            $two->release();
        });
        self::$server->admin->blPop('reads', 0);
        $this->assertFalse($one->acquire());
        self::$server->admin->rPush('go', 1);
        $this->assertTrue($one->acquire(true));
        $leaving->result();
        $this->assertFalse($this->factory()->createLock('report')->acquireRead());
        $one->release();
    }

    public function testAReaderThatMayNotWriteStillExpires(): void
    {
        $factory = new LockFactory(new MortiseStore($this->locks('phpredis'), initialTtl: 0.5));
        [$one, $two] = [$factory->createLock('report', null), $factory->createLock('report', null)];
        $one->acquireRead();
        $two->acquireRead();
        $this->assertFalse($one->acquire());
        $this->assertNotNull($one->getRemainingLifetime());
        usleep(500_000);
        $this->assertTrue($one->isExpired());
    }

    public function testAReaderThatBecomesTheWriterAfterALongWaitKeepsTheLock(): void
    {
        $one = (new LockFactory(new MortiseStore($this->locks('phpredis'), initialTtl: 0.5)))->createLock('report', 60);
        $one->acquireRead();
        $two = $this->locks('phpredis')->read('report')->acquire();
        $leaving = new Child(function () use ($two) {
            usleep(800_000);
            $this->locks('phpredis')->hold('report', $two->owner, $two->token())->release();
        });
        $this->assertTrue($one->acquire(true));
        $this->assertTrue($one->isAcquired());
        $leaving->result();
    }

    public function testAChildThatIsForkedInsideReleasesNothingAndWaitsForItsParent(): void
    {
        $lock = $this->factory()->createLock('invoice', 60);
        $lock->acquire();
        $child = new Child(function () use ($lock) {
            $there = $lock->isAcquired();
            $lock->release();
            return [$there, $lock->acquire()];
        });
        $this->assertSame([false, false], $child->result());
        $this->assertTrue($lock->isAcquired());
        $lock->release();
        $next = new Child(fn () => [$lock->acquire(), $lock->isAcquired(), $lock->release()]);
        $this->assertSame([true, true, null], $next->result());
    }

    public function testAReleaseOfALostLockReportsTheLoss(): void
    {
        $lock = $this->factory()->createLock('invoice', 60);
        $lock->acquire();
        self::$server->ask('DEL', 'invoice');
        $this->assertFalse($lock->isAcquired());
        $this->assertThrows(LockReleasingException::class, $lock->release(...));
        $lock->acquire();
        self::$server->ask('DEL', 'invoice');
        $this->assertThrows(LockConflictedException::class, $lock->refresh(...));
    }

    public function testALockOfRedisStoreAndOursOfOneNameRefuseEachOther(): void
    {
        $theirs = new LockFactory(new RedisStore(self::$server->phpredis()));
        $held = $theirs->createLock('invoice', 60);
        $held->acquire();
        $this->assertThrows(LockAcquiringException::class, fn () => $this->factory()->createLock('invoice', 60)->acquire(true));
        $held->release();
        $held = $this->factory()->createLock('invoice', 60);
        $held->acquire();
        $this->assertThrows(LockAcquiringException::class, fn () => $theirs->createLock('invoice', 60)->acquire(true));
        $held->release();
    }

    public function testASerializedKeyWorksInAnotherProcess(): void
    {
        $key = new Key('invoice');
        $this->factory()->createLockFromKey($key, 60, false)->acquire();
        $job = serialize($key);
        $worker = new Child(function () use ($job) {
            $lock = $this->factory()->createLockFromKey(unserialize($job), 60, false);
            $lock->refresh();
            $lock->release();
        });
        $worker->result();
        $this->assertSame(0, self::$server->ask('EXISTS', 'invoice'));
    }

    /** @dataProvider libraries */
    public function testAnUpgradeOfASerializedKeyWhoseReplyIsLostLeavesTheLockAndTheKeyCanAcquireAnew(string $library): void
    {
        $relay = new Relay(self::$server->port);
        $reader = new Key('report');
        $this->factory()->createLockFromKey($reader, 600, false)->acquireRead();
        $key = unserialize(serialize($reader));
        $store = new MortiseStore($this->locks($library, $relay));
        $lock = (new LockFactory($store))->createLockFromKey($key, 600, false);
        $store->exists($key);
        $relay->tell('hold replies');
        $this->assertThrows(LockAcquiringException::class, $lock->acquire(...));
        $relay->tell('pass');
        eventually(fn () => self::$server->ask('EXISTS', 'report') === 0, 20);
        $this->assertTrue($lock->acquire(), 'under another name');
        $lock->release();
        $this->assertSame(0, self::$server->ask('EXISTS', 'report'));
    }

    public function testTheFencingTokenOfAKeyGrowsAndGuardsAWrite(): void
    {
        $store = new MortiseStore($this->locks('phpredis'));
        $tokens = [];
        foreach ([1, 2] as $round) {
            $key = new Key('invoice');
            $lock = (new LockFactory($store))->createLockFromKey($key, 60);
            $lock->acquire();
            $tokens[] = $store->hold($key)->token();
            $this->assertSame('OK', $store->hold($key)->guard('SET', 'level', $round));
            $lock->release();
        }
        $this->assertGreaterThan($tokens[0], $tokens[1]);
    }
}
