<?php

declare(strict_types=1);

namespace Mortise\Tests;

use Mortise\Connection;
use Mortise\LockException;
use Mortise\Locks;
use Mortise\Refused;
use Mortise\Unavailable;

/** What goes wrong when lock commands meet a client library's defaults, a broken network or a killed process, but not with this library. */
final class TrapsTest extends TestCase
{
    private Relay $relay;

    protected function setUp(): void
    {
        parent::setUp();
        $this->relay = new Relay(self::$server->port);
    }

    /** Locks behind the relay, with their connection made. */
    private function far(string $library): Locks
    {
        $locks = $this->locks($library, $this->relay);
        $locks->holders('any');
        return $locks;
    }

    /** Clients whose reads fail sooner than the wait is over. */
    public static function impatient(): array
    {
        $connect = function (): \Redis {
            $redis = new \Redis();
            $redis->connect('127.0.0.1', self::$server->port, 1.0, null, 0, 0.2);
            return $redis;
        };
        $option = function (): \Redis {
            $redis = self::$server->phpredis();
            $redis->setOption(\Redis::OPT_READ_TIMEOUT, 0.2);
            return $redis;
        };
        $predis = fn () => new \Predis\Client(['port' => self::$server->port, 'read_write_timeout' => 0.2]);
        return [
            'connect' => [$connect], 'option' => [$option], 'predis' => [$predis],
            'closure that connects' => [fn () => $connect], 'closure with option' => [fn () => $option], 'closure with predis' => [fn () => $predis],
        ];
    }

    /** @dataProvider impatient */
    public function testAWaitLongerThanTheReadTimeOutKeepsItsPlaceAndIsSentOnce(\Closure $client): void
    {
        self::$server->occupy('stock');
        $before = self::$server->calls('acquire');
        $waiting = new Child(function () use ($client) {
            ini_set('default_socket_timeout', '1');
            $locks = new Locks($client());
            $locks->holders('any'); // a command whose reply has to come within two seconds
            return $locks->lock('stock')->acquire(60)->held();
        });
        eventually(fn () => self::$server->waiters() === 1);
        usleep(2_500_000);
        self::$server->vacate('stock');
        $this->assertTrue($waiting->result());
        $this->assertSame($before + 1, self::$server->calls('acquire'));
    }

    public function testTheStreamOfPredis3GetsItsTimeOutToo(): void
    {
        $connection = (new \Predis\Client(['port' => $this->relay->port]))->getConnection();
        $connection->connect();
        $resource = $connection->getResource();
        $client = $this->createMock(\Predis\Client::class);
        $wrapped = new class (is_resource($resource) ? $resource : (fn () => $this->stream)->call($resource)) {
            public function __construct(private $stream)
            {
            }

            public function getResource(): object
            {
                return new self($this->stream);
            }
        };
        $client->method('getConnection')->willReturn($wrapped);
        $client->method('executeRaw')->willReturn('PONG');
        $this->assertSame('PONG', (new \ReflectionMethod(Connection::class, 'askPredis'))->invoke(null, $client, ['PING'], 0.5));
        $this->relay->tell('hold replies');
        $connection->writeRequest(new \Predis\Command\RawCommand(...(\Predis\Client::VERSION < '2' ? [['PING']] : ['PING'])));
        $this->assertThrows(\Predis\CommunicationException::class, fn () => $connection->read());
    }

    /** @dataProvider libraries */
    public function testAReplyIsAwaitedForAsLongInAShortWaitAsInNone(string $library): void
    {
        $locks = $this->far($library);
        foreach ([0.0, 0.1] as $wait) {
            $this->relay->tell('hold replies');
            $begin = hrtime(true);
            $this->assertThrows(Unavailable::class, fn () => $locks->lock('stock')->acquire($wait));
            $this->assertGreaterThanOrEqual(2, (hrtime(true) - $begin) / 1e9);
            $this->relay->tell('pass');
            $locks->holders('stock');
        }
    }

