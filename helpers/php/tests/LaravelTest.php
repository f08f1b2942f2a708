<?php

declare(strict_types=1);

namespace Mortise\Tests;

use Illuminate\Contracts\Cache\LockTimeoutException;
use Illuminate\Contracts\Redis\LimiterTimeoutException;
use Illuminate\Foundation\Application;
use Mortise\Laravel\MortiseRepository;
use Mortise\Locks;
use Mortise\Lost;

require_once __DIR__ . '/laravel.php';

/** Cache::lock() on our driver, beyond the framework's own tests. */
final class LaravelTest extends TestCase
{
    private const KEY = 'laravel_database_laravel_cache:invoice';

    private function app(string $client): Application
    {
        return laravel(self::$server, $client);
    }

    private function cache(string $client = 'phpredis'): MortiseRepository
    {
        return $this->app($client)['cache']->store();
    }

    /** @dataProvider libraries */
    public function testALockIsALockOfTheServerUnderTheNameThatLaravelsDriverUses(string $client): void
    {
        $this->assertTrue($this->cache($client)->lock('invoice', 60)->get());
        $this->assertSame('mort-lock', self::$server->ask('TYPE', self::KEY));
        $theirs = laravel(self::$server, $client, 'redis')['cache']->store();
        $this->assertFalse($theirs->lock('invoice', 60)->get());
    }

    /** @dataProvider libraries */
    public function testABlockedRequestWaitsInTheQueueAndIsSentOnce(string $client): void
    {
        self::$server->occupy(self::KEY);
        $before = self::$server->calls('acquire');
        $waiting = new Child(fn () => $this->cache($client)->lock('invoice', 60)->block(60, fn () => 'paid'));
        eventually(fn () => self::$server->waiters() === 1);
        self::$server->vacate(self::KEY);
        $this->assertSame('paid', $waiting->result());
        $this->assertSame($before + 1, self::$server->calls('acquire'));
        $this->assertSame(0, self::$server->ask('EXISTS', self::KEY));
    }

    public function testABlockEndsWithLaravelsExceptionAtItsLimit(): void
    {
        self::$server->occupy(self::KEY);
        $this->assertThrows(LockTimeoutException::class, fn () => $this->cache()->lock('invoice', 60)->block(0.1));
        $this->assertSame(0, self::$server->waiters());
    }

    /** @dataProvider libraries */
    public function testAnotherProcessCanReleaseAndRefreshByTheOwner(string $client): void
    {
        $lock = $this->cache($client)->lock('invoice', 10);
        $lock->get();
        $owner = $lock->owner();
        $worker = new Child(fn () => [
            $this->cache($client)->restoreLock('invoice', 'another')->release(),
            $this->cache($client)->restoreLock('invoice', $owner)->refresh(60),
            $this->cache($client)->restoreLock('invoice', $owner)->release(),
            $this->cache($client)->restoreLock('invoice', $owner)->release(),
        ]);
        $this->assertSame([false, true, true, false], $worker->result());
    }

    public function testAnOwnerCanAcquireALockOnlyOnceAsWithLaravelsDriver(): void
    {
        $this->assertTrue($this->cache()->lock('invoice', 60, 'me')->get());
        $this->assertFalse($this->cache()->lock('invoice', 60, 'me')->get());
        $this->assertTrue($this->cache()->restoreLock('invoice', 'me')->release());
    }

    public function testALostLockIsNeitherReleasedNorRefreshed(): void
    {
        $lock = $this->cache()->lock('invoice', 60);
        $lock->get();
        self::$server->ask('DEL', self::KEY);
        $this->assertFalse($lock->refresh());
        $this->assertFalse($lock->release());
        self::$server->occupy(self::KEY);
        $this->assertFalse($lock->release());
        $this->assertSame(1, self::$server->ask('EXISTS', self::KEY));
    }

    public function testALockWithoutSecondsEndsAfterADay(): void
    {
        $lock = $this->cache()->lock('invoice');
        $lock->get();
        $lease = $lock->hold()->left();
        $this->assertTrue($lease > 85_000 && $lease <= 86_400, "$lease");
    }

    public function testTheConfigurationSaysHowLongALockWithoutSecondsLasts(): void
    {
        $app = $this->app('phpredis');
        $app['config']->set('cache.stores.redis.lease', 60);
        $lock = $app['cache']->store()->lock('invoice');
        $lock->get();
        $this->assertLessThanOrEqual(60, $lock->hold()->left());
        $app['cache']->store()->funnel('imports')->limit(1)->releaseAfter(0)->then(function () {
            $holder = (new Locks(self::$server->phpredis()))->holders('laravel_database_laravel_cache:imports:funnel')[0];
            $this->assertLessThanOrEqual(60_000, $holder['lease']);
        });
    }

    public function testANameNeedNotBeAString(): void
    {
        $this->assertTrue($this->cache()->lock(42, 60)->get());
        $this->assertFalse($this->cache()->lock('42', 60)->get());
        $lock = $this->cache()->lock(new \Illuminate\Support\Stringable('invoice'), 60);
        $this->assertTrue($lock->get());
        $this->assertTrue($lock->refresh('90'));
    }

    public function testAChildThatIsForkedInsideReleasesNothing(): void
    {
        $lock = $this->cache()->lock('invoice', 60);
        $lock->get();
        $child = new Child(fn () => [$lock->release(), $lock->refresh(), $lock->hold()]);
        $this->assertSame([false, false, null], $child->result());
        $this->assertTrue($lock->release());
    }

