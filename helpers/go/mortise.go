// Package mortise takes locks on Redis and Valkey servers that have the Mortise module.
//
// A lock is waited for in the server's own queue, first come, first served. It is renewed for as long as
// it is held, and the context that comes with it is cancelled when it is lost:
//
//	locks := mortise.New(goredisconn.New(rdb))
//	defer locks.Close(context.Background())
//
//	lock, held, err := locks.Lock(ctx, "stock:17", mortise.Wait(5*time.Second))
//	if err != nil {
//		return err
//	}
//	defer lock.Unlock()
//	return sell(held, lock.Token())
//
// This file is what a program calls, and what is believed of a lock. How a server is asked, waited at and kept
// informed is in node.go.
package mortise

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrBusy says that somebody else held the lock for as long as the request waited.
	ErrBusy = errors.New("mortise: the lock is held by somebody else")
	// ErrLost says that the lock is not held any more: its lease ran out, or it was taken away. It is the
	// cause of the cancelled context.
	ErrLost = errors.New("mortise: the lock was lost")
	// ErrUnlocked is the cause of the context after Unlock, and what Check answers then.
	ErrUnlocked = errors.New("mortise: the lock was unlocked")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("mortise: the locks are closed")
)

const (
	forever    = 100 * 365 * 24 * time.Hour
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// Option says how a lock is taken.
type Option func(*request)

// Lease says how long the lock outlives a holder that is gone: 30 s unless told, a millisecond at least. It is
// renewed at a third of that.
func Lease(d time.Duration) Option { return func(r *request) { r.lease = max(d, time.Millisecond) } }

// Wait limits how long to queue for the lock. Unless told, only the context does.
func Wait(d time.Duration) Option { return func(r *request) { r.wait = min(max(d, 0), forever) } }

// MaxHold limits how long the lock is held in all: it is lost then, however healthy everything is.
func MaxHold(d time.Duration) Option { return func(r *request) { r.maxHold = min(d, forever) } }

// Task names the task that takes the lock, so that a deadlock among tasks that hold several locks is found.
// The name has to be unique among all programs: begin it with a UUID.
func Task(name string) Option { return func(r *request) { r.task = name } }

// OldLocks waits for a lock that another library has taken on the key, as a string, too. It polls for that. For the
// time in which both are in use: see docs/migrating.
func OldLocks() Option { return func(r *request) { r.oldLocks = true } }

type request struct {
	command, key, task   string
	lease, wait, maxHold time.Duration
	oldLocks             bool
}

// Locks takes locks over one client. Make one for the program and share it.
type Locks struct {
	client   Client
	uuid     string
	count    atomic.Uint64
	refresh  atomic.Int64 // when the servers were looked for
	jobs     atomic.Int64 // what Close waits for: acquisitions, locks and names to leave
	answered atomic.Bool  // a server ever has

	ended   context.Context // nothing is taken any more
	end     context.CancelFunc
	stopped context.Context // nothing is sent any more
	stop    context.CancelFunc

	mu     sync.Mutex // of all below, of every node and of every lock
	nodes  map[string]*node
	holds  map[*Lock]struct{}
	keeper *time.Timer
	look   time.Duration // when the keeper does
}

// New makes locks over the client. Close ends them, and the client.
func New(client Client) *Locks {
	l := &Locks{client: client, uuid: random(), nodes: map[string]*node{}, holds: map[*Lock]struct{}{}}
	l.ended, l.end = context.WithCancel(context.Background())
	l.stopped, l.stop = context.WithCancel(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keeper = time.AfterFunc(time.Second, l.keep)
	l.look = now() + time.Second
	return l
}

// Lock takes the lock to write, nobody else in. The context that it answers is cancelled when the lock is lost or
// unlocked, and when ctx ends. Ending ctx also ends the wait; nothing stays behind then.
func (l *Locks) Lock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.acquire(ctx, request{command: "LOCK.WLOCK", key: key, wait: forever}, options)
}

// RLock takes the lock to read, beside other readers.
func (l *Locks) RLock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.acquire(ctx, request{command: "LOCK.RLOCK", key: key, wait: forever}, options)
}

// TryLock takes the lock to write if that is possible at once, else it answers ErrBusy.
func (l *Locks) TryLock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.Lock(ctx, key, append(options[:len(options):len(options)], Wait(0))...)
}

// TryRLock takes the lock to read if that is possible at once, else it answers ErrBusy.
func (l *Locks) TryRLock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.RLock(ctx, key, append(options[:len(options):len(options)], Wait(0))...)
}

// Close unlocks what is held, ends what waits, and returns when the servers know, or when ctx ends: what they do
// not know by then goes with its lease. It closes the client.
func (l *Locks) Close(ctx context.Context) error {
	l.end()
	l.mu.Lock()
	for lock := range l.holds {
		go lock.Unlock()
	}
	l.mu.Unlock()
	l.job(0)
	var err error
	select {
	case <-l.stopped.Done():
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.stop()
	return errors.Join(err, l.client.Close())
}

// job counts what Close waits for.
func (l *Locks) job(more int64) {
	if l.jobs.Add(more) == 0 && l.ended.Err() != nil {
		l.stop()
	}
}

func (l *Locks) acquire(ctx context.Context, r request, options []Option) (*Lock, context.Context, error) {
	r.lease, r.maxHold = 30*time.Second, forever
	for _, option := range options {
		option(&r)
	}
	l.job(+1)
	defer l.job(-1)
	waiting, cancel := context.WithTimeoutCause(ctx, r.wait+2*timeout, errUnsure)
	defer cancel()
	defer context.AfterFunc(l.ended, cancel)()
	end := now() + r.wait
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		left := max(end-now(), 0)
		lock, err := l.attempt(waiting, &r, left)
		if err == nil {
			if held := lock.start(ctx); held != nil {
				return lock, held, nil
			}
		}
		if over := l.over(ctx); over != nil {
			return nil, nil, over
		}
		old := r.oldLocks && isRefused(err, "WRONGTYPE")
		if !l.answered.Load() || !old && !passing(err) || left <= pause {
			if old {
				err = ErrBusy
			}
			return nil, nil, err
		}
		sleep(waiting, pause)
		l.lookForServers(waiting)
	}
}

