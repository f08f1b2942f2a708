package mortise_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	mortise "mortise.example/mortise/helpers/go"
	"mortise.example/mortise/helpers/go/goredisconn"
)

// A lock whose process is killed or stopped, or closes at the wrong moment.

// TestHolder is no test but the process that the others stop: it holds the lock, and replies to each line with what it believes.
func TestHolder(t *testing.T) {
	addr := os.Getenv("MORTISE_TEST_HOLDER")
	if addr == "" {
		t.Skip("only as a process of another test")
	}
	locks := mortise.New(goredisconn.New(redis.NewClient(&redis.Options{Addr: addr})))
	lock, _, err := locks.Lock(background, "k", mortise.Lease(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for asked := bufio.NewScanner(os.Stdin); ; {
		_, err := lock.Check()
		fmt.Println(lock.Token(), err == nil)
		if !asked.Scan() {
			return
		}
	}
}

type holder struct {
	*exec.Cmd
	ask  func()
	said *bufio.Scanner
}

// hold starts a process that holds the lock, and returns its token.
func hold(t *testing.T, s *server) (h holder, token int64) {
	h.Cmd = exec.Command(os.Args[0], "-test.run=^TestHolder$")
	h.Env = append(os.Environ(), "MORTISE_TEST_HOLDER="+s.addr)
	in, _ := h.StdinPipe()
	out, _ := h.StdoutPipe()
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Process.Kill(); _ = h.Wait() })
	h.ask, h.said = func() { _, _ = fmt.Fprintln(in) }, bufio.NewScanner(out)
	token, held := h.answer(t)
	if !held {
		t.Fatal("it does not hold the lock")
	}
	return h, token
}

func (h holder) answer(t *testing.T) (token int64, held bool) {
	if h.said.Scan(); h.said.Err() != nil {
		t.Fatal(h.said.Err())
	}
	_, err := fmt.Sscan(h.said.Text(), &token, &held)
	if err != nil {
		t.Fatal(h.said.Text(), err)
	}
	return token, held
}

func TestTheLockOfAKilledHolderIsFreeWhenItsLeaseIsOver(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		h, token := hold(t, s)
		_ = h.Process.Kill()
		lock, _, err := connect().Lock(background, "k", mortise.Wait(time.Minute))
		if err != nil || lock.Token() <= token {
			t.Fatal(err)
		}
	})
}

func TestAHolderStoppedForLongerThanItsLeaseKnowsThatItHasLostTheLock(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		h, token := hold(t, s)
		signal(t, h.Process, "STOP")
		lock, held, err := connect().Lock(background, "k", mortise.Wait(time.Minute))
		if err != nil || lock.Token() <= token {
			t.Fatal(err)
		}
		h.ask()
		signal(t, h.Process, "CONT")
		if _, believes := h.answer(t); believes {
			t.Fatal("it believes in a lock that another owner holds")
		}
		eventually(t, "it has said that it has left", func() bool { return s.calls("lock.leave") > 0 })
		if _, err := lock.Check(); err != nil || held.Err() != nil {
			t.Fatal("it released the lock of another owner:", err)
		}
	})
}

func TestClosingAtTheMomentOfAGrantLeavesNothing(t *testing.T) {
	each(t, nil, func(t *testing.T, s *server, connect func() *mortise.Locks) {
		locks := connect()
		for range 30 {
			first, _, err := locks.Lock(background, "k")
			if err != nil {
				t.Fatal(err)
			}
			others, ended := connect(), make(chan error)
			go func() {
				_, held, err := others.Lock(background, "k", mortise.Lease(time.Hour))
				if err == nil { // just granted, and taken back by Close
					<-held.Done()
					err = context.Cause(held)
				}
				ended <- err
			}()
			eventually(t, "it waits", func() bool { return s.waiters("k") == 1 })
			var both sync.WaitGroup
			both.Go(func() { _ = first.Unlock() })
			both.Go(func() { _ = others.Close(background) })
			both.Wait()
			if err := <-ended; !errors.Is(err, mortise.ErrClosed) && err != mortise.ErrUnlocked {
				t.Fatal(err)
			}
			eventually(t, "it is free", func() bool { return s.free("k") })
		}
	})
}

func TestAServerThatAcceptsConnectionsAndNeverRepliesBlocksNobody(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks := mortise.New(goredisconn.New(redis.NewClient(&redis.Options{Addr: s.addr})))
	defer closeSoon(locks)
	defer s.freeze()()
	ctx, cancel := context.WithTimeout(background, 30*time.Second)
	defer cancel()
	if _, _, err := locks.Lock(ctx, "k", mortise.Wait(300*time.Millisecond)); err == nil || ctx.Err() != nil {
		t.Fatal(err)
	}
}
