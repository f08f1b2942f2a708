<?php

/* Registers the cache driver "mortise". Laravel finds this by composer.json. */

declare(strict_types=1);

namespace Mortise\Laravel;

use Illuminate\Cache\CacheManager;
use Illuminate\Contracts\Events\Dispatcher;
use Illuminate\Support\ServiceProvider;

class MortiseServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        $this->callAfterResolving('cache', function (CacheManager $cache) {
            // Laravel makes the function a method of its own class.
            $cache->extend('mortise', fn ($app, array $config) => MortiseServiceProvider::store($app, $config));
        });
    }

    /** A store with the options of Laravel's driver "redis" (`connection`, `lock_connection`, `prefix`), and `lease`: of locks without seconds. */
    public static function store($app, array $config): MortiseRepository
    {
        $connection = $config['connection'] ?? 'default';
        $settings = $app['config'];
        $more = array_filter(['serializableClasses' => $settings['cache.serializable_classes'] ?? null], fn ($given) => $given !== null);
        $store = new MortiseStore($app['redis'], $config['prefix'] ?? $settings['cache.prefix'] ?? '', $connection, ...$more);
        $store->setLockConnection($config['lock_connection'] ?? $connection);
        $store->lease = (float) ($config['lease'] ?? $store->lease);
        $repository = new MortiseRepository($store, array_intersect_key($config, ['store' => true]));
        if (($config['events'] ?? true) && $app->bound(Dispatcher::class)) {
            $repository->setEventDispatcher($app[Dispatcher::class]);
        }
        return $repository;
    }
}
