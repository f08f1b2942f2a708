// Package mortise takes locks on Redis and Valkey servers that have the Mortise module.
//
// Requests wait in the server's own queue, first come, first served. The library renews a lock for as long as it is held, and cancels the
// lock's context when it is lost:
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
// This file takes locks; lock.go is a held lock, pass.go hands it over, others.go has the calls about locks of others, semaphore.go permits,
// node.go a server, mail.go its later answers, client.go the interface to Redis clients, and what replies mean.
package mortise

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrBusy: another owner held the lock for the whole wait. If the context ended that wait, the error is both: errors.Is finds ErrBusy,
	// context.DeadlineExceeded or context.Canceled, and the context's cause.
	ErrBusy = errors.New("mortise: the lock is held by somebody else")
	// ErrLost: the lock is no longer held, because its lease ran out or it was taken away. It is the
	// cause of the cancelled context.
	ErrLost = errors.New("mortise: the lock was lost")
	// ErrUnlocked is the cause of the context after Unlock, and what Check answers then.
	ErrUnlocked = errors.New("mortise: the lock was unlocked")
	// ErrPassed is the cause of the context after PassTo, and what Check answers then.
	ErrPassed = errors.New("mortise: the lock was passed on")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("mortise: the locks are closed")
)

const (
	forever    = 100 * 365 * 24 * time.Hour
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
	// leastLease leaves some time after extend has subtracted what clocks may differ by.
	leastLease = 3 * time.Millisecond
	leastHold  = time.Millisecond
	// patience is for how long to retry a server that has never answered, if nothing else limits that.
	patience = 10 * time.Second
)

// Option says how to take a lock.
type Option func(*request)

// Lease is how long the lock outlives a holder that is gone: 30 s by default, 3 ms at least. It is renewed at a
// third of that.
func Lease(d time.Duration) Option { return func(r *request) { r.lease = min(d, forever) } }

// Wait limits how long to queue for the lock. By default only the context does. A wait that is over already asks once.
func Wait(d time.Duration) Option { return func(r *request) { r.wait = min(max(d, 0), forever) } }

// MaxHold limits how long the lock is held in all, 1 ms at least: it is lost then, however healthy everything is.
func MaxHold(d time.Duration) Option { return func(r *request) { r.maxHold = min(d, forever) } }

// Task names the task that takes the lock, so that a deadlock among tasks that hold several locks is found.
// The name has to be unique among all programs: begin it with a UUID.
func Task(name string) Option { return func(r *request) { r.task = name } }

// Holder is a name for people to read, as LOCK.INFO shows it: a part of the name under which the lock is held. Without ##.
func Holder(name string) Option { return func(r *request) { r.holder = name } }

// Setting is one of all locks that New makes.
type Setting func(*Locks)

// Replicas is how many replicas must have each grant and each renewal before a lock relies on it: none by default. If all clients name the
// number of replicas that may ever be promoted, and each server has lock.grace, no failover lets two in. While too few replicas have it, the lock
// is given back and requested again until the wait is over; the error is then an *Unconfirmed.
func Replicas(n int) Setting { return func(l *Locks) { l.replicas = max(n, 0) } }

type request struct {
	task, holder         string
	keys                 []string // one, or several that are taken at once
	lease, wait, maxHold time.Duration
	owner                string                      // the name to ask under, if not a new one for each attempt
	words                func(owner string) []string // of the command, which replies a token
	none                 error                       // what no token means: ErrBusy, or ErrLost of a lock that was passed on or is resumed
	said                 error                       // by the server, of its last answer: none or an *Unconfirmed
}

// check refuses times by which no lock could be held, such as a computed one that has passed.
func (r *request) check() error {
	if r.lease < leastLease {
		return fmt.Errorf("mortise: Lease must be at least %v, got %v", leastLease, r.lease)
	}
	if r.maxHold < leastHold {
		return fmt.Errorf("mortise: MaxHold must be at least %v, got %v", leastHold, r.maxHold)
	}
	if strings.Contains(r.holder, "##") {
		return fmt.Errorf("mortise: Holder is a name without ##, not %q", r.holder)
	}
	return nil
}

// queues is whether the command takes WAIT, and may be repeated under another name: one for a lock that nobody has yet.
func (r *request) queues() bool { return r.none == ErrBusy }

