package mortise_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	mortise "mortise.example/mortise/helpers/go"
	"mortise.example/mortise/helpers/go/goredisconn"
	"mortise.example/mortise/helpers/go/rueidisconn"
)

// Confirmed holds: a lock relies on what enough replicas have.

type pair struct {
	t                *testing.T
	primary, replica *server
}

func replicaOf(t *testing.T, primary *server) *server {
	host, port, _ := strings.Cut(primary.addr, ":")
	return start(t, "--replicaof", host, port)
}

// eachPair runs the test with each client, a primary and its replica. `connect` makes locks that so many replicas confirm.
func eachPair(t *testing.T, test func(t *testing.T, p pair, connect func(replicas int) *mortise.Locks)) {
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := start(t, "--repl-diskless-sync-delay", "0")
			p := pair{t, primary, replicaOf(t, primary)}
			eventually(t, "the replica is in sync", func() bool { return p.replica.info("master_link_status") == "up" })
			p.awaitReplica()
			test(t, p, func(replicas int) *mortise.Locks {
				locks := mortise.New(client(t, primary), mortise.Replicas(replicas))
				t.Cleanup(func() { closeSoon(locks) })
				return locks
			})
		})
	}
}

// awaitReplica waits for a replica. A primary sends a newly loaded one nothing before its first request, a second later.
func (p pair) awaitReplica() {
	written, _ := strconv.Atoi(p.primary.info("master_repl_offset"))
	eventually(p.t, "the replica has all", func() bool {
		has, _ := strconv.Atoi(p.replica.info("slave_repl_offset"))
		return has >= written
	})
}

// has reports whether the replica knows this hold.
func (p pair) has(key string, token int64) bool {
	m, _ := p.replica.do("LOCK.INFO", key).(map[any]any)
	holds, _ := m["holds"].([]any)
	for _, hold := range holds {
		if fields, _ := hold.(map[any]any); fields["token"] == token {
			return true
		}
	}
	return false
}

func (p pair) waits() int { return p.primary.calls("wait") }

func isUnconfirmed(err error, needed, had int) bool {
	var few *mortise.Unconfirmed
	return errors.As(err, &few) && *few == mortise.Unconfirmed{Needed: needed, Had: had}
}

func TestALockIsHandedOutOnceAReplicaHasItAndSoIsEachRenewal(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair, connect func(int) *mortise.Locks) {
		lock, held, err := connect(1).Lock(background, "k", mortise.Lease(1500*time.Millisecond))
		if err != nil || !p.has("k", lock.Token()) {
			t.Fatal(err, "or the replica does not have it")
		}
		waits := p.waits()
		if waits < 2 {
			t.Errorf("%d WAITs: there is one on the new connection, and one for the grant", waits)
		}
		time.Sleep(2 * time.Second) // longer than the lease
		if held.Err() != nil || p.waits() == waits {
			t.Errorf("the lock is held: %v; %d WAITs", held.Err(), p.waits())
		}
		if err := lock.Unlock(); err != nil || !p.primary.free("k") {
			t.Error(err, "or it is not free")
		}
	})
}

func TestWithoutEnoughReplicasAnErrorSaysHowManyHadTheLockAndItIsFreeAgain(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair, connect func(int) *mortise.Locks) {
		locks := connect(2)
		if _, _, err := locks.TryLock(background, "k"); !isUnconfirmed(err, 2, 1) {
			t.Error(err)
		}
		eventually(t, "it is free", func() bool { return p.primary.free("k") })
		if _, _, err := locks.Lock(background, "k", mortise.Wait(300*time.Millisecond)); !isUnconfirmed(err, 2, 1) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(background, 2*time.Second)
		defer cancel()
		if _, _, err := locks.Lock(ctx, "k"); !isUnconfirmed(err, 2, 1) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		eventually(t, "it is free", func() bool { return p.primary.free("k") })
		replicaOf(t, p.primary)
		lock, _, err := locks.Lock(background, "k")
		if err != nil {
			t.Fatal(err)
		}
		_ = lock.Unlock()
	})
}

func TestNoLockIsSeenBeforeItIsConfirmed(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair, connect func(int) *mortise.Locks) {
		locks := connect(1)
		if _, _, err := locks.Lock(background, "other"); err != nil { // so that the connection is open
			t.Fatal(err)
		}
		thaw := p.replica.freeze()
		taken := make(chan *mortise.Lock)
		go func() {
			lock, _, err := locks.Lock(background, "k")
			if err != nil {
				t.Error(err)
			}
			taken <- lock
		}()
		eventually(t, "the server has granted it", func() bool { return !p.primary.free("k") })
		select {
		case <-taken:
			t.Error("it is held, and no replica has it")
		default:
		}
		thaw()
		if lock := <-taken; !p.has("k", lock.Token()) {
			t.Error("the replica does not have it")
		}
	})
}