// attempt asks once, under a name that was never used before: what becomes of it is known, or the name is left.
func (l *Locks) attempt(ctx context.Context, r *request, left time.Duration) (*Lock, error) {
	n, err := l.node(ctx, r.key)
	if err != nil {
		return nil, err
	}
	k := &Lock{locks: l, node: n, request: r, owner: l.name(r.task)}
	command := words(r.command, k.key, k.owner, k.lease, "HOLDS", 1)
	var letter *pending
	if left > 0 {
		letter = n.expect(ctx, k.owner)
		defer letter.forget()
		command = append(command, words("WAIT", left, "MAIL", letter.box.name)...)
	}
	sent := now()
	token, begun, err := n.grant(ctx, command, letter)
	if err == nil && token == 0 {
		return nil, ErrBusy
	}
	if isRefused(err, "") {
		return nil, err // an error changes nothing
	}
	if err == nil {
		k.token, k.limit = token, now()+r.maxHold
		k.extend(max(sent, begun))
		err = k.confirm(ctx)
	}
	if err != nil {
		l.leave(k.key, k.owner)
		return nil, err
	}
	return k, nil
}

// over says why nothing more is to be taken, if so.
func (l *Locks) over(ctx context.Context) error {
	if l.ended.Err() != nil {
		return ErrClosed
	}
	return ctx.Err()
}

func (l *Locks) name(task string) string {
	count := strconv.FormatUint(l.count.Add(1), 36)
	if task != "" {
		return task + "##" + l.uuid[:12] + count
	}
	return l.uuid + ":" + count
}

func random() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// Lock is a lock that is held, until Unlock or until it is lost.
type Lock struct {
	*request
	locks *Locks
	owner string
	token int64
	limit time.Duration // of MaxHold, on the clock of now()

	node   *node         // that granted it, or where it has moved to
	until  time.Duration // it is believed until then
	next   time.Duration // when it is to be renewed
	over   error         // ErrLost or ErrUnlocked
	cancel context.CancelCauseFunc
}

// Key is the key of the lock.
func (k *Lock) Key() string { return k.key }

// Token is the fencing token, larger than that of every grant before. Send it along with what you write, and
// refuse a write whose token is smaller than one that was seen already.
func (k *Lock) Token() int64 { return k.token }

// Guard makes a command of Redis one that runs only while the lock is held, judged by the server in the same moment:
//
//	rdb.Do(held, lock.Guard("SET", "stock", 5)...)
//
// Where it is not held the answer is an error that begins with NOTHELD. For data on the lock's server, in the slot of
// its key, no token has to be looked at. Send it over a client that does not repeat commands by itself.
func (k *Lock) Guard(words ...any) []any {
	return append([]any{"LOCK.GUARD", k.key, k.owner, k.token}, words...)
}

// Check answers the token if the lock is held at this moment, else ErrLost or ErrUnlocked.
func (k *Lock) Check() (int64, error) {
	k.locks.mu.Lock()
	defer k.locks.mu.Unlock()
	return k.token, k.state()
}

// Unlock gives the lock back. It answers nil if the lock was held to the last moment, else ErrLost. It takes no
// context, because a lock has to be given back above all when that has ended. A server that does not answer is
// told in the background.
func (k *Lock) Unlock() error {
	k.locks.job(+1)
	defer k.locks.job(-1)
	k.locks.mu.Lock()
	over, n := k.state(), k.node
	k.finish(ErrUnlocked)
	k.locks.mu.Unlock()
	switch over {
	case ErrLost:
		return ErrLost
	case ErrUnlocked:
		return nil
	}
	switch n.call(k.locks.stopped, "LOCK.RELEASE", k.key, k.owner, "ALL", "TOKEN", k.token).(type) {
	case nil:
		return ErrLost
	case error:
		k.locks.leave(k.key, k.owner)
	}
	return nil
}

// start makes the lock the caller's, if the locks are not closed.
func (k *Lock) start(ctx context.Context) (held context.Context) {
	l := k.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over(ctx) != nil {
		l.leave(k.key, k.owner)
		return nil
	}
	l.job(+1)
	l.holds[k] = struct{}{}
	held, k.cancel = context.WithCancelCause(ctx)
	k.keep()
	return held
}

// extend believes the lock until a lease after begun, less what clocks may differ by. A new belief only.
func (k *Lock) extend(begun time.Duration) {
	k.until = min(max(k.until, begun+k.lease-k.lease/100-2*time.Millisecond), k.limit)
	k.next = begun + k.lease/3
	if k.until == k.limit {
		k.next = forever
	}
}

// state is why the lock is not held at this moment, if so. The mutex is held.
func (k *Lock) state() error {
	if now() >= k.until {
		k.finish(ErrLost)
	}
	return k.over
}

// finish ends the lock, if it has not ended. A belief that has ended is never taken up again. The mutex is held.
func (k *Lock) finish(why error) {
	if k.over != nil {
		return
	}
	if why == ErrLost {
		k.locks.leave(k.key, k.owner)
	}
	k.over = why
	k.cancel(why)
	delete(k.locks.holds, k)
	k.locks.job(-1)
}
