<?php

declare(strict_types=1);

namespace Mortise\Tests;

require_once __DIR__ . '/laravel.php';
require_once contracts('php-laravel-framework/tests/Integration/Cache/PhpRedisCacheLockTest.php');

/** The same for serializers and compression, which phpredis can be told to use; those that it was built without are left out there. */
final class LaravelSerializerContractTest extends \Illuminate\Tests\Integration\Cache\PhpRedisCacheLockTest
{
}
