<?php

/* Laravel's Redis store, with locks that the server knows. All else is Laravel's. */

declare(strict_types=1);

namespace Mortise\Laravel;

use Illuminate\Cache\RedisStore;
use Illuminate\Redis\RedisManager;
use Mortise\Lock;
use Mortise\Locks;

class MortiseStore extends RedisStore
{
    /** Seconds that a lock lasts which is given none: as long as one may last by the server's default. */
    public float $lease = 86_400.0;
    /** @var array<string, Locks> by the name of the Redis connection */
    private array $locks = [];

    public function lock($name, $seconds = 0, $owner = null)
    {
        $owner = $owner === null ? Locks::random() : (string) $owner;
        return new MortiseLock($this, $this->locks(), $this->lockName($name), (int) $seconds, $owner);
    }

    /** So many at a time, in the order in which they came. */
    public function semaphore(string $name, int $limit, mixed $seconds): Lock
    {
        return $this->locks()->semaphore($this->lockName("$name:funnel"), $limit, lease: $this->lease($seconds));
    }

    /** The lease of a lock that is to be held for so many seconds; without any, for as long as it may be. */
    public function lease(mixed $seconds): float
    {
        return $seconds > 0 ? (float) $seconds : $this->lease;
    }

    /** The locks on this store's connection for locks, for what Laravel has no method for: readers, jobs that are passed on, … */
    public function locks(): Locks
    {
        return $this->locks[$this->lockConnection ?? $this->connection] ??= new Locks($this->client());
    }

    /** The name by which the server knows a lock: with both prefixes, as Laravel's own. */
    public function lockName(mixed $name): string
    {
        $client = $this->lockConnection()->client();
        $name = $this->prefix . $name;
        return $client instanceof \Redis ? $client->_prefix($name) : $client->getOptions()->prefix?->getPrefix() . $name;
    }

    /** Names the server. The manager opens connections with all that is configured, but none that is persistent: those are shared. */
    private function client(): object
    {
        $client = $this->lockConnection()->client();
        if ($client instanceof \Redis && $this->redis instanceof RedisManager) {
            [$manager, $name] = [clone $this->redis, $this->lockConnection ?? $this->connection];
            (function () use ($name): void {
                $this->connections = [];
                $this->config[$name]['options']['persistent'] = false; // which wins over all other places
            })->call($manager);
            return static fn () => $manager->resolve($name)->client(); // without this store, which has the locks
        }
        return $client;
    }
}
