package mortise_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"mortise"
	"mortise/goredisconn"
	"mortise/rueidisconn"
)

// Each trap of calling the commands by hand is a test here.

func TestAWaitOutlivesTheReadTimeoutOfTheProgramsClient(t *testing.T) {
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
		t.Fatal(err) // over the same connection: what was answered before has been read
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

func TestAStarvedPoolDoesNotStopARelease(t *testing.T) {
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

func TestADeadlineLeavesNobodyInTheQueue(t *testing.T) {
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

func TestCancellingEndsAWaitForAServerThatDoesNotAnswer(t *testing.T) {
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

func TestAWaitOfLessThanAMillisecondIsNotOneForEver(t *testing.T) {
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

func TestALockIsFreeThoughTheConnectionBrokeOnItsRelease(t *testing.T) {
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

func TestALostReplyLeavesNoHoldBehind(t *testing.T) {
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
			t.Fatal("what came late was granted")
		}
	})
}

func TestAWaiterIsServedThoughItsMailBreaksAgainAndAgain(t *testing.T) {
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

func TestAWaiterIsServedByAServerThatWasStartedAnew(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		_, held, err := locks.Lock(background, "k", mortise.Lease(time.Second))
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

func TestALockIsLostAtItsDeadlineWhereTheServerDoesNotAnswer(t *testing.T) {
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

func TestClosingUnlocksAllAndEndsAllThatWait(t *testing.T) {
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
			t.Fatal("something stayed behind")
		}
		if _, _, err := locks.Lock(background, "mine"); err != mortise.ErrClosed {
			t.Fatal(err)
		}
	})
}

func TestTasksThatWaitForEachOtherAreToldOfTheDeadlock(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		take := func(task, key string) error {
			_, _, err := locks.Lock(background, key, mortise.Task(task), mortise.Wait(10*time.Second))
			return err
		}
		if err := errors.Join(take("one", "a"), take("two", "b")); err != nil {
			t.Fatal(err)
		}
		go take("one", "b")
		eventually(t, "it waits", func() bool { return s.waiters("b") == 1 })
		if err := take("two", "a"); !mortise.IsDeadlock(err) {
			t.Fatal(err)
		}
	})
}

func TestReadersAreInTogetherAndAWriterAlone(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		one, _, err := locks.RLock(background, "k")
		two, _, err2 := locks.TryRLock(background, "k")
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if _, _, err := locks.TryLock(background, "k"); err != mortise.ErrBusy {
			t.Fatal(err)
		}
		if err := errors.Join(one.Unlock(), two.Unlock()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := locks.TryLock(background, "k"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestALockIsHeldForMaxHoldAtMost(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		_, held, err := connect().Lock(background, "k", mortise.MaxHold(300*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		<-held.Done()
		eventually(t, "it is free", func() bool { return s.free("k") })
	})
}

func TestAServerThatIsNotThereIsAnErrorAtOnce(t *testing.T) {
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

// proxy is between a client and the server, and breaks what it is told to.
type proxy struct {
	net.Listener
	to      string
	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	word    []byte
	when    int
	broken  atomic.Int64
	release chan struct{}
}

const (
	before = iota // the connection breaks, the command is lost
	after         // the command arrives, its reply is lost
	later         // the connection breaks, the command arrives after release is closed
)

// breaks has the next command with that word broken, once.
func (p *proxy) breaks(word string, when int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word, p.when = []byte(word), when
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) hit(chunk []byte) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.word == nil || !bytes.Contains(chunk, p.word) {
		return 0, false
	}
	p.word = nil
	p.broken.Add(1)
	return p.when, true
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client] = struct{}{}
	p.mu.Unlock()
	var mute atomic.Bool
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				break
			}
			if mute.Load() {
				_ = client.Close()
				continue
			}
			_, _ = client.Write(buffer[:n])
		}
		_ = client.Close()
	}()
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			break
		}
		when, hit := p.hit(buffer[:n])
		switch {
		case hit && when == before:
			_ = client.Close()
			return
		case hit && when == later:
			_ = client.Close()
			<-p.release
		case hit:
			mute.Store(true)
		}
		_, _ = server.Write(buffer[:n])
		if hit && when == later {
			time.Sleep(100 * time.Millisecond) // let it be read before the connection goes
		}
	}
	if mute.Load() {
		time.Sleep(100 * time.Millisecond)
	}
}

// through runs the test with each client, through a proxy.
func through(t *testing.T, test func(t *testing.T, s *server, p *proxy, locks *mortise.Locks)) {
	for _, name := range []string{"go-redis", "rueidis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p := &proxy{Listener: l, to: s.addr, conns: map[net.Conn]struct{}{}, release: make(chan struct{})}
			defer p.Close()
			go func() {
				for {
					c, err := p.Accept()
					if err != nil {
						return
					}
					go p.serve(c)
				}
			}()
			addr := l.Addr().String()
			var client mortise.Client
			if name == "go-redis" {
				rdb := redis.NewClient(&redis.Options{Addr: addr})
				defer rdb.Close()
				client = goredisconn.New(rdb)
			} else if client, err = rueidisconn.New(rueidis.ClientOption{InitAddress: []string{addr}}); err != nil {
				t.Fatal(err)
			}
			locks := mortise.New(client)
			defer func() {
				ctx, cancel := context.WithTimeout(background, 5*time.Second)
				defer cancel()
				_ = locks.Close(ctx)
			}()
			test(t, s, p, locks)
		})
	}
}
