<?php

declare(strict_types=1);

namespace Mortise\Tests;

require_once __DIR__ . '/laravel.php';
require_once contracts('php-laravel-framework/tests/Integration/Cache/PhpRedisCacheLockTest.php');

/** The same with phpredis's serializers and compression, except for those that it was built without. */
final class LaravelSerializerContractTest extends \Illuminate\Tests\Integration\Cache\PhpRedisCacheLockTest
{
}
