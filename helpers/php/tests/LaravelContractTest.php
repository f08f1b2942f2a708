<?php

declare(strict_types=1);

namespace Mortise\Tests;

require_once __DIR__ . '/laravel.php';
require_once contracts('php-laravel-framework/tests/Integration/Cache/RedisCacheLockTest.php');

/** Laravel's own tests of the locks of its Redis driver, run with our driver. */
final class LaravelContractTest extends \Illuminate\Tests\Integration\Cache\RedisCacheLockTest
{
}
