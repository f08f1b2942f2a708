package mortise_test

import (
	"context"
	"errors"
	"math/rand/v2"
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

// A test for each pitfall of calling the commands by hand.

func TestAWaitLastsLongerThanTheReadTimeoutOfTheProgramsClient(t *testing.T) {
	t.Parallel()
	s := start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.addr, ReadTimeout: 50 * time.Millisecond, MaxRetries: 3})
	defer rdb.Close()
	locks := mortise.New(goredisconn.New(rdb))
	defer locks.Close(background)
	first, _, err := locks.Lock(background, "k")
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan error)
	go func() { _, _, err := locks.Lock(background, "k", mortise.Wait(20*time.Second)); granted <- err }()
	eventually(t, "it waits", func() bool { return s.waiters("k") == 1 })
	if other, _, err := locks.Lock(background, "other"); err != nil || other.Unlock() != nil {
		t.Fatal(err) // over the same connection, so earlier replies have been read
	}
	asked := s.calls("lock.wlock")
	time.Sleep(500 * time.Millisecond) // ten read time-outs
	if s.calls("lock.wlock") != asked || s.waiters("k") != 1 {
		t.Fatal("it was sent again")
	}
	_ = first.Unlock()
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
}

func TestAnExhaustedPoolDoesNotDelayARelease(t *testing.T) {
	t.Parallel()
	s := start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: 1, PoolTimeout: 100 * time.Millisecond})
	defer rdb.Close()
	locks := mortise.New(goredisconn.New(rdb))
	defer locks.Close(background)
	lock, _, err := locks.Lock(background, "k")
	if err != nil {
		t.Fatal(err)
	}
	go rdb.BLPop(background, 0, "never")
	for range 50 {
		go locks.Lock(background, "k", mortise.Lease(time.Hour))
	}
	eventually(t, "all wait", func() bool { return s.waiters("k") == 50 })
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if n := s.waiters("k"); n != 49 {
		t.Fatalf("%d wait after the release", n)
	}
}

func TestThePoolOfTheProgramsOptionsDoesNotLimitTheLocks(t *testing.T) {
	t.Parallel()
	s := start(t)
	client, err := rueidisconn.New(rueidis.ClientOption{InitAddress: []string{s.addr}, BlockingPoolSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	locks := mortise.New(client)
	defer closeSoon(locks)
	lock, _, err := locks.Lock(background, "k")
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan error)
	go func() { _, _, err := locks.Lock(background, "k", mortise.Wait(10*time.Second)); granted <- err }()
	eventually(t, "it waits", func() bool { return s.waiters("k") == 1 })
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
}

func TestAnUnlockDoesNotWaitForTheDialTimeoutOfTheProgramsOptions(t *testing.T) {
	t.Parallel()
	s := start(t)
	option := rueidis.ClientOption{InitAddress: []string{s.addr}}
	option.Dialer.Timeout, option.ConnWriteTimeout = time.Hour, time.Hour
	client, err := rueidisconn.New(option)
	if err != nil {
		t.Fatal(err)
	}
	locks := mortise.New(client)
	defer closeSoon(locks)
	lock, _, err := locks.Lock(background, "k", mortise.Lease(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer s.freeze()()
	time.Sleep(1100 * time.Millisecond) // after a second a connection is tried before it is used
	unlocked := make(chan error)
	go func() { unlocked <- lock.Unlock() }()
	select {
	case err := <-unlocked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it still waits")
	}
}

func TestOptionsForReadingFromReplicasDoNotMatter(t *testing.T) {
	t.Parallel()
	s := start(t)
	toReplicas := func(rueidis.Completed) bool { return true }
	for name, set := range map[string]func(o *rueidis.ClientOption){
		"ReplicaSelector":     func(o *rueidis.ClientOption) { o.ReplicaSelector = func(uint16, []rueidis.NodeInfo) int { return 0 } },
		"ReadNodeSelector":    func(o *rueidis.ClientOption) { o.ReadNodeSelector = rueidis.PreferReplicaNodeSelector() },
		"ReplicaAddress":      func(o *rueidis.ClientOption) { o.Standalone.ReplicaAddress = []string{s.addr} },
		"EnableReplicaAZInfo": func(o *rueidis.ClientOption) { o.EnableReplicaAZInfo, o.AZFromInfo = true, true },
	} {
		option := rueidis.ClientOption{InitAddress: []string{s.addr}, SendToReplicas: toReplicas}
		set(&option)
		client, err := rueidisconn.New(option)
		if err != nil {
			t.Error(name, err)
			continue
		}
		locks := mortise.New(client)
		if lock, _, err := locks.TryLock(background, name); err != nil || lock.Unlock() != nil {
			t.Error(name, err)
		}
		closeSoon(locks)
	}
}

func TestAPassedDeadlineLeavesNoRequestInTheQueue(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		first, _, err := locks.Lock(background, "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
		defer cancel()
		if _, _, err := locks.Lock(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		eventually(t, "nobody waits", func() bool { return s.waiters("k") == 0 })
		_ = first.Unlock()
		if !s.free("k") {
			t.Fatal("an orphan was granted")
		}
	})
}

func TestCancellingEndsAWaitForAServerThatDoesNotReply(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		lock, _, err := locks.Lock(background, "other")
		if err != nil {
			t.Fatal(err)
		}
		defer s.freeze()()
		ctx, cancel := context.WithCancel(background)
		ended := make(chan error)
		go func() { _, _, err := locks.Lock(ctx, "k"); ended <- err }()
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("it still waits")
		}
		_ = lock
	})
}

