package mortise_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mortise "mortise.example/mortise/helpers/go"
)

var background = context.Background()

func TestALockKeepsOthersOutUntilItIsUnlocked(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		first, held, err := locks.Lock(background, "stock:17")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := locks.TryLock(background, "stock:17"); err != mortise.ErrBusy {
			t.Fatalf("a second request: %v", err)
		}
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}
		if !s.free("stock:17") || context.Cause(held) != mortise.ErrUnlocked {
			t.Fatalf("after unlocking: free %v, context %v", s.free("stock:17"), context.Cause(held))
		}
		second, _, err := locks.TryLock(background, "stock:17")
		if err != nil || second.Token() <= first.Token() {
			t.Fatalf("the next request: %v, tokens %d and %d", err, first.Token(), second.Token())
		}
	})
}

func TestWaitersAreGrantedOneAfterTheOtherOverTwoConnections(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		var inside, last atomic.Int64
		var done sync.WaitGroup
		for range 200 {
			done.Go(func() {
				for range 5 {
					lock, _, err := locks.Lock(background, "k", mortise.Lease(10*time.Second))
					if err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two are inside")
					}
					if before := last.Swap(lock.Token()); before >= lock.Token() {
						t.Errorf("token %d came after %d", lock.Token(), before)
					}
					inside.Add(-1)
					if err := lock.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		done.Wait()
		if n := s.info("connected_clients"); n > "4" {
			t.Errorf("%s connections", n)
		}
		eventually(t, "it is free", func() bool { return s.free("k") })
	})
}

func TestEndingTheContextEndsTheWaitAndLeavesNothing(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		first, _, err := locks.Lock(background, "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(background)
		ended := make(chan error)
		go func() { _, _, err := locks.Lock(ctx, "k"); ended <- err }()
		eventually(t, "it waits", func() bool { return s.waiters("k") == 1 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		eventually(t, "nobody waits", func() bool { return s.waiters("k") == 0 })
		if err := first.Unlock(); err != nil || !s.free("k") {
			t.Fatal(err, "or it is not free")
		}
	})
}

// deadline is a context whose deadline passes when the test closes passed.
type deadline struct {
	context.Context
	passed chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestADeadlineThatPassesWhileAnotherHoldsTheLockReportsBoth(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		if _, _, err := locks.Lock(background, "k"); err != nil {
			t.Fatal(err)
		}
		ctx, ended := deadline{background, make(chan struct{})}, make(chan error)
		go func() { _, _, err := locks.Lock(ctx, "k"); ended <- err }()
		eventually(t, "it knows that it waits", func() bool { return s.info("blocked_clients") == "1" })
		close(ctx.passed)
		if err := <-ended; !errors.Is(err, mortise.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

func TestTheErrorKeepsTheCauseOfTheContextsEnd(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		if _, _, err := locks.Lock(background, "other"); err != nil {
			t.Fatal(err)
		}
		shutdown := errors.New("the program is told to end")
		ctx, cancel := context.WithCancelCause(background)
		cancel(shutdown)
		defer s.freeze()()
		_, _, err := locks.Lock(ctx, "k")
		if !errors.Is(err, shutdown) || !errors.Is(err, context.Canceled) || errors.Is(err, mortise.ErrBusy) {
			t.Fatal(err)
		}
	})
}

// As with errgroup, whose first error ends the context of all others.
func TestARequestThatAnothersErrorCancelsLeavesTheQueue(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		if _, _, err := locks.Lock(background, "k"); err != nil {
			t.Fatal(err)
		}
		for i, other := range []error{mortise.NewRefused("DEADLOCK of another task"), &net.OpError{Op: "dial", Err: errors.New("no route")}} {
			ctx, cancel := context.WithCancelCause(background)
			waited := make(chan error)
			go func() {
				_, _, err := locks.Lock(ctx, "k", mortise.Wait(time.Minute))
				waited <- err
			}()
			eventually(t, "it waits", func() bool { return s.waiters("k") == 1 })
			cancel(other)
			if err := <-waited; !errors.Is(err, other) || !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			eventually(t, "its name leaves", func() bool { return s.calls("lock.leave") == i+1 })
			eventually(t, "nobody waits", func() bool { return s.waiters("k") == 0 })
		}
	})
}

func TestDeletingALockCancelsItsContext(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		lock, held, err := connect().Lock(background, "k", mortise.Lease(300*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		s.do("DEL", "k")
		<-held.Done()
		if context.Cause(held) != mortise.ErrLost || lock.Unlock() != mortise.ErrLost {
			t.Fatal(context.Cause(held), lock.Unlock())
		}
	})
}

func TestALockThatIsOverwrittenIsLost(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		lock, _, err := locks.Lock(background, "k")
		if err != nil {
			t.Fatal(err)
		}
		s.do("SET", "k", "x")
		if err := lock.Unlock(); err != mortise.ErrLost {
			t.Fatal("unlocking answered", err)
		}
		_, held, err := locks.Lock(background, "j", mortise.Lease(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		s.do("CONFIG", "RESETSTAT")
		s.do("SET", "j", "x")
		<-held.Done()
		if refused := s.info("errorstat_WRONGTYPE"); refused != "count=1" || context.Cause(held) != mortise.ErrLost {
			t.Fatalf("%v, after renewals that were refused: %s", context.Cause(held), refused)
		}
	})
}

func TestALockIsRenewedForAsLongAsItIsHeld(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		lock, held, err := connect().Lock(background, "k", mortise.Lease(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is renewed for longer than its lease", func() bool { return s.calls("lock.renew") > 3 })
		if held.Err() != nil || lock.Unlock() != nil {
			t.Fatal("it was lost")
		}
	})
}

func TestAKeyThatIsNoLockIsAnErrorAtOnce(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		s.do("SET", "k", "old")
		var refused *mortise.Refused
		if _, _, err := connect().Lock(background, "k"); !errors.As(err, &refused) || refused.Code != "WRONGTYPE" {
			t.Fatal(err)
		}
	})
}