// newRequest is how locks are asked for with these options, after others by default.
func newRequest(keys []string, options []Option) *request {
	r := &request{keys: keys, lease: 30 * time.Second, wait: forever, maxHold: forever, none: ErrBusy}
	for _, option := range options {
		option(r)
	}
	return r
}

// Locks takes locks over one client. Make one for the program and share it.
type Locks struct {
	client   Client
	replicas int
	uuid     string
	count    atomic.Int64
	looking  atomic.Bool  // for the servers
	jobs     atomic.Int64 // what Close waits for: acquisitions, locks and names to leave
	answered atomic.Bool  // a server ever has
	nodes    sync.Map     // each *node by its name

	ended   context.Context // no lock is taken any more
	end     context.CancelFunc
	stopped context.Context // nothing is sent any more
	stop    context.CancelFunc

	mu     sync.Mutex // of all below, of every node and of every lock
	holds  map[*Lock]struct{}
	keeper *time.Timer   // calls keep
	due    time.Duration // when it does
}

// New makes locks over the client. Close ends them, and the client.
func New(client Client, settings ...Setting) *Locks {
	l := &Locks{client: client, uuid: rand.Text(), holds: map[*Lock]struct{}{}}
	for _, set := range settings {
		set(l)
	}
	l.ended, l.end = context.WithCancel(context.Background())
	l.stopped, l.stop = context.WithCancel(context.Background())
	l.keeper = time.AfterFunc(0, l.keep)
	return l
}

// Lock takes the lock to write, exclusively. The context that it returns is cancelled when the lock is lost or unlocked, and when ctx ends.
// Ending ctx also ends the wait; nothing stays behind then.
func (l *Locks) Lock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.takeOne(ctx, "LOCK.WLOCK", key, options, "HOLDS", "1")
}

// RLock takes the lock to read, beside other readers.
func (l *Locks) RLock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.takeOne(ctx, "LOCK.RLOCK", key, options, "HOLDS", "1")
}

// TryLock takes the lock to write if that is possible at once, else it returns ErrBusy.
func (l *Locks) TryLock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.Lock(ctx, key, append(options[:len(options):len(options)], Wait(0))...)
}

// TryRLock takes the lock to read if that is possible at once, else it returns ErrBusy.
func (l *Locks) TryRLock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.RLock(ctx, key, append(options[:len(options):len(options)], Wait(0))...)
}

// LockAll takes the locks of 1 to 16 keys to write: all in one instant, or none. Nothing is held while it waits. It is one Lock, with one
// token, which is lost as soon as one of the locks is. In a cluster the keys are in one slot, as by a {hash tag}.
func (l *Locks) LockAll(ctx context.Context, keys []string, options ...Option) (*Lock, context.Context, error) {
	if len(keys) == 0 {
		return nil, nil, errors.New("mortise: LockAll needs a key")
	}
	r := newRequest(slices.Clone(keys), options)
	r.words = func(owner string) []string {
		return append([]string{"LOCK.MACQUIRE", owner, ms(r.lease), number(int64(len(keys)))}, r.keys...)
	}
	return l.take(ctx, r)
}

// TryLockAll takes the locks if that is possible at once, else it returns ErrBusy.
func (l *Locks) TryLockAll(ctx context.Context, keys []string, options ...Option) (*Lock, context.Context, error) {
	return l.LockAll(ctx, keys, append(options[:len(options):len(options)], Wait(0))...)
}

// Run holds the lock while work runs, which gets the lock and its context. It returns the error of work, joined with ErrLost if the lock was
// lost before work ended.
func (l *Locks) Run(ctx context.Context, key string, work func(ctx context.Context, lock *Lock) error, options ...Option) (err error) {
	lock, held, err := l.Lock(ctx, key, options...)
	if err != nil {
		return err
	}
	defer func() { // also where work panics
		if lost := lock.Unlock(); lost != nil {
			err = errors.Join(err, lost)
		}
	}()
	return work(held, lock)
}

// Close unlocks all locks, ends all waits, and returns when the servers have answered, or when ctx ends: locks without an answer by then
// end with their leases. It closes the client.
func (l *Locks) Close(ctx context.Context) error {
	l.mu.Lock()
	l.end()
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
		l.stop()
	}
	closed := make(chan struct{})
	go func() { l.client.Close(); close(closed) }()
	select {
	case <-closed:
	case <-ctx.Done(): // over rueidis a silent server delays closing
	}
	return err
}

