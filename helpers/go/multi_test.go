package mortise_test

import (
	"context"
	"errors"
	"testing"
	"time"

	mortise "mortise.example/mortise/helpers/go"
)

func TestSeveralLocksAreAcquiredAtOnceByOneTokenAndReleasedTogether(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		several, held, err := locks.LockAll(background, []string{"a", "b", "c"})
		if err != nil || held.Err() != nil {
			t.Fatal(err)
		}
		for _, key := range several.Keys() {
			if _, _, err := locks.TryLock(background, key); err != mortise.ErrBusy || s.holds(key)[0]["token"] != several.Token() {
				t.Fatal(key, err)
			}
		}
		if token, err := several.Check(); err != nil || token != several.Token() {
			t.Fatal(err)
		}
		if err := several.Unlock(); err != nil || context.Cause(held) != mortise.ErrUnlocked {
			t.Fatal(err, context.Cause(held))
		}
		for _, key := range []string{"a", "b", "c"} {
			if !s.free(key) {
				t.Fatal(key, "is not free")
			}
		}
		if _, _, err := locks.LockAll(background, nil); err == nil {
			t.Fatal("a request without keys was not refused")
		}
	})
}

func TestAWaiterForSeveralLocksHoldsNoneAndIsGrantedAllWhenTheLastIsFree(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		b, _, err := locks.Lock(background, "b")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := locks.TryLockAll(background, []string{"a", "b"}); err != mortise.ErrBusy {
			t.Fatal(err)
		}
		taken := make(chan *mortise.Lock)
		go func() {
			several, _, err := locks.LockAll(background, []string{"a", "b"})
			if err != nil {
				t.Error(err)
			}
			taken <- several
		}()
		eventually(t, "it waits", func() bool { return s.waiters("a") == 1 })
		if holds := s.holds("a"); len(holds) != 0 {
			t.Fatal("it holds a key that it waits for:", holds)
		}
		if err := b.Unlock(); err != nil {
			t.Fatal(err)
		}
		several := <-taken
		if several == nil || several.Token() <= b.Token() {
			t.Fatal("not taken, or by an old token")
		}
		if err := several.Unlock(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestEachOfSeveralLocksIsRenewedAndTheLossOfOneEndsTheContext(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		several, held, err := locks.LockAll(background, []string{"a", "b"}, mortise.Lease(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		before := s.calls("lock.renew")
		eventually(t, "both are renewed", func() bool { return s.calls("lock.renew") >= before+4 })
		if held.Err() != nil {
			t.Fatal(context.Cause(held))
		}
		s.do("DEL", "b")
		<-held.Done()
		if _, err := several.Check(); context.Cause(held) != mortise.ErrLost || err != mortise.ErrLost {
			t.Fatal(context.Cause(held), err)
		}
		if err := several.Unlock(); err != mortise.ErrLost {
			t.Fatal(err)
		}
		eventually(t, "the other one is left", func() bool { return s.free("a") })
	})
}

func TestSeveralLocksAreKeptTogetherButNotPassedOn(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		keys := []string{"a", "b"}
		several, _, err := locks.LockAll(background, keys)
		if err != nil {
			t.Fatal(err)
		}
		if token, err := several.PassTo(background, "job", time.Minute); err == nil || token != 0 || s.calls("lock.pass") != 0 {
			t.Fatal("several locks were passed on:", token, err)
		}
		if _, err := several.Check(); err != nil {
			t.Fatal(err)
		}
		if err := several.KeepFor(background, time.Hour); err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if left := s.holds(key)[0]["lease"].(int64); left < 3_500_000 {
				t.Fatal(key, "is kept for", left)
			}
		}
	})
}

func TestSeveralLocksOfWhichOneIsGoneAreNotKept(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		several, held, err := connect().LockAll(background, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		s.do("DEL", "b")
		if err := several.KeepFor(background, time.Hour); err != mortise.ErrLost || context.Cause(held) != mortise.ErrLost {
			t.Fatal(err, context.Cause(held))
		}
		eventually(t, "the other one is free", func() bool { return s.free("a") })
	})
}

func TestACancelledWaitForSeveralLocksLeavesEveryQueue(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		b, _, err := locks.Lock(background, "b")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(background)
		waited := make(chan error)
		go func() {
			_, _, err := locks.LockAll(ctx, []string{"a", "b", "c"})
			waited <- err
		}()
		eventually(t, "it waits", func() bool { return s.waiters("c") == 1 })
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		eventually(t, "nobody waits", func() bool { return s.waiters("b") == 0 && s.free("a") && s.free("c") })
		if err := b.Unlock(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAnAcquireOfSeveralLocksWhoseReplyIsLostLeavesNoneTaken(t *testing.T) {
	through(t, func(t *testing.T, s *server, p *proxy, locks *mortise.Locks) {
		warm, _, err := locks.Lock(background, "warm")
		if err != nil {
			t.Fatal(err)
		}
		if err := warm.Unlock(); err != nil {
			t.Fatal(err)
		}
		p.breaks("LOCK.MACQUIRE", after)
		several, _, err := locks.LockAll(background, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "one owner has both", func() bool { return len(s.holds("a")) == 1 && len(s.holds("b")) == 1 })
		if err := several.Unlock(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "nothing is left", func() bool { return s.free("a") && s.free("b") })
	})
}