func TestAWaitOfLessThanAMillisecondIsNotUnlimited(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		if _, _, err := locks.Lock(background, "k"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := locks.Lock(background, "k", mortise.Wait(300*time.Microsecond)); err != mortise.ErrBusy {
			t.Fatal(err)
		}
	})
}

func TestALockIsFreeThoughTheConnectionBrokeDuringItsRelease(t *testing.T) {
	through(t, func(t *testing.T, s *server, p *proxy, locks *mortise.Locks) {
		lock, _, err := locks.Lock(background, "k", mortise.Lease(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		p.breaks("LOCK.RELEASE", before)
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is free", func() bool { return s.free("k") })
	})
}

func TestAConnectionThatWasClosedWhileNobodyUsedItCostsNoRequest(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		for range 2 {
			lock, _, err := locks.TryLock(background, "k")
			if err != nil {
				t.Fatal(err)
			}
			if err := lock.Unlock(); err != nil {
				t.Fatal(err)
			}
			s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			time.Sleep(1100 * time.Millisecond) // after a second a connection is tried before it is used
		}
	})
}

func TestAConnectionThatTheServerRefusedToOpenIsOpenedAnew(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		s.password = "right"
		s.wants(s.password)
		locks := connect()
		if lock, _, err := locks.TryLock(background, "k"); err != nil || lock.Unlock() != nil {
			t.Fatal(err)
		}
		s.wants("another")
		time.Sleep(1100 * time.Millisecond) // after a second a connection is tried before it is used
		if _, _, err := locks.TryLock(background, "k"); !isRefused(err) {
			t.Error("was let in:", err)
		}
		s.do("CONFIG", "SET", "requirepass", s.password)
		if lock, _, err := locks.TryLock(background, "k"); err != nil || lock.Unlock() != nil {
			t.Error(err)
		}
	})
}

func TestALockIsFreedThoughThePasswordWasWrongForAWhile(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		s.password = "right"
		s.wants(s.password)
		locks := connect()
		lock, _, err := locks.Lock(background, "k", mortise.Lease(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		s.wants("another")
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is refused", func() bool {
			_, _, err := locks.TryLock(background, "another")
			return isRefused(err)
		})
		logins := s.calls("auth") + s.calls("hello")
		eventually(t, "so is the release", func() bool { return s.calls("auth")+s.calls("hello") > logins })
		s.do("CONFIG", "SET", "requirepass", s.password)
		eventually(t, "it is free", func() bool { return s.free("k") })
	})
}

