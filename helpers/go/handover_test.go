package mortise_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mortise "mortise.example/mortise/helpers/go"
)

// holds returns the key's holds from LOCK.INFO.
func (s *server) holds(key string) (holds []map[any]any) {
	reply, _ := s.Do(background, "LOCK.INFO", key).Result()
	info, _ := reply.(map[any]any)
	list, _ := info["holds"].([]any)
	for _, hold := range list {
		holds = append(holds, hold.(map[any]any))
	}
	return holds
}

// owner returns the key's only owner.
func (s *server) owner(key string) string {
	holds := s.holds(key)
	if len(holds) != 1 {
		s.t.Fatalf("%d hold %s", len(holds), key)
	}
	return holds[0]["owner"].(string)
}

func TestALockIsPassedOnAndOneOfTwoRunnersTakesItOver(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		lock, held, err := locks.Lock(background, "import")
		if err != nil {
			t.Fatal(err)
		}
		token, err := lock.PassTo(background, "job:7", 10*time.Minute)
		if err != nil || token <= lock.Token() || context.Cause(held) != mortise.ErrPassed || s.owner("import") != "job:7" {
			t.Fatalf("%v, tokens %d and %d, %v", err, lock.Token(), token, context.Cause(held))
		}
		if err := lock.Unlock(); err != nil || s.owner("import") != "job:7" {
			t.Fatal("unlocking a lock that was passed on:", err)
		}
		runner, held, err := locks.TakeOver(background, "import", "job:7", token)
		if err != nil || runner.Token() <= token || held.Err() != nil {
			t.Fatal(err)
		}
		if _, _, err := locks.TakeOver(background, "import", "job:7", token); err != mortise.ErrLost {
			t.Fatal("a second runner:", err)
		}
		if err := runner.Unlock(); err != nil || !s.free("import") {
			t.Fatal(err)
		}
	})
}

func TestALockThatWasTakenOverIsRenewed(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		lock, _, err := locks.Lock(background, "job")
		if err != nil {
			t.Fatal(err)
		}
		token, err := lock.PassTo(background, "queue", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		runner, _, err := locks.TakeOver(background, "job", "queue", token, mortise.Lease(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		before := s.calls("lock.renew")
		eventually(t, "it is renewed", func() bool { return s.calls("lock.renew") >= before+2 })
		if err := runner.Unlock(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestALockWhosePassIsRefusedStaysHeldAndRenewed(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		lock, held, err := connect().Lock(background, "job", mortise.Lease(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		s.Do(background, "LOCK.LEAVE", "job", "gone", "FOR", 60_000)
		var refused *mortise.Refused
		if _, err := lock.PassTo(background, "gone", time.Minute); !errors.As(err, &refused) || refused.Code != "LEFT" {
			t.Fatal(err)
		}
		before := s.calls("lock.renew")
		eventually(t, "it is renewed", func() bool { return s.calls("lock.renew") >= before+2 })
		if err := lock.Unlock(); err != nil || context.Cause(held) != mortise.ErrUnlocked {
			t.Fatal(err, context.Cause(held))
		}
		if _, err := lock.PassTo(background, "queue", time.Minute); err != mortise.ErrUnlocked {
			t.Fatal("an unlocked lock was passed on:", err)
		}
	})
}

func TestALockStaysTakenForAWhileAfterShortWork(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		lock, held, err := locks.Lock(background, "report", mortise.Holder("billing-7"))
		if err != nil {
			t.Fatal(err)
		}
		owner := s.owner("report")
		if !strings.HasPrefix(owner, "billing-7:") {
			t.Fatal("people see", owner)
		}
		if err := lock.KeepFor(background, 400*24*time.Hour); !isRefused(err) || lock.Key() != "report" || s.owner("report") != owner {
			t.Fatal("longer than the server allows:", err)
		}
		if err := lock.KeepFor(background, 3*time.Second); err != nil || context.Cause(held) != mortise.ErrUnlocked || s.owner("report") == owner {
			t.Fatal(err, context.Cause(held))
		}
		if _, _, err := locks.TryLock(background, "report"); err != mortise.ErrBusy {
			t.Fatal(err)
		}
		if lock, _, err = locks.Lock(background, "report"); err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(); err != nil || !s.free("report") {
			t.Fatal(err)
		}
	})
}

func isRefused(err error) bool {
	var refused *mortise.Refused
	return errors.As(err, &refused)
}

func TestALockThatAnotherProgramTookIsResumedUnderItsName(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		token := s.do("LOCK.ACQUIRE", "import", "job:7", 600_000).(int64)
		locks := connect()
		if _, _, err := locks.Resume(background, "import", "job:7", token+1); err != mortise.ErrLost {
			t.Fatal(err)
		}
		lock, held, err := locks.Resume(background, "import", "job:7", token, mortise.Lease(3*time.Second))
		if err != nil || lock.Token() != token || held.Err() != nil || s.owner("import") != "job:7" {
			t.Fatal(err)
		}
		before := s.calls("lock.renew")
		eventually(t, "it is renewed", func() bool { return s.calls("lock.renew") > before })
		if err := lock.Unlock(); err != nil || !s.free("import") {
			t.Fatal(err)
		}
	})
}

func TestARevokedHolderNoticesAtItsNextRenewalAndLeaves(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		lock, held, err := locks.Lock(background, "stock", mortise.Lease(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if left, err := locks.Revoke(background, "stock", "nobody"); err != nil || left != 0 {
			t.Fatal(left, err)
		}
		if left, err := locks.Revoke(background, "stock", s.owner("stock")); err != nil || left <= 0 || left > 3*time.Second {
			t.Fatal(left, err)
		}
		<-held.Done()
		if context.Cause(held) != mortise.ErrLost || lock.Unlock() != mortise.ErrLost {
			t.Fatal(context.Cause(held))
		}
		eventually(t, "it is free", func() bool { return s.free("stock") })
	})
}

func TestARevokedLockIsFreeWhenItIsUnlocked(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		lock, _, err := locks.Lock(background, "report", mortise.Lease(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if left, err := locks.Revoke(background, "report", ""); err != nil || left < 50*time.Second {
			t.Fatal(left, err)
		}
		if err := lock.Unlock(); err != nil || !s.free("report") {
			t.Fatal(err)
		}
	})
}

func TestImpossibleOptionsAreRefused(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		for _, option := range []mortise.Option{mortise.Holder("a##b")} {
			if _, _, err := locks.Lock(background, "k", option); err == nil || !strings.HasPrefix(err.Error(), "mortise: ") {
				t.Fatal(err)
			}
		}
		for _, limit := range []int{0, -1, 1 << 40} {
			if _, _, err := locks.Semaphore("k", limit).Acquire(background, 1); err == nil {
				t.Fatal("a limit of", limit)
			}
		}
		for _, permits := range []int{0, -1, 4} {
			if _, _, err := locks.Semaphore("k", 3).Acquire(background, permits); err == nil {
				t.Fatal(permits, "of three")
			}
		}
	})
}

