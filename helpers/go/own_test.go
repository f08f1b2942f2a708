package mortise

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// prompt is a connection to a server that answers at once.
type prompt struct{ tokens int64 }

func (p *prompt) Do(_ context.Context, commands [][]string) []any {
	replies := make([]any, len(commands))
	for i, words := range commands {
		if replies[i] = int64(0); words[0] != "LOCK.RELEASE" {
			p.tokens++
			replies[i] = p.tokens
		}
	}
	return replies
}

func (p *prompt) Close() {}

// promptClient connects to it.
type promptClient struct{}

func (promptClient) Node(context.Context, string) (string, error) { return "", nil }
func (promptClient) Refresh(context.Context)                      {}
func (promptClient) Connect(string, time.Duration) (Conn, error)  { return &prompt{}, nil }
func (promptClient) Close()                                       {}

// scripted is a client whose only server replies what the function returns.
type scripted func(words []string) any

func (s scripted) Do(_ context.Context, commands [][]string) []any {
	replies := make([]any, len(commands))
	for i, words := range commands {
		replies[i] = s(words)
	}
	return replies
}

func (s scripted) Node(context.Context, string) (string, error) { return "", nil }
func (s scripted) Refresh(context.Context)                      {}
func (s scripted) Connect(string, time.Duration) (Conn, error)  { return s, nil }
func (s scripted) Close()                                       {}

// What the library itself needs for an acquisition and a release.
func BenchmarkOwnTime(b *testing.B) {
	locks := New(promptClient{})
	defer locks.Close(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		lock, _, err := locks.Lock(context.Background(), "key")
		if err != nil {
			b.Fatal(err)
		}
		lock.Unlock()
	}
}

// ending is a context that may end at any time, though its Done does not tell.
type ending struct {
	context.Context
	ended atomic.Bool
}

func (e *ending) Err() error {
	if e.ended.Load() {
		return context.Canceled
	}
	return nil
}

// endsOnceAsked is a context that ends right after its error was read for the first time.
type endsOnceAsked struct{ ending }

func (e *endsOnceAsked) Err() error {
	defer e.ended.Store(true)
	return e.ending.Err()
}

func TestAContextThatEndsMeanwhileHasNotEndedOrHasAnError(t *testing.T) {
	locks := New(promptClient{})
	defer locks.Close(context.Background())
	ctx := &endsOnceAsked{ending{Context: context.Background()}}
	if err := locks.over(ctx); err != nil {
		t.Error(err)
	}
	if err := locks.over(ctx); err != context.Canceled {
		t.Error(err)
	}
}

func TestALockOfAnotherProgramThatIsNotResumedIsNotLeft(t *testing.T) {
	ctx := &ending{Context: context.Background()}
	var left atomic.Bool
	locks := New(scripted(func(words []string) any {
		switch words[0] {
		case "LOCK.RENEW":
			ctx.ended.Store(true)
			return int64(7)
		case "LOCK.LEAVE":
			left.Store(true)
		}
		return int64(1)
	}))
	if _, _, err := locks.Resume(ctx, "k", "theirs", 7); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := locks.Close(context.Background()); err != nil || left.Load() {
		t.Fatal(err, left.Load())
	}
}

func TestAHoldThatIsGoneIsNotBusyWhenTheContextEnds(t *testing.T) {
	ctx := &ending{Context: context.Background()}
	locks := New(scripted(func([]string) any {
		ctx.ended.Store(true)
		return nil
	}))
	defer locks.Close(context.Background())
	if _, _, err := locks.TakeOver(ctx, "k", "job", 7); !errors.Is(err, ErrLost) || !errors.Is(err, context.Canceled) || errors.Is(err, ErrBusy) {
		t.Fatal(err)
	}
}