func TestALostReplyLeavesNoHold(t *testing.T) {
	through(t, func(t *testing.T, s *server, p *proxy, locks *mortise.Locks) {
		if lock, _, err := locks.Lock(background, "first"); err != nil || lock.Unlock() != nil {
			t.Fatal(err)
		}
		p.breaks("LOCK.WLOCK", after)
		lock, _, err := locks.Lock(background, "k", mortise.Lease(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is free", func() bool { return s.free("k") })
		if p.broken.Load() != 1 {
			t.Fatal("nothing was lost")
		}
	})
}

func TestARequestThatArrivesLateChangesNothing(t *testing.T) {
	through(t, func(t *testing.T, s *server, p *proxy, locks *mortise.Locks) {
		if lock, _, err := locks.Lock(background, "first"); err != nil || lock.Unlock() != nil {
			t.Fatal(err)
		}
		p.breaks("LOCK.WLOCK", later)
		lock, _, err := locks.Lock(background, "k", mortise.Lease(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the first name has left", func() bool { return s.calls("lock.leave") > 0 })
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		asked := s.calls("lock.wlock")
		close(p.release)
		eventually(t, "it arrived", func() bool { return s.calls("lock.wlock") > asked })
		if !s.free("k") {
			t.Fatal("a late request was granted")
		}
	})
}

func TestAWaiterIsGrantedThoughItsMailConnectionBreaksRepeatedly(t *testing.T) {
	through(t, func(t *testing.T, s *server, p *proxy, locks *mortise.Locks) {
		first, _, err := locks.Lock(background, "k")
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan error)
		go func() { _, _, err := locks.Lock(background, "k", mortise.Wait(time.Minute)); granted <- err }()
		eventually(t, "it waits", func() bool { return s.waiters("k") == 1 })
		for range 3 {
			before := s.calls("lock.mail")
			p.cut()
			eventually(t, "it asks anew", func() bool { return s.calls("lock.mail") > before })
		}
		p.breaks("LOCK.MAIL", after)
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
	})
}

func TestAWaiterIsGrantedAfterARestartOfTheServer(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		_, held, err := locks.Lock(background, "k", mortise.Lease(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan error)
		go func() { _, _, err := locks.Lock(background, "k"); granted <- err }()
		eventually(t, "it waits", func() bool { return s.waiters("k") == 1 })
		s.kill()
		s.run()
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		<-held.Done()
		if context.Cause(held) != mortise.ErrLost {
			t.Fatal(context.Cause(held))
		}
	})
}

func TestALockIsTakenOnceTheReplicaAtItsAddressIsAPrimary(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		s.do("REPLICAOF", "127.0.0.1", "1")
		taken := make(chan error)
		go func() {
			_, _, err := connect().Lock(background, "k", mortise.Wait(10*time.Second))
			taken <- err
		}()
		eventually(t, "it is refused", func() bool { return strings.Contains(s.Info(background, "errorstats").Val(), "READONLY") })
		s.do("REPLICAOF", "NO", "ONE")
		if err := <-taken; err != nil {
			t.Fatal(err)
		}
	})
}

func TestNothingIsLeftThatCouldNotBeSent(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		s.kill()
		if _, _, err := locks.Lock(background, "k", mortise.Wait(time.Second)); err == nil {
			t.Fatal("it is held")
		}
		s.run()
		time.Sleep(time.Second) // a name is left twice a second
		if lock, _, err := locks.Lock(background, "k"); err != nil || lock.Unlock() != nil {
			t.Fatal(err)
		}
		if n := s.calls("lock.leave"); n != 0 {
			t.Fatal(n, "names were left")
		}
	})
}

func TestALockIsLostAtItsDeadlineWhenTheServerDoesNotReply(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		lock, held, err := connect().Lock(background, "k", mortise.Lease(500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer s.freeze()()
		<-held.Done()
		if _, err := lock.Check(); err != mortise.ErrLost {
			t.Fatal(err)
		}
	})
}

func TestAGrantThatArrivesTooLateIsNotUsed(t *testing.T) {
	through(t, func(t *testing.T, s *server, p *proxy, locks *mortise.Locks) {
		s.do("LOCK.WLOCK", "k", "somebody", 600_000)
		granted := make(chan *mortise.Lock)
		go func() {
			lock, _, err := locks.Lock(background, "k", mortise.Lease(time.Second))
			if err != nil {
				t.Error(err)
			}
			granted <- lock
		}()
		eventually(t, "it waits", func() bool { return s.waiters("k") == 1 })
		p.replies.Lock()
		s.do("LOCK.RELEASE", "k", "somebody")
		eventually(t, "it was granted, and is over", func() bool { return s.free("k") })
		p.replies.Unlock()
		lock := <-granted
		if _, err := lock.Check(); err != nil || s.free("k") {
			t.Fatal("an expired lock was returned:", err)
		}
	})
}