func TestALockWhoseRenewalsReachNoReplicaIsLostAtItsDeadline(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair, connect func(int) *mortise.Locks) {
		locks := connect(1)
		lock, held, err := locks.Lock(background, "k", mortise.Lease(1500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		thaw := p.replica.freeze()
		<-held.Done() // though the primary renews it
		if lock.Unlock() != mortise.ErrLost || context.Cause(held) != mortise.ErrLost {
			t.Error(context.Cause(held))
		}
		if _, _, err := locks.TryLock(background, "other"); !isUnconfirmed(err, 1, 0) {
			t.Error(err)
		}
		thaw()
		if _, _, err = locks.Lock(background, "k"); err != nil {
			t.Error(err)
		}
	})
}

func TestSeveralKeysPermitsLettersAndWhatIsTakenOverAreConfirmed(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair, connect func(int) *mortise.Locks) {
		locks := connect(1)
		both, _, err := locks.LockAll(background, []string{"a", "b"})
		if err != nil || !p.has("a", both.Token()) || !p.has("b", both.Token()) {
			t.Fatal(err, "or the replica does not have both")
		}
		permits, _, err := locks.Semaphore("p", 3).Acquire(background, 2)
		if err != nil || !p.has("p", permits.Token()) {
			t.Fatal(err, "or the replica does not have the permits")
		}
		first, _, err := locks.Lock(background, "k")
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan *mortise.Lock)
		go func() {
			lock, _, _ := locks.Lock(background, "k")
			second <- lock
		}()
		eventually(t, "it waits", func() bool { return p.primary.waiters("k") == 1 })
		_ = first.Unlock()
		lock := <-second
		if !p.has("k", lock.Token()) {
			t.Error("the replica does not have what a letter granted")
		}
		token, err := lock.PassTo(background, "job", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		taken, _, err := locks.TakeOver(background, "k", "job", token)
		if err != nil || !p.has("k", taken.Token()) {
			t.Fatal(err, "or the replica does not have what was taken over")
		}
		token, err = taken.PassTo(background, "job", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		thaw := p.replica.freeze()
		if _, _, err := locks.TakeOver(background, "k", "job", token); !isUnconfirmed(err, 1, 0) {
			t.Error(err)
		}
		if err := both.KeepFor(background, time.Minute); !isUnconfirmed(err, 1, 0) {
			t.Error(err)
		}
		thaw()
		eventually(t, "it was given back", func() bool { return p.primary.free("k") })
	})
}

func TestTheLocksOfManyAreConfirmedTogether(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair, connect func(int) *mortise.Locks) {
		locks := connect(1)
		waits := p.waits()
		var done sync.WaitGroup
		for i := range 200 {
			done.Go(func() {
				lock, _, err := locks.Lock(background, strconv.Itoa(i))
				if err != nil || !p.has(strconv.Itoa(i), lock.Token()) {
					t.Error(err, "or the replica does not have it")
				}
			})
		}
		done.Wait()
		if more := p.waits() - waits; more > 100 {
			t.Errorf("%d WAITs for 200 locks", more)
		}
	})
}

func TestLocksThatNeedNoReplicaUseNone(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair, connect func(int) *mortise.Locks) {
		lock, _, err := connect(0).Lock(background, "k")
		if err != nil || lock.Unlock() != nil || p.waits() != 0 {
			t.Error(err, "or WAIT was sent:", p.waits())
		}
	})
}

func TestAfterAFailoverInAClusterALockIsHeldOnAndTheNextIsConfirmed(t *testing.T) {
	for _, name := range []string{"go-redis", "rueidis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
			replica := start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
			primary.do("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
			host, port, _ := strings.Cut(primary.addr, ":")
			replica.do("CLUSTER", "MEET", host, port)
			eventually(t, "they know each other", func() bool { return strings.Contains(replica.ClusterNodes(background).Val(), primary.id()) })
			replica.do("CLUSTER", "REPLICATE", primary.id())
			eventually(t, "the replica is in sync", func() bool { return replica.info("master_link_status") == "up" })
			eventually(t, "the cluster is formed", func() bool { return strings.Contains(primary.ClusterInfo(background).Val(), "cluster_state:ok") })
			var client mortise.Client
			if name == "go-redis" {
				rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{primary.addr}})
				defer rdb.Close()
				client = goredisconn.New(rdb)
			} else {
				var err error
				if client, err = rueidisconn.New(rueidis.ClientOption{InitAddress: []string{primary.addr}}); err != nil {
					t.Fatal(err)
				}
			}
			locks := mortise.New(client, mortise.Replicas(1))
			defer closeSoon(locks)
			lock, held, err := locks.Lock(background, "k", mortise.Lease(6*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			replica.do("CLUSTER", "FAILOVER")
			eventually(t, "the replica is promoted", func() bool { return replica.info("role") == "master" })
			time.Sleep(7 * time.Second)
			if err := lock.Unlock(); err != nil || context.Cause(held) != mortise.ErrUnlocked {
				t.Error(err, context.Cause(held))
			}
			if _, _, err := locks.Lock(background, "l", mortise.Wait(time.Minute)); err != nil || replica.calls("wait") == 0 {
				t.Error(err, replica.calls("wait"))
			}
		})
	}
}