    public function testTheFencingTokenOfARestoredLockGuardsAWriteToo(): void
    {
        $lock = $this->cache()->lock('invoice', 60);
        $lock->get();
        $this->assertSame('OK', $lock->hold()->guard('SET', 'level', 1));
        $restored = $this->cache()->restoreLock('invoice', $lock->owner());
        $this->assertSame($lock->hold()->token(), $restored->hold()->token());
        $lock->forceRelease();
        $this->assertNull($restored->hold());
        $this->assertThrows(Lost::class, fn () => $lock->hold()->guard('SET', 'level', 2));
    }

    public function testValuesOfTheCacheAreStoredAsByLaravelsDriver(): void
    {
        $this->cache()->put('color', ['blue'], 60);
        $this->assertSame(['blue'], laravel(self::$server, driver: 'redis')['cache']->get('color'));
    }

    public function testWithoutOverlappingRunsOneAtATimeAndReturnsTheResult(): void
    {
        $this->assertSame('paid', $this->cache()->withoutOverlapping('invoice', fn () => 'paid'));
        self::$server->occupy(self::KEY);
        $this->assertThrows(LockTimeoutException::class, fn () => $this->cache()->withoutOverlapping('invoice', fn () => 'paid', 0, 0));
    }

    /** @dataProvider libraries */
    public function testAFunnelAdmitsItsLimitAndTheNextWaitsInTheQueue(string $client): void
    {
        $inside = fn () => new Child(fn () => $this->cache($client)->funnel('imports')->limit(2)->releaseAfter(60)->block(60)->then(function () {
            $redis = self::$server->phpredis();
            $redis->rPush('inside', getmypid());
            $redis->blPop('go', 0);
            return 'imported';
        }));
        $two = [$inside(), $inside()];
        eventually(fn () => self::$server->admin->lLen('inside') === 2);
        $funnel = fn () => $this->cache($client)->funnel('imports')->limit(2)->block(0);
        $this->assertSame('busy', $funnel()->then(fn () => $this->fail(), fn (LimiterTimeoutException $full) => 'busy'));
        $this->assertThrows(LimiterTimeoutException::class, fn () => $funnel()->then(fn () => $this->fail()));
        $third = $inside();
        eventually(fn () => self::$server->waiters() === 1);
        $asked = self::$server->calls('rlock');
        self::$server->admin->rPush('go', 1);
        eventually(fn () => self::$server->admin->lLen('inside') === 3);
        $this->assertSame($asked, self::$server->calls('rlock'), 'nobody polls');
        self::$server->admin->rPush('go', 1, 1);
        foreach ([...$two, $third] as $child) {
            $this->assertSame('imported', $child->result());
        }
        $this->assertSame(0, self::$server->lockInfo('locks'));
    }

    public function testAChildThatIsForkedInsideAFunnelReleasesNothing(): void
    {
        $signal = SIGTERM;
        $tester = getmypid();
        try {
            $this->cache()->funnel('imports')->limit(1)->then(function () use (&$status) {
                ($child = pcntl_fork()) && pcntl_waitpid($child, $status);
            });
            $signal = SIGKILL;
        } finally {
            getmypid() === $tester || posix_kill(getmypid(), $signal);
        }
        $this->assertSame(SIGKILL, pcntl_wtermsig($status), 'it has thrown');
        $this->assertSame(0, self::$server->lockInfo('locks'));
    }

    public function testAClusterIsRefused(): void
    {
        $server = new Server(['--cluster-enabled', 'yes']);
        $server->ask('CLUSTER', 'ADDSLOTSRANGE', 0, 16383);
        eventually(fn () => str_contains($server->ask('CLUSTER', 'INFO'), 'cluster_state:ok'));
        $app = $this->app('phpredis');
        $app['config']->set('database.redis.default', null);
        $app['config']->set('database.redis.clusters.default', [['host' => '127.0.0.1', 'port' => $server->port]]);
        $app['config']->set('database.redis.options.cluster', 'redis');
        $this->assertThrows(\InvalidArgumentException::class, fn () => $app['cache']->store()->lock('invoice', 60));
    }

    public function testAFunnelThatThrowsReleasesItsSlot(): void
    {
        $this->assertThrows(\DomainException::class, fn () => $this->cache()->funnel('imports')->limit(1)->then(fn () => throw new \DomainException()));
        $this->assertSame('imported', $this->cache()->funnel('imports')->limit(1)->block(0)->then(fn () => 'imported'));
    }

    public function testAFunnelForNobodyIsFullAtOnce(): void
    {
        $this->assertSame('busy', $this->cache()->funnel('imports')->limit(0)->then(fn () => $this->fail(), fn () => 'busy'));
    }

    public function testLocksDoNotShareAPersistentConnection(): void
    {
        $app = $this->app('phpredis');
        $app['config']->set('database.redis.default.persistent', true);
        $pooling = ini_set('redis.pconnect.pooling_enabled', '0'); // all persistent ones are the same then
        try {
            $lock = $app['cache']->store()->lock('invoice', 60);
            $this->assertTrue($lock->get());
            $application = $app['redis']->connection()->client()->rawCommand('CLIENT', 'ID');
        } finally {
            ini_set('redis.pconnect.pooling_enabled', $pooling);
        }
        $this->assertNotSame($application, (new Locks(self::$server->phpredis()))->holders(self::KEY)[0]['client']);
        $this->assertTrue($lock->release());
    }
}