func TestAWaiterWhoseBoxWasClosedAsksAgain(t *testing.T) {
	through(t, func(t *testing.T, s *server, p *proxy, locks *mortise.Locks) {
		s.do("LOCK.WLOCK", "k", "somebody", 600_000)
		granted := make(chan error)
		go func() { _, _, err := locks.Lock(background, "k", mortise.Wait(time.Minute)); granted <- err }()
		eventually(t, "it waits", func() bool { return s.waiters("k") == 1 })
		s.do("CONFIG", "SET", "lock.mail-timeout", 100)
		p.requests.Lock()
		eventually(t, "its box is gone", func() bool { return s.waiters("k") == 0 })
		s.do("CONFIG", "SET", "lock.mail-timeout", 5000)
		p.requests.Unlock()
		eventually(t, "it waits again", func() bool { return s.waiters("k") == 1 })
		s.do("LOCK.RELEASE", "k", "somebody")
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
	})
}

func TestAWaiterThatGaveUpOverASilentConnectionIsNotGrantedLater(t *testing.T) {
	through(t, func(t *testing.T, s *server, p *proxy, locks *mortise.Locks) {
		if lock, _, err := locks.Lock(background, "first"); err != nil || lock.Unlock() != nil {
			t.Fatal(err)
		}
		s.do("LOCK.WLOCK", "k", "somebody", 600_000)
		p.replies.Lock()
		if _, _, err := locks.Lock(background, "k", mortise.Wait(300*time.Millisecond), mortise.Lease(time.Hour)); err == nil {
			t.Fatal("it was granted")
		}
		p.replies.Unlock()
		eventually(t, "nobody waits", func() bool { return s.waiters("k") == 0 })
		s.do("LOCK.RELEASE", "k", "somebody")
		if !s.free("k") {
			t.Fatal("an orphan was granted")
		}
	})
}

func TestCancellingAtAnyMomentLeavesNothing(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		for range 40 {
			ctx, cancel := context.WithCancel(background)
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					lock, _, err := locks.Lock(ctx, "k", mortise.Lease(time.Hour))
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						return
					}
					time.Sleep(rand.N(2 * time.Millisecond))
					if err := lock.Unlock(); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(rand.N(10 * time.Millisecond))
			cancel()
			all.Wait()
		}
		eventually(t, "nobody holds or waits", func() bool { return s.free("k") })
	})
}

func TestClosingUnlocksAllLocksAndEndsAllWaits(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks, others := connect(), connect()
		if _, _, err := others.Lock(background, "theirs"); err != nil {
			t.Fatal(err)
		}
		var ended sync.WaitGroup
		for range 20 {
			ended.Go(func() {
				if _, _, err := locks.Lock(background, "theirs"); err != mortise.ErrClosed {
					t.Error(err)
				}
			})
		}
		_, held, err := locks.Lock(background, "mine")
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "all wait", func() bool { return s.waiters("theirs") == 20 })
		if err := locks.Close(background); err != nil {
			t.Fatal(err)
		}
		ended.Wait()
		if !s.free("mine") || s.waiters("theirs") != 0 || held.Err() == nil {
			t.Fatal("something is left")
		}
		if _, _, err := locks.Lock(background, "mine"); err != mortise.ErrClosed {
			t.Fatal(err)
		}
	})
}

func TestAnUnreachableServerIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	locks := mortise.New(goredisconn.New(rdb))
	if _, _, err := locks.Lock(background, "k"); err == nil || errors.Is(err, mortise.ErrBusy) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	_ = locks.Close(ctx)
}

func TestWhatIsAskedForIsSentAtOnceThoughTheContextHasEnded(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		lock, _, err := locks.Lock(background, "k")
		if err != nil || lock.Unlock() != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(background)
		cancel()
		for range 10 {
			_, _ = locks.Revoke(ctx, "k", "nobody")
		}
		eventually(t, "all are sent", func() bool { return s.calls("lock.revoke") == 10 })
	})
}