func TestNeverMorePermitsAreHeldThanThereAre(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		pool := connect().Semaphore("pool", 5)
		var inside, most atomic.Int64
		var done sync.WaitGroup
		for i := range 30 {
			permits := 1 + i%3
			done.Go(func() {
				lock, _, err := pool.Acquire(background, permits)
				if err != nil {
					t.Error(err)
					return
				}
				now := inside.Add(int64(permits))
				for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
				}
				time.Sleep(time.Millisecond)
				inside.Add(int64(-permits))
				if err := lock.Unlock(); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		if most.Load() > 5 || most.Load() < 4 {
			t.Error(most.Load(), "were inside")
		}
		if free, err := pool.Available(background); err != nil || free != 5 {
			t.Error(free, err)
		}
	})
}

func TestARequestForPermitsWaitsInTheQueueAndAWriterDrainsThePool(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		pool := locks.Semaphore("pool", 3)
		lock, _, err := pool.Acquire(background, 2)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *mortise.Lock)
		go func() { l, _, _ := pool.Acquire(background, 2); got <- l }()
		eventually(t, "it waits", func() bool { return s.waiters("pool") == 1 })
		if _, _, err := pool.TryAcquire(background, 1); err != mortise.ErrBusy {
			t.Fatal("a request overtook a waiter:", err)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		second := <-got
		go func() { l, _, _ := locks.Lock(background, "pool"); got <- l }()
		eventually(t, "the writer waits", func() bool { return s.waiters("pool") == 1 })
		if err := second.Unlock(); err != nil {
			t.Fatal(err)
		}
		if err := (<-got).Unlock(); err != nil || !s.free("pool") {
			t.Fatal(err)
		}
	})
}

func TestNoPermitIsAvailableWhileAWriterHoldsTheKey(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		lock, _, err := locks.Lock(background, "pool")
		if err != nil {
			t.Fatal(err)
		}
		if free, err := locks.Semaphore("pool", 3).Available(background); err != nil || free != 0 {
			t.Fatal(free, err)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		if free, err := locks.Semaphore("pool", 3).Available(background); err != nil || free != 3 {
			t.Fatal(free, err)
		}
		s.do("SET", "text", "no lock")
		if free, err := locks.Semaphore("text", 3).Available(background); err == nil || free != 0 {
			t.Fatal(free, err)
		}
	})
}

func TestAPassWhoseReplyIsLostFreesBothNamesAndSoDoesATakeover(t *testing.T) {
	through(t, func(t *testing.T, s *server, p *proxy, locks *mortise.Locks) {
		lock, held, err := locks.Lock(background, "job")
		if err != nil {
			t.Fatal(err)
		}
		p.breaks("LOCK.PASS", after)
		if token, err := lock.PassTo(background, "queue", time.Minute); err == nil || token != 0 {
			t.Fatal("nobody knows, and yet:", token)
		}
		eventually(t, "it is free", func() bool { return s.free("job") })
		if context.Cause(held) != mortise.ErrLost {
			t.Fatal(context.Cause(held))
		}
		token := s.do("LOCK.ACQUIRE", "job", "producer", 60_000).(int64)
		p.breaks("LOCK.PASS", after)
		if runner, _, err := locks.TakeOver(background, "job", "producer", token); err == nil {
			t.Fatal("nobody knows, and yet:", runner.Token())
		}
		eventually(t, "it is free", func() bool { return s.free("job") })
	})
}
