<?php

declare(strict_types=1);

namespace Mortise\Tests;

use Mortise\Locks;

/** A primary that fails, and a replica that Sentinel promotes. */
final class SentinelTest extends \PHPUnit\Framework\TestCase
{
    private function client(string $library, Server $sentinel): object
    {
        if ($library === 'predis') {
            return new \Predis\Client(["tcp://127.0.0.1:$sentinel->port"], ['replication' => 'sentinel', 'service' => 'locks']);
        }
        return function () use ($sentinel) {
            [$host, $port] = (new \RedisSentinel('127.0.0.1', $sentinel->port, 1.0))->getMasterAddrByName('locks');
            $redis = new \Redis();
            $redis->connect($host, (int) $port, 1.0);
            return $redis;
        };
    }

    /** @dataProvider \Mortise\Tests\TestCase::libraries */
    public function testAWaiterIsGrantedByThePromotedServer(string $library): void
    {
        $primary = new Server();
        $replica = new Server(['--replicaof', '127.0.0.1', (string) $primary->port]);
        eventually(fn () => ($replica->admin->info('replication')['master_link_status'] ?? '') === 'up');
        $sentinel = new Server(sentinel: "sentinel monitor locks 127.0.0.1 $primary->port 1\n"
            . "sentinel down-after-milliseconds locks 1500\nsentinel failover-timeout locks 5000");
        eventually(fn () => $sentinel->ask('SENTINEL', 'REPLICAS', 'locks'));
        $primary->occupy('stock');
        eventually(fn () => $replica->lockInfo('locks') === 1);
        $waiting = new Child(fn () => (new Locks($this->client($library, $sentinel)))->lock('stock')->acquire(120)->held());
        eventually(fn () => $primary->waiters() === 1);
        $primary->kill();
        eventually(fn () => $replica->isPrimary());
        eventually(fn () => $replica->waiters() === 1);
        $replica->vacate('stock');
        $this->assertTrue($waiting->result(120));
    }
}
