<?php

declare(strict_types=1);

namespace Mortise\Tests;

use Mortise\Locks;
use Mortise\Symfony\MortiseStore;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Tests\Store as Contract;

require_once __DIR__ . '/symfony.php';

/** All of Symfony's own tests of stores: of those that expire, that block and that share. */
final class SymfonyContractTest extends Contract\AbstractStoreTestCase
{
    use Contract\BlockingStoreTestTrait;
    use Contract\ExpiringStoreTestTrait;
    use Contract\SharedLockStoreTestTrait;

    private static ?Server $server;

    public static function setUpBeforeClass(): void
    {
        self::$server = new Server();
    }

    public static function tearDownAfterClass(): void
    {
        self::$server = null;
    }

    protected function getStore(): PersistingStoreInterface
    {
        return new MortiseStore(new Locks(self::$server->admin));
    }

    protected function getClockDelay(): int
    {
        return 1_000_000;
    }
}
