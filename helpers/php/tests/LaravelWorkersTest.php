<?php

declare(strict_types=1);

namespace Mortise\Tests;

use Illuminate\Bus\Queueable;
use Illuminate\Console\Scheduling\Schedule;
use Illuminate\Contracts\Queue\ShouldBeUnique;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Application;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Queue\Middleware\WithoutOverlapping;
use Illuminate\Queue\WorkerOptions;
use Illuminate\Support\Carbon;

require_once __DIR__ . '/laravel.php';

/** Uses of locks in Laravel: killed workers, jobs that are delivered twice, schedules on many machines. */
final class LaravelWorkersTest extends TestCase
{
    private const MINUTE = 500_000; // µs

    private function app(): Application
    {
        $app = laravel(self::$server);
        $app['config']->set('queue.default', 'redis');
        return $app;
    }

    /** A worker in its own process, which runs jobs until the condition is met. */
    private function worker(callable $isDone): Child
    {
        return new Child(function () use ($isDone) {
            $app = $this->app();
            self::$server->admin = self::$server->phpredis();
            $options = new WorkerOptions(sleep: 0, maxTries: 0);
            while (!$isDone()) {
                $app['queue.worker']->runNextJob('redis', 'default', $options);
            }
        });
    }

    /** The words that jobs have written, in order. */
    private function journal(): array
    {
        return self::$server->admin->lRange('journal', 0, -1);
    }

    public function testAJobDeliveredThreeTimesRunsOneAtATime(): void
    {
        $app = $this->app();
        for ($delivery = 0; $delivery < 3; $delivery++) {
            $app['queue']->connection()->push(new PaidOnceAtATime(self::$server->port, 60));
        }
        $workers = array_map(fn () => $this->worker(fn () => count($this->journal()) === 6), range(1, 3));
        foreach ($workers as $worker) {
            $worker->result();
        }
        $this->assertSame(['enter', 'leave', 'enter', 'leave', 'enter', 'leave'], $this->journal());
    }

    public function testAUniqueJobDispatchedByThreeProcessesIsQueuedOnceUntilItHasRun(): void
    {
        $dispatch = fn () => new Child(function () {
            $this->app();
            dispatch(new PaidByOne(self::$server->port));
        });
        foreach (array_map($dispatch, range(1, 3)) as $child) {
            $child->result();
        }
        $queue = $this->app()['queue']->connection();
        $this->assertSame(1, $queue->size());
        $this->worker(fn () => $this->journal() === ['paid'])->result();
        $dispatch()->result();
        $this->assertSame(1, $queue->size());
    }

    public function testTheLockOfAWorkerKilledDuringItsJobLastsExactlyForItsLease(): void
    {
        $queue = $this->app()['queue']->connection();
        $queue->push(new PaidOnceAtATime(self::$server->port, 5, dies: true));
        $this->worker(fn () => false)->await();
        $queue->push(new PaidOnceAtATime(self::$server->port, 5));
        $key = 'laravel_database_laravel_cache:laravel-queue-overlap:' . PaidOnceAtATime::class . ':invoice';
        $holders = $this->locks('phpredis')->holders($key);
        $this->assertCount(1, $holders);
        $next = $this->worker(fn () => count($this->journal()) === 3);
        do {
            usleep(20_000);
            $journal = $this->journal(); // before it is known that the lock is held
            $now = $this->locks('phpredis')->holders($key);
            $isHeld = $now !== [] && $now[0]['owner'] === $holders[0]['owner'];
            $this->assertTrue(!$isHeld || $journal === ['enter'], 'the next job runs before the lease is over');
        } while ($isHeld);
        $next->result();
        $this->assertSame(['enter', 'enter', 'leave'], $this->journal());
    }

    public function testAJobThatRefreshesItsLockHoldsItForAsLongAsItRuns(): void
    {
        $runs = new Child(function () {
            $lock = $this->app()['cache']->store()->lock('invoice', 2);
            $lock->get();
            self::$server->phpredis()->rPush('journal', 'enter');
            for ($end = microtime(true) + 3; microtime(true) < $end; usleep(100_000)) {
                $this->assertTrue($lock->refresh());
            }
            self::$server->phpredis()->rPush('journal', 'leave');
            return $lock->release();
        });
        eventually(fn () => $this->journal() === ['enter']);
        $this->assertTrue($this->app()['cache']->store()->lock('invoice', 2)->block(60));
        $this->assertSame(['enter', 'leave'], $this->journal());
        $this->assertTrue($runs->result());
    }

    public function testAScheduledJobOnFiftyNodesWhoseClocksDifferByHalfAMinuteRunsOnceAPeriod(): void
    {
        $nodes = [];
        for ($node = 0; $node < 50; $node++) {
            $nodes[] = new Child(function () use ($node) {
                $app = $this->app();
                $journal = self::$server->phpredis();
                $schedule = new Schedule();
                $app->instance(Schedule::class, $schedule);
                $schedule->call(fn () => $journal->rPush('journal', Carbon::now()->format('H:i')))->name('report')->everyMinute()->onOneServer();
                // As ScheduleRunCommand does each minute by this node's clock, which is up to half a minute behind the others.
                for ($minute = 0; $minute < 4; $minute++) {
                    usleep($minute === 0 ? $node * self::MINUTE / 2 / 50 : self::MINUTE);
                    Carbon::setTestNow($startedAt = Carbon::parse('2026-11-23 12:00:01')->addMinutes($minute));
                    foreach ($schedule->dueEvents($app) as $event) {
                        if ($schedule->serverShouldRun($event, $startedAt)) {
                            $event->run($app);
                        }
                    }
                }
            });
        }
        foreach ($nodes as $node) {
            $node->result();
        }
        $ran = $this->journal();
        sort($ran);
        $this->assertSame(['12:00', '12:01', '12:02', '12:03'], $ran);
    }

    public function testALockKeptForThePeriodLetsOneOfFiftyNodesRun(): void
    {
        // The server measures the lock's time, so the nodes' clocks do not matter.
        $nodes = array_map(fn () => new Child(function () {
            $lock = $this->app()['cache']->store()->lock('report:12:00', 50);
            if ($lock->get()) {
                self::$server->phpredis()->rPush('journal', 'ran'); // and does not release it
            }
        }), range(1, 50));
        foreach ($nodes as $node) {
            $node->result();
        }
        $this->assertSame(['ran'], $this->journal());
    }
}

/** Writes its beginning and end, while no other one of its kind runs. */
final class PaidOnceAtATime implements ShouldQueue
{
    use InteractsWithQueue;
    use Queueable;

    public function __construct(private int $port, private int $lease, private bool $dies = false)
    {
    }

    public function middleware(): array
    {
        return [(new WithoutOverlapping('invoice'))->expireAfter($this->lease)];
    }

    public function handle(): void
    {
        $journal = new \Redis();
        $journal->connect('127.0.0.1', $this->port);
        $journal->rPush('journal', 'enter');
        usleep(200_000);
        if ($this->dies) {
            posix_kill(getmypid(), SIGKILL);
        }
        $journal->rPush('journal', 'leave');
    }
}

/** Is queued only once until it has run, however often it is dispatched. */
final class PaidByOne implements ShouldBeUnique, ShouldQueue
{
    use InteractsWithQueue;
    use Queueable;

    public int $uniqueFor = 600;

    public function __construct(private int $port)
    {
    }

    public function handle(): void
    {
        $journal = new \Redis();
        $journal->connect('127.0.0.1', $this->port);
        $journal->rPush('journal', 'paid');
    }
}
