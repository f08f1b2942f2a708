<?php

declare(strict_types=1);

namespace Mortise\Tests;

use Mortise\Locks;
use Mortise\Lost;

/** A server for each class of tests, empty before each test. */
abstract class TestCase extends \PHPUnit\Framework\TestCase
{
    protected static ?Server $server;

    public static function setUpBeforeClass(): void
    {
        self::$server = new Server();
    }

    public static function tearDownAfterClass(): void
    {
        self::$server = null;
    }

    protected function setUp(): void
    {
        self::$server->admin->flushAll();
    }

    public static function libraries(): array
    {
        return ['phpredis' => ['phpredis'], 'predis' => ['predis']];
    }

    protected function locks(string $library, ?Relay $relay = null): Locks
    {
        return new Locks(self::$server->client($library, $relay?->port));
    }

    protected function assertThrows(string $class, callable $call): \Throwable
    {
        try {
            $call();
        } catch (\Throwable $thrown) {
            $this->assertInstanceOf($class, $thrown);
            return $thrown;
        }
        $this->fail("no $class was thrown");
    }

    protected function assertLost(callable $call): void
    {
        $this->assertThrows(Lost::class, $call);
    }
}
