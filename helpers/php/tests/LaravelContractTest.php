<?php

declare(strict_types=1);

namespace Mortise\Tests;

require_once __DIR__ . '/laravel.php';
require_once contracts('php-laravel-framework/tests/Integration/Cache/RedisCacheLockTest.php');

/** What Laravel asks of the locks of its Redis driver: its own tests, with ours in its place. */
final class LaravelContractTest extends \Illuminate\Tests\Integration\Cache\RedisCacheLockTest
{
}