func TestTheErrorOfTheWorkIsReturnedWithTheLoss(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks, mine := connect(), errors.New("mine")
		lose := func(err error) func(context.Context, *mortise.Lock) error {
			return func(ctx context.Context, lock *mortise.Lock) error {
				if token, checked := lock.Check(); checked != nil || token != lock.Token() || ctx.Err() != nil {
					t.Error(checked, ctx.Err())
				}
				s.do("DEL", "k")
				return err
			}
		}
		if err := locks.Run(background, "k", lose(mine)); !errors.Is(err, mine) || !errors.Is(err, mortise.ErrLost) {
			t.Fatal(err)
		}
		if err := locks.Run(background, "k", lose(nil)); !errors.Is(err, mortise.ErrLost) {
			t.Fatal(err)
		}
		work := func(context.Context, *mortise.Lock) error { return mine }
		if err := locks.Run(background, "k", work); err != mine || !s.free("k") {
			t.Fatal(err)
		}
	})
}

func TestAGuardedCommandRunsOnlyWhileTheLockIsHeld(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		lock, held, err := connect().Lock(background, "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Do(held, lock.Guard("SET", "stock", 5)...).Err(); err != nil || s.do("GET", "stock") != "5" {
			t.Fatal(err)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		err = s.Do(background, lock.Guard("SET", "stock", 6)...).Err()
		if err == nil || !strings.HasPrefix(err.Error(), "NOTHELD") || s.do("GET", "stock") != "5" {
			t.Fatal(err)
		}
	})
}

func TestADeadlockBetweenTasksIsReported(t *testing.T) {
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

func TestReadersShareTheLockAndAWriterHoldsItAlone(t *testing.T) {
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

func TestImpossibleTimesAreRefusedByName(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		for _, refused := range []struct {
			option mortise.Option
			says   string
		}{
			{mortise.Lease(2 * time.Millisecond), "Lease must be at least 3ms, got 2ms"},
			{mortise.Lease(0), "Lease must be at least 3ms, got 0s"},
			{mortise.Lease(-time.Minute), "Lease must be at least 3ms, got -1m0s"},
			{mortise.MaxHold(0), "MaxHold must be at least 1ms, got 0s"},
			{mortise.MaxHold(-time.Second), "MaxHold must be at least 1ms, got -1s"},
		} {
			if _, _, err := locks.Lock(ctx, "k", refused.option); err == nil || err.Error() != "mortise: "+refused.says {
				t.Errorf("instead of %q: %v", refused.says, err)
			}
		}
		if n := s.calls("lock.wlock"); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
		lock, _, err := locks.Lock(background, "k", mortise.Wait(-time.Second)) // asks once
		if err != nil || lock.Unlock() != nil {
			t.Error(err)
		}
	})
}
