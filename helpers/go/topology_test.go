package mortise_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
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

type cluster []*server

// startCluster runs three primaries that share the slots.
func startCluster(t *testing.T) cluster {
	t.Helper()
	var nodes cluster
	for i := range 3 {
		s := start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		first, last := i*16384/3, (i+1)*16384/3-1
		s.do("CLUSTER", "ADDSLOTSRANGE", first, last)
		s.do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i > 0 {
			host, port, _ := strings.Cut(nodes[0].addr, ":")
			s.do("CLUSTER", "MEET", host, port)
		}
		nodes = append(nodes, s)
	}
	eventually(t, "the cluster is formed", func() bool {
		for _, s := range nodes {
			if !strings.Contains(s.ClusterInfo(background).Val(), "cluster_state:ok") || strings.Count(s.ClusterNodes(background).Val(), "connected ") < 3 {
				return false
			}
		}
		return true
	})
	return nodes
}

func (c cluster) addrs() []string {
	var addrs []string
	for _, s := range c {
		addrs = append(addrs, s.addr)
	}
	return addrs
}

func (s *server) id() string { return s.do("CLUSTER", "MYID").(string) }

// move moves a slot with its keys from one node to another.
func (c cluster) move(slot int64, from, to *server) {
	c.beginMove(slot, from, to)
	c.finishMove(slot, from, to)
}

func (c cluster) beginMove(slot int64, from, to *server) {
	to.do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.id())
	from.do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id())
}

func (c cluster) finishMove(slot int64, from, to *server) {
	host, port, _ := strings.Cut(to.addr, ":")
	for {
		keys := from.ClusterGetKeysInSlot(background, int(slot), 100).Val()
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			from.do("MIGRATE", host, port, key, 0, 10000)
		}
	}
	for _, s := range append(cluster{to, from}, c...) {
		s.do("CLUSTER", "SETSLOT", slot, "NODE", to.id())
	}
}

func eachInCluster(t *testing.T, test func(t *testing.T, c cluster, locks *mortise.Locks)) {
	for _, name := range []string{"go-redis", "rueidis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := startCluster(t)
			locks := mortise.New(connectTo(t, name, nodes))
			defer closeSoon(locks)
			test(t, nodes, locks)
		})
	}
}

// connectTo makes the client of that name for the cluster.
func connectTo(t *testing.T, name string, nodes cluster) mortise.Client {
	t.Helper()
	if name == "go-redis" {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.addrs()})
		t.Cleanup(func() { _ = rdb.Close() })
		return goredisconn.New(rdb)
	}
	client, err := rueidisconn.New(rueidis.ClientOption{InitAddress: nodes.addrs()})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func closeSoon(locks *mortise.Locks) {
	ctx, cancel := context.WithTimeout(background, 5*time.Second)
	defer cancel()
	_ = locks.Close(ctx)
}

