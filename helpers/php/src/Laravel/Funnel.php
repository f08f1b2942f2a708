<?php

/* What Cache::funnel() returns: Laravel's builder, over one semaphore in place of a lock for each slot. */

declare(strict_types=1);

namespace Mortise\Laravel;

use Illuminate\Cache\Limiters\LimiterTimeoutException as CacheTimeout;
use Illuminate\Contracts\Redis\LimiterTimeoutException as RedisTimeout;
use Illuminate\Redis\Limiters\ConcurrencyLimiterBuilder;
use Mortise\Lost;

final class Funnel extends ConcurrencyLimiterBuilder
{
    /** Does nothing: nobody polls. */
    public function sleep($sleep)
    {
        return $this;
    }

    public function then(callable $callback, ?callable $failure = null)
    {
        if ($this->maxLocks > 0) {
            $hold = $this->connection->semaphore($this->name, (int) $this->maxLocks, $this->releaseAfter)->acquire((float) $this->timeout);
            if ($hold !== null) { // without a jump, see Lock::acquire()
                try {
                    return $callback();
                } finally {
                    try {
                        $hold->giveBack();
                    } catch (Lost) { // releaseAfter was over before: as Laravel's, which does not notice
                    }
                }
            }
        }
        $timeout = class_exists(CacheTimeout::class) ? new CacheTimeout() : new RedisTimeout();
        return $failure ? $failure($timeout) : throw $timeout;
    }
}