    /** @dataProvider libraries */
    public function testAServerThatIsSilentWhileItIsConnectedIsGivenUpInTime(string $library): void
    {
        $server = new Server();
        $server->ask('CONFIG', 'SET', 'requirepass', 'secret');
        $relay = new Relay($server->port);
        if ($library === 'phpredis') {
            ($client = $server->phpredis($relay->port))->auth('secret');
        } else {
            $client = new \Predis\Client(['port' => $relay->port, 'password' => 'secret']);
        }
        $this->assertNotNull((new Locks($client))->lock('stock')->acquire());
        $relay->tell('hold replies');
        $begin = hrtime(true);
        $this->assertThrows(Unavailable::class, fn () => (new Locks($client))->lock('other')->acquire());
        $this->assertLessThan(30, (hrtime(true) - $begin) / 1e9, 'not after default_socket_timeout, which is 60');
    }

    public function testWhatAClosureSendsToASilentServerIsGivenUpInTime(): void
    {
        $before = ini_get('default_socket_timeout');
        $relay = new Relay(self::$server->port);
        $relay->tell('hold replies');
        $begin = hrtime(true);
        $locks = new Locks(function () use ($relay) {
            $redis = self::$server->phpredis($relay->port);
            $redis->select(0);
            return $redis;
        });
        $this->assertThrows(Unavailable::class, fn () => $locks->lock('stock')->acquire());
        $this->assertLessThan(30, (hrtime(true) - $begin) / 1e9, 'not after default_socket_timeout, which is 60');
        $this->assertSame($before, ini_get('default_socket_timeout'));
    }

    public function testASentinelThatIsSilentIsGivenUpInTime(): void
    {
        $relay = new Relay(self::$server->port);
        $relay->tell('hold replies');
        $client = new \Predis\Client(["tcp://127.0.0.1:$relay->port"], ['replication' => 'sentinel', 'service' => 'locks']);
        $begin = hrtime(true);
        $this->assertThrows(Unavailable::class, fn () => (new Locks($client))->lock('stock')->acquire());
        $this->assertLessThan(30, (hrtime(true) - $begin) / 1e9, 'not after default_socket_timeout, which is 60');
    }

    public function testAWaitBeginsBeforeTheConnectionIsCheckedThatWasIdle(): void
    {
        $redis = new class () extends \Redis {
            public array $words = [];

            public function rawCommand($command, ...$words): mixed
            {
                usleep($command === 'PING' ? 300_000 : 0);
                $this->words[$command] = $words;
                return parent::rawCommand($command, ...$words);
            }
        };
        $redis->connect('127.0.0.1', self::$server->port);
        $locks = new Locks(fn () => $redis);
        $locks->holders('stock');
        usleep(1_100_000);
        $locks->lock('stock')->acquire(1.0);
        $this->assertArrayHasKey('PING', $redis->words);
        $this->assertLessThanOrEqual(700, array_pop($redis->words['LOCK.ACQUIRE']), 'ms are left to wait');
    }

    public function testAGrantThatIsOverBeforeItsReplyComesEndsAWaitThatIsOver(): void
    {
        $locks = new Locks(function () {
            $redis = new class () extends \Redis {
                public function rawCommand($command, ...$words): mixed
                {
                    $reply = parent::rawCommand($command, ...$words);
                    usleep(50_000);
                    return $reply;
                }
            };
            $redis->connect('127.0.0.1', self::$server->port);
            return $redis;
        });
        $this->assertLost(fn () => $locks->lock('stock', lease: 0.03)->acquire());
        $this->assertLost(fn () => $locks->lock('stock', lease: 0.03)->acquire(0.2));
    }

    /** @dataProvider libraries */
    public function testAWrongPasswordAndAServerWithoutTheModuleAreReportedAtOnce(string $library): void
    {
        $server = new Server(['--requirepass', 'right'], password: 'right');
        $wrong = $library === 'predis' ? new \Predis\Client(['port' => $server->port, 'password' => 'wrong'])
            : function () use ($server) {
                $redis = $server->phpredis();
                $redis->auth('wrong');
                return $redis;
            };
        $refused = $this->assertThrows(Refused::class, fn () => (new Locks($wrong))->lock('stock')->acquire(60));
        $this->assertSame('WRONGPASS', $refused->reason);
        $plain = new Server(hasModule: false);
        $refused = $this->assertThrows(Refused::class, fn () => (new Locks($plain->client($library)))->lock('stock')->acquire(60));
        $this->assertStringContainsString('loadmodule', $refused->getMessage());
    }