func TestInAClusterEveryNodeHasOneBox(t *testing.T) {
	eachInCluster(t, func(t *testing.T, c cluster, locks *mortise.Locks) {
		var done sync.WaitGroup
		for i := range 60 {
			done.Go(func() {
				for range 5 {
					lock, _, err := locks.Lock(background, fmt.Sprintf("k%d", i%12))
					if err != nil {
						t.Error(err)
						return
					}
					if err := lock.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		done.Wait()
		for _, s := range c {
			if n := s.info("lock_boxes"); n != "1" {
				t.Errorf("%s boxes", n)
			}
		}
	})
}

func TestTheListOfAddressesOfTheProgramsClientIsNotChanged(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t)
	room := make([]string, 10)
	copy(room, nodes.addrs()[:1])
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: room[:1]}) // it is never used, so it finds no other nodes
	defer rdb.Close()
	locks := mortise.New(goredisconn.New(rdb))
	defer closeSoon(locks)
	if lock, _, err := locks.Lock(background, "k"); err != nil || lock.Unlock() != nil {
		t.Fatal(err)
	}
	if room[1] != "" {
		t.Fatal("the locks' client has written into the program's list:", room)
	}
}

func TestALockAndItsWaitersFollowASlotThatMoves(t *testing.T) {
	eachInCluster(t, func(t *testing.T, c cluster, locks *mortise.Locks) {
		first, held, err := locks.Lock(background, "k", mortise.Lease(6*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		slot := c[0].do("CLUSTER", "KEYSLOT", "k").(int64)
		at := int(slot) * 3 / 16384
		from, to := c[at], c[(at+1)%3]
		other := "other"
		for int(from.do("CLUSTER", "KEYSLOT", other).(int64))*3/16384 != at {
			other += "."
		}
		neighbour, _, err := locks.Lock(background, other, mortise.Lease(6*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan error)
		go func() {
			lock, _, err := locks.Lock(background, "k", mortise.Wait(time.Minute))
			granted <- errors.Join(err, lock.Unlock())
		}()
		eventually(t, "it waits", func() bool { return from.waiters("k") == 1 })
		c.move(slot, from, to)
		renewed := to.calls("lock.renew")
		eventually(t, "it waits there", func() bool { return to.waiters("k") == 1 })
		eventually(t, "it is renewed there", func() bool { return to.calls("lock.renew") > renewed+1 })
		if err := first.Unlock(); err != nil || context.Cause(held) != mortise.ErrUnlocked {
			t.Fatal(err, context.Cause(held))
		}
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		if err := neighbour.Unlock(); err != nil {
			t.Fatal("the lock that did not move:", err)
		}
		eventually(t, "it is free", func() bool { return to.free("k") })
	})
}

func TestTryLockFollowsASlotThatMoves(t *testing.T) {
	eachInCluster(t, func(t *testing.T, c cluster, locks *mortise.Locks) {
		lock, _, err := locks.TryLock(background, "k")
		if err != nil || lock.Unlock() != nil {
			t.Fatal(err)
		}
		slot := c[0].do("CLUSTER", "KEYSLOT", "k").(int64)
		at := int(slot) * 3 / 16384
		c.move(slot, c[at], c[(at+1)%3])
		eventually(t, "it is taken there", func() bool {
			lock, _, err := locks.TryLock(background, "k")
			return err == nil && lock.Unlock() == nil
		})
	})
}

func TestALockIsAcquiredAndRenewedWhileItsSlotMoves(t *testing.T) {
	eachInCluster(t, func(t *testing.T, c cluster, locks *mortise.Locks) {
		slot := c[0].do("CLUSTER", "KEYSLOT", "k").(int64)
		at := int(slot) * 3 / 16384
		from, to := c[at], c[(at+1)%3]
		c.beginMove(slot, from, to)
		lock, held, err := locks.Lock(background, "k", mortise.Lease(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan error)
		go func() {
			next, _, err := locks.Lock(background, "k", mortise.Wait(time.Minute))
			if err == nil {
				err = next.Unlock()
			}
			granted <- err
		}()
		eventually(t, "it is renewed there for longer than its lease", func() bool { return to.calls("lock.renew") > 4 })
		if held.Err() != nil || lock.Unlock() != nil {
			t.Fatal("it was lost")
		}
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		c.finishMove(slot, from, to)
		eventually(t, "it is free", func() bool { return to.free("k") })
	})
}

func TestALockAndItsWaitersFollowToTheReplicaThatTheClusterPromotes(t *testing.T) {
	eachInCluster(t, func(t *testing.T, c cluster, locks *mortise.Locks) {
		primary := c[c[0].do("CLUSTER", "KEYSLOT", "k").(int64)*3/16384]
		replica := start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		host, port, _ := strings.Cut(primary.addr, ":")
		replica.do("CLUSTER", "MEET", host, port)
		eventually(t, "it knows the primary", func() bool {
			return replica.Do(background, "CLUSTER", "REPLICATE", primary.id()).Err() == nil
		})
		eventually(t, "the replica is loaded", func() bool { return replica.info("master_link_status") == "up" })
		lock, held, err := locks.Lock(background, "k", mortise.Lease(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan error)
		go func() { _, _, err := locks.Lock(background, "k"); granted <- err }()
		eventually(t, "it waits", func() bool { return primary.waiters("k") == 1 })
		awaitAll(t, primary, replica)
		primary.kill()
		eventually(t, "it waits there", func() bool { return replica.info("lock_waiters") == "1" })
		if held.Err() != nil || lock.Unlock() != nil {
			t.Fatal("it was lost")
		}
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
	})
}

func TestLocksFollowSentinelsPrimaryOverAFailover(t *testing.T) {
	for _, name := range []string{"go-redis", "rueidis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := start(t)
			host, port, _ := strings.Cut(primary.addr, ":")
			replica := start(t, "--replicaof", host+" "+port)
			eventually(t, "the replica is loaded", func() bool { return replica.info("master_link_status") == "up" })
			sentinel := startSentinel(t, primary)
			eventually(t, "the sentinel knows the replica", func() bool {
				list, _ := sentinel.do("SENTINEL", "REPLICAS", "mymaster").([]any)
				return len(list) == 1
			})
			locks := mortise.New(connectToSentinel(t, name, sentinel))
			defer closeSoon(locks)
			first, _, err := locks.Lock(background, "k")
			if err != nil {
				t.Fatal(err)
			}
			granted := make(chan error)
			go func() { _, _, err := locks.Lock(background, "k", mortise.Wait(time.Minute)); granted <- err }()
			eventually(t, "it waits", func() bool { return primary.waiters("k") == 1 })
			awaitAll(t, primary, replica)
			eventually(t, "it fails over", func() bool {
				_ = sentinel.Do(background, "SENTINEL", "FAILOVER", "mymaster").Err()
				return replica.info("role") == "master"
			})
			eventually(t, "it waits there", func() bool { return replica.waiters("k") == 1 })
			if err := first.Unlock(); err != nil {
				t.Fatal(err)
			}
			if err := <-granted; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// connectToSentinel makes the client of that name for the primary that the sentinel names.
func connectToSentinel(t *testing.T, name string, sentinel *server) mortise.Client {
	t.Helper()
	if name == "go-redis" {
		rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: []string{sentinel.addr}})
		t.Cleanup(func() { _ = rdb.Close() })
		return goredisconn.New(rdb)
	}
	client, err := rueidisconn.New(rueidis.ClientOption{InitAddress: []string{sentinel.addr}, Sentinel: rueidis.SentinelOption{MasterSet: "mymaster"}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestLocksFollowAPrimaryThatSentinelDoesNotAnnounce(t *testing.T) {
	for _, name := range []string{"go-redis", "rueidis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, primary := start(t), start(t)
			sentinel := startSentinel(t, old)
			locks := mortise.New(connectToSentinel(t, name, sentinel))
			defer closeSoon(locks)
			if lock, _, err := locks.Lock(background, "k"); err != nil || lock.Unlock() != nil {
				t.Fatal(err)
			}
			host, port, _ := strings.Cut(primary.addr, ":")
			sentinel.do("SENTINEL", "REMOVE", "mymaster")
			sentinel.do("SENTINEL", "MONITOR", "mymaster", host, port, 1)
			old.do("REPLICAOF", host, port)
			if lock, _, err := locks.Lock(background, "k", mortise.Wait(time.Minute)); err != nil || lock.Unlock() != nil {
				t.Fatal(err)
			}
			if primary.calls("lock.wlock") == 0 {
				t.Fatal("the new primary was not asked")
			}
		})
	}
}

// awaitAll waits until the replica has all the primary's writes. A primary sends a newly loaded replica nothing before its first
// request, a second later.
func awaitAll(t *testing.T, primary, replica *server) {
	t.Helper()
	written := primary.offset("master_repl_offset")
	eventually(t, "the replica has all of it", func() bool { return replica.offset("slave_repl_offset") >= written })
}

func (s *server) offset(field string) int64 {
	offset, _ := strconv.ParseInt(s.info(field), 10, 64)
	return offset
}

func startSentinel(t *testing.T, primary *server) *server {
	t.Helper()
	host, port, _ := strings.Cut(primary.addr, ":")
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor mymaster %s %s 1\nsentinel down-after-milliseconds mymaster 60000\n", host, port)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return startWith(t, func(port int, dir string) []string {
		return []string{conf, "--sentinel", "--port", fmt.Sprint(port), "--dir", dir}
	})
}

func TestWhoeverGivesUpDoesNotWaitForAnothersSearchForServers(t *testing.T) {
	eachInCluster(t, func(t *testing.T, c cluster, locks *mortise.Locks) {
		lock, _, err := locks.Lock(background, "warm")
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Unlock()
		for _, s := range c {
			defer s.freeze()()
		}
		patient, end := context.WithCancel(background)
		defer end()
		var done sync.WaitGroup
		defer done.Wait()
		defer end()
		for i := range 20 { // each looks for the servers again
			done.Go(func() { _, _, _ = locks.Lock(patient, fmt.Sprint("patient:", i)) })
		}
		for range 5 {
			ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
			began := time.Now()
			_, _, err := locks.Lock(ctx, "impatient")
			cancel()
			if took := time.Since(began); err == nil || took > 5*time.Second {
				t.Errorf("%v after %v", err, took)
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
}

func TestInAClusterASearchForServersDelaysNoLock(t *testing.T) {
	for _, name := range []string{"go-redis", "rueidis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := startCluster(t)
			client := connectTo(t, name, nodes)
			defer client.Close()
			ended, end := context.WithCancel(background)
			end()
			before, err := client.Node(background, "k")
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range nodes {
				defer s.freeze()()
			}
			client.Refresh(background)
			if now, err := client.Node(ended, "k"); err != nil || now != before {
				t.Fatal(now, err)
			}
		})
	}
}

func TestALockMovesToAServerThatJoinsTheCluster(t *testing.T) {
	eachInCluster(t, func(t *testing.T, c cluster, locks *mortise.Locks) {
		lock, _, err := locks.Lock(background, "k", mortise.Lease(6*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		slot := c[0].do("CLUSTER", "KEYSLOT", "k").(int64)
		from, to := c[int(slot)*3/16384], start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		host, port, _ := strings.Cut(from.addr, ":")
		to.do("CLUSTER", "MEET", host, port)
		for _, s := range c {
			eventually(t, "they know each other", func() bool {
				return strings.Contains(s.ClusterNodes(background).Val(), to.id()) && strings.Contains(to.ClusterNodes(background).Val(), s.id())
			})
		}
		eventually(t, "it is ready", func() bool { return strings.Contains(to.ClusterInfo(background).Val(), "cluster_state:ok") })
		c.move(slot, from, to)
		eventually(t, "it is renewed there", func() bool { return to.calls("lock.renew") > 1 })
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		if lock, _, err = locks.TryLock(background, "k"); err != nil || lock.Unlock() != nil {
			t.Fatal(err)
		}
	})
}

func TestASlotIsFoundThoughAllServersOfTheClusterWereReplaced(t *testing.T) {
	t.Parallel()
	args := []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no"}
	first, second, third := start(t, args...), start(t, args...), start(t, args...)
	c := cluster{first, second, third}
	first.do("CLUSTER", "ADDSLOTSRANGE", 0, 16381)
	locks := mortise.New(connectTo(t, "rueidis", c[:1]))
	defer closeSoon(locks)
	isTaken := func() bool {
		lock, _, err := locks.TryLock(background, "k")
		return err == nil && lock.Unlock() == nil
	}
	eventually(t, "it is taken", isTaken)
	for i, s := range c[1:] {
		host, port, _ := strings.Cut(c[i].addr, ":")
		s.do("CLUSTER", "ADDSLOTS", 16382+i) // a server without any would become a replica
		s.do("CLUSTER", "SET-CONFIG-EPOCH", i+2)
		s.do("CLUSTER", "MEET", host, port)
	}
	for _, s := range c {
		eventually(t, "it knows all", func() bool { return strings.Count(s.ClusterNodes(background).Val(), "connected") == 3 })
	}
	slot := first.do("CLUSTER", "KEYSLOT", "k").(int64)
	c.move(slot, first, second)
	eventually(t, "it is taken at the second", isTaken)
	eventually(t, "the second was asked for slots", func() bool { return second.calls("cluster|slots")+second.calls("cluster|shards") > 0 })
	first.kill()
	c[1:].move(slot, second, third)
	eventually(t, "it is taken at the third", func() bool { return isTaken() && third.calls("lock.wlock") > 0 })
}

func TestAServerThatDoesNotKnowItsOwnAddressIsACluster(t *testing.T) {
	for _, name := range []string{"go-redis", "rueidis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--cluster-enabled", "yes")
			s.do("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
			eventually(t, "it is ready", func() bool { return strings.Contains(s.ClusterInfo(background).Val(), "cluster_state:ok") })
			client := connectTo(t, name, cluster{s})
			if node, err := client.Node(background, "k"); err != nil || name == "rueidis" && node != s.addr {
				t.Error(node, err)
			}
			locks := mortise.New(client)
			defer closeSoon(locks)
			if lock, _, err := locks.Lock(background, "k", mortise.Wait(10*time.Second)); err != nil || lock.Unlock() != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSlotsThatNoClusterHasAreIgnored(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	slots := fmt.Sprintf("*1\r\n*3\r\n:-1\r\n:16384\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go func() {
				lines, word := bufio.NewScanner(conn), 0
				for lines.Scan() {
					switch line := strings.ToUpper(lines.Text()); {
					case line[0] == '*':
						word = 0 // a command begins
					case line[0] == '$':
						word++
					case word == 1 && line == "CLUSTER":
						_, _ = conn.Write([]byte(slots))
					case word == 1:
						_, _ = conn.Write([]byte("+OK\r\n"))
					}
				}
			}()
		}
	}()
	client, err := rueidisconn.New(rueidis.ClientOption{InitAddress: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if node, err := client.Node(background, "k"); err != nil || node != l.Addr().String() {
		t.Error(node, err)
	}
}