// job counts what Close waits for.
func (l *Locks) job(more int64) {
	if l.jobs.Add(more) == 0 && l.ended.Err() != nil {
		l.stop()
	}
}

// takeOne takes one lock; more is how many holds of it.
func (l *Locks) takeOne(ctx context.Context, command, key string, options []Option, more ...string) (*Lock, context.Context, error) {
	r := newRequest([]string{key}, options)
	r.words = func(owner string) []string {
		return append(append(make([]string, 0, 10), command, key, owner, ms(r.lease)), more...) // WAIT and MAIL follow
	}
	return l.take(ctx, r)
}

// take asks until the lock is granted, or the wait is over.
func (l *Locks) take(ctx context.Context, r *request) (*Lock, context.Context, error) {
	if err := r.check(); err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	if l.ended.Err() != nil { // then nothing is sent, and Close does not wait for this call
		l.mu.Unlock()
		return nil, nil, ErrClosed
	}
	l.job(+1)
	l.mu.Unlock()
	defer l.job(-1)
	began := now()
	end := began + r.wait
	waiting := ctx
	if r.wait < forever {
		limited, cancel := context.WithTimeout(ctx, max(r.wait+late, timeout))
		defer cancel()
		waiting = limited
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		lock, err := l.attempt(ctx, waiting, r, end)
		if err == nil {
			return lock, lock.held, nil
		}
		if over := l.over(ctx); over != nil {
			if r.said != nil && over != ErrClosed {
				over = fmt.Errorf("%w: %w", r.said, over)
			}
			return nil, nil, over
		}
		isThere := l.answered.Load() || now()-began < patience // else it has the wrong address more likely than it is in trouble
		mayAsk := r.queues() || lock == nil                    // again: a pass or renewal may have been carried out
		if !isThere || !mayAsk || !passing(err) || end-now() <= pause {
			return nil, nil, err
		}
		sleep(waiting, pause)
	}
}

// attempt asks once, under a name that was never used before. It returns no lock if that has changed nothing. If its outcome is unknown, the
// name leaves the lock. The lock's context is one of ctx; waiting ends with the wait.
func (l *Locks) attempt(ctx, waiting context.Context, r *request, end time.Duration) (*Lock, error) {
	n, err := l.node(waiting, r.keys[0])
	if err != nil {
		return nil, err
	}
	k := &Lock{locks: l, request: r, owner: cmp.Or(r.owner, l.name(r))}
	sent := now()
	answer := n.grant(waiting, r, k.owner, end-sent)
	if answer.token == 0 && (answer.queued || answer.err == nil) {
		r.said = r.none
	}
	switch err = answer.err; {
	case err == nil && answer.token == 0:
		return nil, r.none
	case isRefused(err, "") && !answer.queued, isUnsent(err):
		return nil, err // nothing has changed
	case err == nil:
		err = k.granted(waiting, answer.token, max(sent, answer.begun))
	}
	if err == nil {
		err = k.start(ctx)
	}
	if few, ok := errors.AsType[*Unconfirmed](err); ok {
		r.said = few
	}
	if err != nil && r.owner == "" {
		k.leave(k.owner)
	}
	return k, err
}

// over returns why no more locks may be taken, if so.
func (l *Locks) over(ctx context.Context) error {
	err := ctx.Err() // before its cause, which it has from then on
	switch {
	case l.ended.Err() != nil:
		return ErrClosed
	case err != nil && context.Cause(ctx) != err:
		return fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return err
}

// withEnd is the error of a call, and why no more locks may be taken, if so; where the outcome is unknown, the latter alone.
func (l *Locks) withEnd(ctx context.Context, err error) error {
	_, isFew := errors.AsType[*Unconfirmed](err)
	switch over := l.over(ctx); {
	case over == nil:
		return err
	case isUnknown(err) && !isFew:
		return over
	default:
		return fmt.Errorf("%w: %w", err, over)
	}
}

// name is one that nobody has had.
func (l *Locks) name(r *request) string {
	own := l.uuid + ":" + number(l.count.Add(1))
	if r.holder != "" {
		own = r.holder + ":" + own
	}
	if r.task != "" {
		own = r.task + "##" + own
	}
	return own
}