    /** @dataProvider libraries */
    public function testARefreshCountsFromWhenItWasSentHoweverLateItsReplyIs(string $library): void
    {
        $hold = $this->far($library)->lock('stock', lease: 3)->acquire();
        $this->relay->tell('hold replies');
        $answer = new Child(function () {
            usleep(1_500_000);
            $this->relay->tell('pass');
        });
        $sent = hrtime(true);
        $hold->refresh();
        $this->assertLessThan(3 - (hrtime(true) - $sent) / 1e9, $hold->left(), 'it counts from the reply');
        $answer->result();
    }

    /** @dataProvider libraries */
    public function testALostReplyLeavesNoLock(string $library): void
    {
        $locks = $this->far($library);
        $granted = self::$server->lockInfo('total_grants');
        $this->relay->tell('hold replies');
        $this->assertTrue($this->assertThrows(Unavailable::class, fn () => $locks->lock('stock')->acquire())->sent);
        $this->assertSame($granted + 1, self::$server->lockInfo('total_grants'), 'it was granted, and its reply was lost');
        $this->relay->tell('pass');
        unset($locks);
        $this->assertSame(0, self::$server->ask('EXISTS', 'stock'));
    }

    /** @dataProvider libraries */
    public function testARequestThatArrivesLateTakesNothing(string $library): void
    {
        $locks = $this->far($library);
        $this->relay->tell('hold requests');
        $this->assertThrows(Unavailable::class, fn () => $locks->lock('stock')->acquire());
        $this->relay->tell('pass');
        $hold = $locks->lock('stock')->acquire(60); // under a new name, after LEAVE for the old one
        $this->assertSame([$hold->owner], array_column($locks->holders('stock'), 'owner'));
        $hold->release();
        eventually(fn () => self::$server->ask('EXISTS', 'stock') === 0);
    }

    /** @dataProvider libraries */
    public function testAWaiterThatGaveUpOverASilentConnectionIsNotGrantedLater(string $library): void
    {
        self::$server->occupy('stock');
        $locks = $this->far($library);
        $this->relay->tell('hold replies');
        $begin = hrtime(true);
        $this->assertThrows(Unavailable::class, fn () => $locks->lock('stock')->acquire(0.5));
        $this->assertLessThan(10, (hrtime(true) - $begin) / 1e9, 'the wait ends soon after its limit');
        $this->relay->tell('pass');
        unset($locks);
        $this->assertSame(0, self::$server->waiters());
        self::$server->vacate('stock');
        $this->assertSame(0, self::$server->ask('EXISTS', 'stock'));
    }

    /** @dataProvider libraries */
    public function testAReleaseWhoseConnectionBreaksStillReleases(string $library): void
    {
        $hold = $this->far($library)->lock('stock')->acquire();
        $this->relay->tell('cut');
        $hold->release();
        unset($hold); // a LEAVE without a reply is sent again
        eventually(fn () => self::$server->ask('EXISTS', 'stock') === 0);
    }

    /** @dataProvider libraries */
    public function testAReleaseWithoutReplyIsRepeatedBeforeTheNextCommand(string $library): void
    {
        $locks = $this->far($library);
        $hold = $locks->lock('stock')->acquire();
        $this->relay->tell('hold requests');
        $hold->release();
        $this->relay->tell('cut');
        $this->relay->tell('pass');
        $this->assertNotNull($locks->lock('stock')->acquire(5));
    }

    public static function refusals(): array
    {
        $refusals = ['too few replicas' => ['min-replicas-to-write', 1, 0], 'too many clients' => ['maxclients', 1, 100]];
        return array_merge(...array_map(fn ($library) => array_map(fn ($refusal) => [$library, ...$refusal], array_values($refusals)), ['phpredis', 'predis']));
    }

