<?php

/* Laravel with the cache driver "mortise" under the name "redis", which its own tests use; and what those tests need. */

declare(strict_types=1);

namespace Mortise\Tests {
    require_once 'Illuminate/autoload.php';
    foreach (['MortiseLock', 'MortiseStore', 'Funnel', 'MortiseRepository', 'MortiseServiceProvider'] as $file) {
        require_once __DIR__ . "/../src/Laravel/$file.php";
    }

    /** An application as made by `laravel new`, with the parts that concern locks. */
    function laravel(Server $server, string $client = 'phpredis', string $driver = 'mortise'): \Illuminate\Foundation\Application
    {
        $app = new \Illuminate\Foundation\Application(sys_get_temp_dir());
        $redis = ['host' => '127.0.0.1', 'port' => $server->port, 'database' => 0, 'name' => 'default'];
        $app->instance('env', 'testing');
        $app->instance('config', new \Illuminate\Config\Repository([
            'app' => ['key' => str_repeat('k', 32), 'cipher' => 'AES-256-CBC'],
            'cache' => [
                'default' => 'redis',
                'prefix' => 'laravel_cache',
                'stores' => ['redis' => ['driver' => $driver, 'connection' => 'default']],
            ],
            'database' => [
                'redis' => ['client' => $client, 'options' => ['prefix' => 'laravel_database_'], 'default' => $redis, 'cache' => $redis],
            ],
            'queue' => ['default' => 'sync', 'connections' => ['sync' => ['driver' => 'sync'], 'redis' => [
                'driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => 60, 'block_for' => null,
            ]]],
        ]));
        $app->instance(\Illuminate\Contracts\Debug\ExceptionHandler::class, new \Illuminate\Foundation\Exceptions\Handler($app));
        \Illuminate\Support\Facades\Facade::clearResolvedInstances();
        \Illuminate\Support\Facades\Facade::setFacadeApplication($app);
        foreach ([
            \Illuminate\Redis\RedisServiceProvider::class,
            \Illuminate\Cache\CacheServiceProvider::class,
            \Illuminate\Bus\BusServiceProvider::class,
            \Illuminate\Encryption\EncryptionServiceProvider::class,
            \Illuminate\Queue\QueueServiceProvider::class,
            \Mortise\Laravel\MortiseServiceProvider::class,
        ] as $provider) {
            $app->register($provider);
        }
        $app->boot();
        return $app;
    }
}

namespace Orchestra\Testbench {
    /** Replaces the package on which Laravel's own tests are built, as far as the tests of locks use it. */
    abstract class TestCase extends \PHPUnit\Framework\TestCase
    {
        private static ?\Mortise\Tests\Server $server = null;
        protected static string $client = 'phpredis';
        protected ?\Illuminate\Foundation\Application $app;

        public static function setUpBeforeClass(): void
        {
            self::$server = new \Mortise\Tests\Server();
            foreach (['REDIS_HOST' => '127.0.0.1', 'REDIS_PORT' => (string) self::$server->port] as $name => $value) {
                $_SERVER[$name] = $_ENV[$name] = $value;
            }
        }

        public static function tearDownAfterClass(): void
        {
            self::$server = null;
        }

        protected function setUp(): void
        {
            self::$server->admin->flushAll();
            $this->app = \Mortise\Tests\laravel(self::$server, static::$client);
        }

        protected function tearDown(): void
        {
            $this->app->flush();
        }
    }
}