func TestALockThatIsBeingPassedOnIsNotHeldThoughAnotherCallTriesToPassItOn(t *testing.T) {
	passing, pass := make(chan bool), make(chan any)
	locks := New(scripted(func(words []string) any {
		if words[0] == "LOCK.PASS" {
			passing <- true
			return <-pass
		}
		return int64(1)
	}))
	defer locks.Close(context.Background())
	lock, _, err := locks.Lock(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	passed := make(chan error)
	go func() { _, err := lock.PassTo(context.Background(), "job", time.Minute); passed <- err }()
	<-passing
	if err := lock.KeepFor(context.Background(), time.Minute); err != ErrPassed {
		t.Error(err)
	}
	if _, err := lock.Check(); err != ErrPassed {
		t.Error("it is held:", err)
	}
	pass <- int64(2)
	if err := <-passed; err != nil {
		t.Error(err)
	}
}

func TestAConnectionThatLeadsToAnotherServerByNowIsClosed(t *testing.T) {
	for _, code := range []string{"READONLY", "MOVED"} {
		locks := New(scripted(func([]string) any { return &Refused{code, ""} }))
		n, err := locks.node(context.Background(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if n.letters.do([][]string{{"LOCK.MAIL"}}); n.letters.open != nil {
			t.Error("it is open after", code)
		}
		_ = locks.Close(context.Background())
	}
}

func TestAConnectionCountsAsWholeOnlyAfterAReplyOfItsOwn(t *testing.T) {
	locks := New(scripted(func([]string) any { return &Refused{"WRONGPASS", "it is repeated for ever"} }))
	defer locks.Close(context.Background())
	n, err := locks.node(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	n.letters.used = time.Now() // by the connection before
	if n.letters.do([][]string{{"LOCK.MAIL"}}); n.letters.isWhole() {
		t.Error("the refusals would be repeated for another second")
	}
}

// silent is a client whose only server does not reply; it counts the connections.
type silent struct {
	promptClient
	Conn
	opened int
}

func (s *silent) Connect(string, time.Duration) (Conn, error) { s.opened++; return s, nil }
func (s *silent) Close()                                      {}
func (s *silent) Do(ctx context.Context, commands [][]string) []any {
	end, _ := ctx.Deadline()
	time.Sleep(time.Until(end))
	return slices.Repeat([]any{os.ErrDeadlineExceeded}, len(commands))
}

func TestNoConnectionIsOpenedForACommandWhoseTimeIsOver(t *testing.T) {
	client := &silent{}
	locks := New(client)
	defer locks.Close(context.Background())
	n, err := locks.node(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.letters.connect(context.Background()); err != nil {
		t.Fatal(err)
	}
	n.letters.limit = time.Millisecond
	if reply := n.letters.do([][]string{{"LOCK.MAIL"}})[0]; !isUnknown(reply) || client.opened != 1 {
		t.Error(reply, client.opened)
	}
}

func TestManyLocksLeaveAShortLeaseTimeForItsRenewal(t *testing.T) {
	locks := New(promptClient{})
	defer locks.Close(context.Background())
	locks.mu.Lock()
	defer locks.mu.Unlock()
	defer clear(locks.holds)
	for range 200_000 { // for which it rests a second
		locks.holds[new(Lock)] = struct{}{}
	}
	const third = 300 * time.Millisecond
	at := now()
	k := &Lock{locks: locks, next: at + third, until: at + 3*third}
	locks.due = forever
	k.watch()
	if late := locks.due - now() - third; late > 0 {
		t.Error("the keeper looks at it too late by", late)
	}
}

func TestManyLocksDoNotDelayTheEndOfAContext(t *testing.T) {
	locks := New(promptClient{})
	locks.mu.Lock()
	for range 200_000 { // for which it rests a second
		k := &Lock{locks: locks, until: forever, next: forever}
		locks.holds[k] = struct{}{}
	}
	locks.mu.Unlock()
	lock, _, err := locks.Lock(context.Background(), "k", MaxHold(900*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	locks.mu.Lock()
	if locks.due > lock.limit && now() < lock.limit {
		t.Error("the keeper looks at it too late by", locks.due-lock.limit)
	}
	locks.mu.Unlock()
	lock.Unlock()
	locks.mu.Lock()
	clear(locks.holds)
	locks.mu.Unlock()
	_ = locks.Close(context.Background())
}

func TestNoGoroutineIsLeftAfterClose(t *testing.T) {
	before := runtime.NumGoroutine()
	locks := New(promptClient{})
	for range 3 {
		lock, _, err := locks.Lock(context.Background(), "key")
		if err != nil {
			t.Fatal(err)
		}
		lock.Unlock()
	}
	if err := locks.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestACallAfterCloseSendsNothingAndDoesNotDelayClose(t *testing.T) {
	unlock := make(chan bool)
	var asked atomic.Int64
	locks := New(scripted(func(words []string) any {
		switch words[0] {
		case "LOCK.WLOCK":
			asked.Add(1)
		case "LOCK.RELEASE":
			<-unlock
		}
		return int64(1)
	}))
	if _, _, err := locks.Lock(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- locks.Close(context.Background()) }()
	<-locks.ended.Done()
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for locks.stopped.Err() == nil {
				if _, _, err := locks.Lock(context.Background(), "late"); err != ErrClosed {
					t.Error(err)
					return
				}
			}
		})
	}
	close(unlock)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	calls.Wait()
	if n := asked.Load(); n != 1 {
		t.Error(n, "requests were sent")
	}
}

func TestTheErrorOfAnyCallHasTheEndOfItsContextAndTheCause(t *testing.T) {
	asked, reply := make(chan bool), make(chan any)
	locks := New(scripted(func(words []string) any {
		if words[0] == "LOCK.INFO" {
			asked <- true
			return <-reply
		}
		return int64(1)
	}))
	defer locks.Close(context.Background())
	lock, _, err := locks.Lock(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	go locks.Semaphore("k", 1).Available(context.Background()) // so that the others have to wait
	<-asked
	why := &Refused{"DEADLOCK", "another request's"}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	_, revoked := locks.Revoke(ctx, "k", "owner")
	_, passed := lock.PassTo(ctx, "job", time.Minute)
	for _, err := range []error{revoked, passed} {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Error(err)
		}
	}
	if _, err := lock.Check(); err != ErrLost {
		t.Error("its pass may be carried out, and yet:", err)
	}
	close(reply)
}

func TestWhatTheServerRefusesIsRefusedAlsoWhenTheContextEndsMeanwhile(t *testing.T) {
	for range 50 { // both come at once: either may be noticed first
		ctx, cancel := context.WithCancel(context.Background())
		locks := New(scripted(func(words []string) any {
			if words[0] == "LOCK.PASS" {
				cancel()
				return &Refused{"NOPERM", ""}
			}
			return int64(1)
		}))
		lock, _, err := locks.Lock(context.Background(), "k")
		if err != nil {
			t.Fatal(err)
		}
		_, err = lock.PassTo(ctx, "job", time.Minute)
		if _, lost := lock.Check(); lost == nil && !isRefused(err, "NOPERM") || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		_ = locks.Close(context.Background())
	}
}

// busyClosing is a client that takes for ever to close.
type busyClosing struct{ promptClient }

func (busyClosing) Close() { select {} }

func TestCloseEndsWithItsContextThoughTheClientTakesLongToClose(t *testing.T) {
	answered, silent := New(busyClosing{}), New(busyClosing{})
	silent.job(+1) // something that never ends
	for locks, want := range map[*Locks]error{answered: nil, silent: context.DeadlineExceeded} {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		ended := make(chan error)
		go func() { ended <- locks.Close(ctx) }()
		select {
		case err := <-ended:
			if err != want {
				t.Error(err, "instead of", want)
			}
		case <-time.After(time.Minute):
			t.Error("it waits for the client")
		}
	}
}