    /** @dataProvider refusals */
    public function testALeaveThatTheServerCannotTakeNowIsRepeatedBeforeTheNextCommand(string $library, string $setting, int $bad, int $good): void
    {
        $server = new Server();
        $locks = new Locks(fn () => $server->client($library));
        $hold = $locks->lock('stock', lease: 600)->acquire();
        $server->ask('CONFIG', 'SET', $setting, $bad);
        $server->ask('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        $hold->release();
        $server->ask('CONFIG', 'SET', $setting, $good);
        $this->assertSame(1, $server->ask('EXISTS', 'stock'));
        $this->assertNotNull($locks->lock('stock')->acquire(60));
    }

    /** @dataProvider libraries */
    public function testAPassThatWasNotSentEndsNothingAndAReleaseIsLeftOnce(string $library): void
    {
        $locks = $this->far($library);
        [$released, $kept] = [$locks->lock('one')->acquire(), $locks->lock('two')->acquire()];
        $before = self::$server->calls('leave');
        $this->relay->tell('hold replies');
        $released->release();
        $this->assertSame($before + 1, self::$server->calls('leave'));
        $this->assertThrows(Unavailable::class, fn () => $kept->passTo('the-runner', 60)); // the LEAVE before it got no reply
        $this->assertTrue($kept->held());
        $this->relay->tell('pass');
        $kept->release();
        $this->assertSame(0, self::$server->ask('EXISTS', 'one', 'two'));
    }

    /** @dataProvider libraries */
    public function testReadingBearsALeaveThatTheServerCannotTakeNow(string $library): void
    {
        $server = new Server();
        $locks = new Locks($server->client($library));
        $hold = $locks->lock('stock')->acquire();
        $server->ask('CONFIG', 'SET', 'min-replicas-to-write', 1);
        $hold->release();
        $this->assertCount(1, $locks->holders('stock'));
        $server->ask('CONFIG', 'SET', 'min-replicas-to-write', 0);
        $this->assertCount(0, $locks->holders('stock'));
    }

    /** @dataProvider libraries */
    public function testAWaitAndARefreshBearAServerThatAcceptsNoWriteForAWhile(string $library): void
    {
        $server = new Server();
        $locks = new Locks($server->client($library));
        $hold = $locks->lock('stock', lease: 600)->acquire();
        $server->ask('CONFIG', 'SET', 'min-replicas-to-write', 1);
        $refused = $this->assertThrows(Refused::class, fn () => $locks->lock('other')->acquire(0.2));
        $this->assertSame('NOREPLICAS', $refused->reason);
        $mending = new Child(function () use ($server) {
            usleep(300_000);
            $server->phpredis()->rawCommand('CONFIG', 'SET', 'min-replicas-to-write', 0);
        });
        $this->assertNotNull($locks->lock('other')->acquire(60));
        $hold->refresh();
        $mending->result();
    }

    /** @dataProvider libraries */
    public function testALeaveThatTheServerForbidsIsNotRepeated(string $library): void
    {
        $server = new Server();
        $server->ask('ACL', 'SETUSER', 'default', '-lock.leave', '-lock.release');
        $locks = new Locks($server->client($library));
        $hold = $locks->lock('stock')->acquire();
        $this->assertSame('NOPERM', $this->assertThrows(Refused::class, $hold->release(...))->reason);
        $before = $server->ask('INFO', 'commandstats');
        $this->assertNotNull($locks->lock('other')->acquire());
        $rejected = fn (string $stats) => preg_match('/lock\.leave:.*rejected_calls=(\d+)/i', $stats, $found) ? $found[1] : null;
        $this->assertSame('1', $rejected($before));
        $this->assertSame('1', $rejected($server->ask('INFO', 'commandstats')));
    }

    /** @dataProvider libraries */
    public function testARefreshWhoseConnectionBreaksIsSentAgain(string $library): void
    {
        $hold = $this->far($library)->lock('stock')->acquire();
        $this->relay->tell('cut');
        $hold->refresh(600);
        $this->assertGreaterThan(500, $hold->left());
    }

    /** @dataProvider libraries */
    public function testAConnectionThatWasClosedWhileNobodyUsedItIsReplacedBeforeACommandIsSent(string $library): void
    {
        $locks = $this->far($library);
        $pause = function (string $what): void {
            $this->relay->tell($what);
            usleep(1_100_000);
            $this->relay->tell('pass');
        };
        $pause('cut');
        $hold = $locks->lock('stock')->acquire();
        $pause('cut');
        $this->assertSame('OK', $hold->guard('SET', 'level', 7));
        $pause('cut');
        $token = $hold->passTo('the-runner', 60);
        $pause('cut');
        $this->assertNotNull($locks->takeOver('stock', 'the-runner', $token));
    }

    /** @dataProvider libraries */
    public function testTheTimeThatConnectingTakesIsAPartOfTheWait(string $library): void
    {
        self::$server->occupy('stock');
        $monitor = stream_socket_client('tcp://127.0.0.1:' . self::$server->port);
        fwrite($monitor, "MONITOR\r\n");
        $this->assertSame("+OK\r\n", fgets($monitor));
        $locks = new Locks(function () use ($library) {
            usleep(500_000);
            return self::$server->client($library);
        });
        $this->assertNull($locks->lock('stock')->acquire(1.0));
        do {
            $line = fgets($monitor);
        } while (!preg_match('/"WAIT" "(\d+)"/', $line, $found));
        $this->assertLessThanOrEqual(500, (int) $found[1]);
    }

    public function testAServerThatIsSilentAfterALateGrantIsNotAskedAgainAfterTheWait(): void
    {
        $renewals = 0;
        $locks = new Locks(function () use (&$renewals) {
            $redis = new class ($this->relay, $renewals) extends \Redis {
                public function __construct(private Relay $relay, private int &$renewals)
                {
                }

                public function rawCommand($command, ...$words): mixed
                {
                    if ($command === 'LOCK.RENEW') {
                        $this->renewals++;
                        $this->relay->tell('hold replies');
                    }
                    $reply = parent::rawCommand($command, ...$words);
                    $command === 'LOCK.ACQUIRE' && usleep(2_100_000); // more than half of the lease
                    return $reply;
                }
            };
            $redis->connect('127.0.0.1', $this->relay->port);
            return $redis;
        });
        $this->assertThrows(Unavailable::class, fn () => $locks->lock('stock', lease: 4.0)->acquire(2.5));
        $this->assertSame(1, $renewals);
        $this->relay->tell('pass');
    }

    /** @dataProvider libraries */
    public function testAServerThatIsSilentWhileItIsConnectedIsAskedAgainDuringTheWait(string $library): void
    {
        $relay = new Relay(self::$server->port);
        $relay->tell('hold replies');
        $locks = new Locks($library === 'predis'
            ? new \Predis\Client(['port' => $relay->port, 'database' => 1])
            : function () use ($relay) {
                $redis = self::$server->phpredis($relay->port);
                $redis->select(1);
                return $redis;
            });
        $connections = fn () => (int) self::$server->admin->info('stats')['total_connections_received'];
        $before = $connections();
        $this->assertThrows(Unavailable::class, fn () => $locks->lock('stock')->acquire(5.0));
        $this->assertGreaterThan(1, $connections() - $before);
    }

    /** @dataProvider libraries */
    public function testAWaiterWhoseConnectionBreaksAsksAgainUnderAnotherName(string $library): void
    {
        self::$server->occupy('stock');
        $before = self::$server->calls('acquire');
        $locks = $this->far($library);
        $waiting = new Child(fn () => $this->locks($library, $this->relay)->lock('stock')->acquire(60)->held());
        eventually(fn () => self::$server->waiters() === 1);
        $this->relay->tell('cut');
        eventually(fn () => self::$server->calls('acquire') === $before + 2 && self::$server->waiters() === 1);
        self::$server->vacate('stock');
        $this->assertTrue($waiting->result());
    }

    /** @dataProvider libraries */
    public function testAWaiterSurvivesARestartOfTheServer(string $library): void
    {
        $server = new Server();
        $server->occupy('stock');
        $waiting = new Child(fn () => (new Locks($server->client($library)))->lock('stock')->acquire(60)->held());
        eventually(fn () => $server->waiters() === 1);
        $server->kill();
        $server->start();
        $this->assertTrue($waiting->result());
    }

    /** @dataProvider libraries */
    public function testALossIsKnownAtTheDeadlineWhenTheServerIsSilent(string $library): void
    {
        $hold = $this->far($library)->lock('stock', lease: 0.6)->acquire();
        $this->relay->tell('hold requests');
        $this->assertThrows(LockException::class, $hold->refresh(...));
        eventually(fn () => !$hold->held());
        $this->relay->tell('pass');
        $this->assertLost($hold->release(...));
    }

    /** @dataProvider libraries */
    public function testARefreshWhoseReplyComesAfterTheDeadlineIsALossAndLeaves(string $library): void
    {
        $hold = $this->far($library)->lock('stock', lease: 0.6)->acquire();
        $this->relay->tell('hold replies');
        $answer = new Child(function () {
            usleep(800_000);
            $this->relay->tell('pass');
        });
        $this->assertLost(fn () => $hold->refresh(60));
        $this->assertFalse($hold->held());
        unset($hold); // a LEAVE without a reply is sent again
        eventually(fn () => self::$server->ask('EXISTS', 'stock') === 0);
        $answer->result();
    }

    /** @dataProvider libraries */
    public function testADemotedServerIsLeftForTheNewPrimary(string $library): void
    {
        $next = new Server();
        $primary = self::$server;
        $locks = new Locks(function () use (&$primary, $library) {
            return $primary->client($library);
        });
        $locks->holders('any');
        self::$server->ask('REPLICAOF', '127.0.0.1', (string) $next->port);
        $primary = $next;
        $hold = $locks->lock('stock')->acquire(60);
        $this->assertCount(1, (new Locks($next->phpredis()))->holders('stock'));
        $hold->release();
        eventually(fn () => self::$server->ask('REPLICAOF', 'NO', 'ONE')); // it may still be loading
    }

    /** @dataProvider libraries */
    public function testAnUnreachableServerIsAnErrorAndNotALockHeldByOthers(string $library): void
    {
        $client = self::$server->client($library, $this->relay->port);
        $client->ping();
        $locks = new Locks($client);
        unset($this->relay);
        foreach ([0.0, 0.3] as $wait) {
            $this->assertFalse($this->assertThrows(Unavailable::class, fn () => $locks->lock('stock')->acquire($wait))->sent);
        }
    }

    public function testAClosureThatThrowsIsAServerThatCannotBeReachedAndWrongArgumentsAreNotTriedAgain(): void
    {
        $down = new Locks(fn () => throw new \Exception('no primary is known'));
        foreach ([0.0, 0.3] as $wait) {
            $unavailable = $this->assertThrows(Unavailable::class, fn () => $down->lock('stock')->acquire($wait));
            $this->assertFalse($unavailable->sent);
            $this->assertStringContainsString('no primary is known', $unavailable->getMessage());
        }
        $made = 0;
        $wrong = new Locks(function () use (&$made) {
            $made++;
            throw new \InvalidArgumentException('no such connection');
        });
        $this->assertThrows(\InvalidArgumentException::class, fn () => $wrong->lock('stock')->acquire(60));
        $this->assertSame(1, $made);
    }

    /** @dataProvider libraries */
    public function testAWaitWithoutLimitGivesUpOnAServerThatNeverReplies(string $library): void
    {
        $client = self::$server->client($library, $this->relay->port);
        $client->ping();
        $locks = new Locks($client);
        unset($this->relay);
        $this->assertThrows(Unavailable::class, fn () => $locks->lock('stock')->acquire(INF));
    }

    /** @dataProvider libraries */
    public function testAKilledWaiterLeavesTheQueue(string $library): void
    {
        self::$server->occupy('stock');
        $waiting = new Child(fn () => $this->locks($library)->lock('stock')->acquire(60));
        eventually(fn () => self::$server->waiters() === 1);
        $waiting->kill();
        eventually(fn () => self::$server->waiters() === 0);
        self::$server->vacate('stock');
        $this->assertSame(0, self::$server->ask('EXISTS', 'stock'));
    }

    /** @dataProvider libraries */
    public function testAForkedChildHasItsOwnNamesAndConnectionAndHoldsNothingOfItsParent(string $library): void
    {
        $locks = $this->locks($library);
        $hold = $locks->lock('stock')->acquire();
        $child = new Child(function () use ($locks, $hold) {
            $own = $locks->lock('other')->acquire();
            $refused = $this->assertThrows(\LogicException::class, $hold->release(...));
            return [$own->owner, $hold->held(), $locks->lock('stock')->acquire(), $refused->getMessage()];
        });
        [$owner, $held, $taken] = $child->result();
        $this->assertFalse($held);
        $this->assertNull($taken);
        $this->assertNotSame(explode(':', $hold->owner)[0], explode(':', $owner)[0]);
        $this->assertTrue($hold->held());
        $hold->refresh();
        $hold->release();
    }

    /** @dataProvider libraries */
    public function testAChildForkedDuringTheWorkReleasesNothingWhenItReturns(string $library): void
    {
        $locks = $this->locks($library);
        $tester = getmypid();
        try {
            $locks->lock('stock')->run(function () {
                if ($child = pcntl_fork()) {
                    pcntl_waitpid($child, $status);
                    $this->assertSame(1, self::$server->phpredis()->exists('stock'), 'the child has left the block, too');
                }
            });
        } finally {
            if (getmypid() !== $tester) {
                posix_kill(getmypid(), SIGKILL);
            }
        }
        $this->assertSame(0, self::$server->ask('EXISTS', 'stock'));
    }
}
