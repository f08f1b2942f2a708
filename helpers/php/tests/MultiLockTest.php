<?php

declare(strict_types=1);

namespace Mortise\Tests;

use Mortise\Hold;
use Mortise\Lost;
use Mortise\NotGranted;
use Mortise\Refused;
use Mortise\Unavailable;

/** Several locks at once: all or none. */
final class MultiLockTest extends TestCase
{
    private function areFree(string ...$names): bool
    {
        return self::$server->ask('EXISTS', ...$names) === 0;
    }

    /** @dataProvider libraries */
    public function testSeveralLocksAreAcquiredAtOnceByOneTokenAndReleasedTogether(string $library): void
    {
        $locks = $this->locks($library);
        $result = $locks->all(['a', 'b', 'c'])->run(function (Hold $several) use ($locks) {
            $this->assertTrue($several->held() && $several->isKnown());
            $several->refresh(600);
            foreach ($several->names as $name) {
                $this->assertSame($several->token(), $locks->holders($name)[0]['token']);
                $this->assertGreaterThan(500_000, $locks->holders($name)[0]['lease']);
                $this->assertNull($locks->lock($name)->acquire());
            }
            return 'sold';
        });
        $this->assertSame('sold', $result);
        $this->assertTrue($this->areFree('a', 'b', 'c'));
    }

    /** @dataProvider libraries */
    public function testAWaiterForSeveralLocksHoldsNoneAndIsGrantedAllWhenTheLastIsFree(string $library): void
    {
        self::$server->occupy('b');
        $locks = $this->locks($library);
        $this->assertNull($locks->all(['a', 'b'])->acquire());
        $this->assertThrows(NotGranted::class, fn () => $locks->all(['a', 'b'])->run(fn () => $this->fail('it was run'), wait: 0.1));
        $waiting = new Child(fn () => $this->locks($library)->all(['a', 'b'])->acquire(60)->held());
        eventually(fn () => self::$server->waiters() === 1);
        $this->assertTrue($this->areFree('a'));
        self::$server->vacate('b');
        $this->assertTrue($waiting->result());
    }

    /** @dataProvider libraries */
    public function testTheLossOfOneOfSeveralLocksIsReported(string $library): void
    {
        $several = $this->locks($library)->all(['a', 'b'])->acquire();
        self::$server->ask('DEL', 'b');
        $this->assertLost(fn () => $several->refresh());
        $this->assertFalse($several->held());
        $this->assertThrows(Lost::class, fn () => $several->release());
        $this->assertTrue($this->areFree('a', 'b'));
    }

    /** @dataProvider libraries */
    public function testAnAcquireOfSeveralLocksWhoseReplyIsLostLeavesNoKeyTaken(string $library): void
    {
        $relay = new Relay(self::$server->port);
        $locks = $this->locks($library, $relay);
        $locks->lock('warm')->acquire()->release();
        $relay->tell('hold replies');
        $this->assertThrows(Unavailable::class, fn () => $locks->all(['a', 'b'])->acquire());
        $relay->tell('pass');
        $locks->lock('other')->acquire()->release(); // repeats first the release that got no reply
        $this->assertTrue($this->areFree('a', 'b'));
    }

    /** @dataProvider libraries */
    public function testSeveralLocksAreKeptTogetherAndNeitherPassedOnNorConverted(string $library): void
    {
        $locks = $this->locks($library);
        $both = $locks->all(['a', 'b'])->acquire();
        foreach ([fn () => $both->passTo('somebody', 60), $both->downgrade(...), $both->upgrade(...)] as $refused) {
            $this->assertThrows(\LogicException::class, $refused);
        }
        $this->assertTrue($both->held());
        $both->keepFor(60);
        foreach (['a', 'b'] as $name) {
            $this->assertNotSame([$both->owner], array_column($locks->holders($name), 'owner'));
            $this->assertCount(1, $locks->holders($name));
        }
    }

    /** @dataProvider libraries */
    public function testOfSeveralLocksOfWhichOneIsGoneNoneIsKept(string $library): void
    {
        $both = $this->locks($library)->all(['a', 'b'])->acquire();
        self::$server->ask('DEL', 'b');
        $this->assertLost(fn () => $both->keepFor(60));
        $this->assertSame(0, self::$server->ask('EXISTS', 'a', 'b'));
    }

    public function testImpossibleArgumentsAreRefused(): void
    {
        $locks = $this->locks('phpredis');
        foreach ([[], [7], ['a', null]] as $names) {
            $this->assertThrows(\InvalidArgumentException::class, fn () => $locks->all($names));
        }
        $this->assertThrows(Refused::class, fn () => $locks->all(['a', 'a'])->acquire());
    }
}
