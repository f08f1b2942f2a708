<?php

/* What Cache::store() returns: Laravel's, and its newer ways to limit who works at a time, which wait in the server's queue here. */

declare(strict_types=1);

namespace Mortise\Laravel;

use Illuminate\Cache\Repository;

class MortiseRepository extends Repository
{
    /** Runs the callback while nobody else does, by this name. As in Laravel 12; older ones have no such method. */
    public function withoutOverlapping($key, callable $callback, $lockFor = 0, $waitFor = 10, $owner = null)
    {
        return $this->store->lock($this->name($key), $lockFor, $owner)->block($waitFor, $callback);
    }

    /** So many at a time: `->limit(3)->releaseAfter(60)->block(10)->then($callback, $failure)`. */
    public function funnel($name)
    {
        return new Funnel($this->store, $this->name($name));
    }

    private function name(mixed $name): string
    {
        return (string) ($name instanceof \UnitEnum ? $name->value ?? $name->name : $name);
    }
}
