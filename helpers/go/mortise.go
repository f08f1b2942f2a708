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
// This file is what a program calls. How a server is asked, waited at and kept informed is in node.go.
package mortise

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
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

// Refused is an error that the server answered.
type Refused struct{ Code, Message string }

func (e *Refused) Error() string { return "mortise: the server refused: " + e.Code + " " + e.Message }

// IsDeadlock says that waiting would have closed a cycle of owners that wait for each other.
func IsDeadlock(err error) bool {
	var refused *Refused
	return errors.As(err, &refused) && refused.Code == "DEADLOCK"
}

// isOldLock says that the key is no lock of this kind.
func isOldLock(err error) bool {
	var refused *Refused
	return errors.As(err, &refused) && refused.Code == "WRONGTYPE"
}

// Client is what the locks need of a Redis client; goredisconn and rueidisconn have one each. In every
// command the second word is the key that it is routed by.
type Client interface {
	// Do sends the commands in one pipeline and answers as many replies: int64, string, nil, []any or a map,
	// a *Refused where the server answered an error, any other error where what became of it is not known.
	Do(ctx context.Context, commands [][]string) []any
	// Mail sends one command that may block for seconds, over a connection that Do does not use.
	Mail(ctx context.Context, command []string) any
	// Node names the server that serves the key: its address in a cluster, else always the same.
	Node(ctx context.Context, key string) (string, error)
	// Refresh looks again which server serves which key.
	Refresh(ctx context.Context)
	// Close closes the connections; what is in flight ends.
	Close() error
}

// NewRefused makes a *Refused of the text of an error reply, which some clients strip of its "ERR".
func NewRefused(text string) *Refused {
	code, message, _ := strings.Cut(text, " ")
	if code != strings.ToUpper(code) {
		return &Refused{"ERR", text}
	}
	return &Refused{code, message}
}

// Option says how a lock is taken.
type Option func(*request)

// Lease says how long the lock outlives a holder that is gone: 30 s unless told, a millisecond at least. It is
// renewed at a third of that.
func Lease(d time.Duration) Option { return func(r *request) { r.lease = max(d, time.Millisecond) } }

// Wait limits how long to queue for the lock. Unless told, only the context does.
func Wait(d time.Duration) Option { return func(r *request) { r.wait = max(d, 0) } }

// MaxHold limits how long the lock is held in all: it is lost then, however healthy everything is.
func MaxHold(d time.Duration) Option { return func(r *request) { r.maxHold = d } }

// Task names the task that takes the lock, so that a deadlock among tasks that hold several locks is found.
// The name has to be unique among all programs: begin it with a UUID.
func Task(name string) Option { return func(r *request) { r.task = name } }

// OldLocks waits for a lock that another library has taken on the key, as a string, too. It polls for that. For the
// time in which both are in use: see docs/migrating.
func OldLocks() Option { return func(r *request) { r.oldLocks = true } }

type request struct {
	command, key         string
	lease, wait, maxHold time.Duration
	task                 string
	oldLocks             bool
}

// Locks takes locks over one client. Make one for the program and share it.
type Locks struct {
	client Client
	uuid   string
	count  atomic.Uint64

	mu        sync.Mutex
	nodes     map[string]*node
	holds     map[*Lock]struct{}
	jobs      int           // what Close waits for: acquisitions, unlocks and names to leave
	quiet     chan struct{} // there are no jobs any more, and none come
	refreshed time.Duration
	answered  atomic.Bool   // a server has ever answered
	period    time.Duration // how often the keeper looks
	hurry     chan struct{} // it has to look more often

	ended   context.Context // nothing is taken any more
	end     context.CancelCauseFunc
	stopped context.Context // nothing is sent any more
	stop    context.CancelFunc
}

// New makes locks over the client. Close ends them, and the client.
func New(client Client) *Locks {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	l := &Locks{
		client: client, uuid: hex.EncodeToString(id), nodes: map[string]*node{}, holds: map[*Lock]struct{}{},
		quiet: make(chan struct{}), hurry: make(chan struct{}, 1),
	}
	l.ended, l.end = context.WithCancelCause(context.Background())
	l.stopped, l.stop = context.WithCancel(context.Background())
	go l.keep()
	return l
}

// Lock takes the lock to write, nobody else in. The context that it answers is cancelled when the lock is lost or
// unlocked, and when ctx ends. Ending ctx also ends the wait; nothing stays behind then.
func (l *Locks) Lock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.acquire(ctx, "LOCK.WLOCK", key, options)
}

// RLock takes the lock to read, beside other readers.
func (l *Locks) RLock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.acquire(ctx, "LOCK.RLOCK", key, options)
}

// TryLock takes the lock to write if that is possible at once, else it answers ErrBusy.
func (l *Locks) TryLock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.acquire(ctx, "LOCK.WLOCK", key, append(options[:len(options):len(options)], Wait(0)))
}

// TryRLock takes the lock to read if that is possible at once, else it answers ErrBusy.
func (l *Locks) TryRLock(ctx context.Context, key string, options ...Option) (*Lock, context.Context, error) {
	return l.acquire(ctx, "LOCK.RLOCK", key, append(options[:len(options):len(options)], Wait(0)))
}

// Close unlocks what is held, ends what waits, and returns when the servers know, or when ctx ends: what they do
// not know by then goes with its lease. It closes the client.
func (l *Locks) Close(ctx context.Context) error {
	l.end(ErrClosed)
	l.mu.Lock()
	for lock := range l.holds {
		go lock.Unlock()
	}
	l.settleQuiet()
	l.mu.Unlock()
	var err error
	select {
	case <-l.quiet:
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.stop()
	return errors.Join(err, l.client.Close())
}

// settleQuiet tells Close that all is said, if it is. l.mu is held.
func (l *Locks) settleQuiet() {
	if l.ended.Err() != nil && l.jobs == 0 && len(l.holds) == 0 {
		select {
		case <-l.quiet:
		default:
			close(l.quiet)
		}
	}
}

func (l *Locks) job(more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs += more
	l.settleQuiet()
}

func (l *Locks) acquire(ctx context.Context, command, key string, options []Option) (*Lock, context.Context, error) {
	r := request{command: command, key: key, lease: 30 * time.Second, wait: forever}
	for _, option := range options {
		option(&r)
	}
	l.job(+1)
	defer l.job(-1)
	begun := now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		left := r.wait
		if left != forever {
			left = max(left-(now()-begun), 0)
		}
		lock, held, err := l.attempt(ctx, &r, left)
		old := r.oldLocks && isOldLock(err)
		if err == nil || l.over(ctx) != nil || !l.answered.Load() || !old && !passing(err) || left <= pause {
			if old && l.over(ctx) == nil {
				err = ErrBusy
			}
			return lock, held, err
		}
		sleep(pause, ctx.Done(), l.ended.Done())
		l.refresh(ctx)
	}
}

// attempt asks once, under a name that was never used before: what becomes of it is known, or the name is left.
func (l *Locks) attempt(ctx context.Context, r *request, left time.Duration) (*Lock, context.Context, error) {
	if err := l.over(ctx); err != nil {
		return nil, nil, err
	}
	n, err := l.node(ctx, r.key)
	if err != nil {
		return nil, nil, err
	}
	owner := l.name(r.task)
	command := []string{r.command, r.key, owner, millis(r.lease), "HOLDS", "1"}
	var letter *pending
	if left > 0 {
		letter = n.expect(ctx, owner)
		defer letter.forget()
		limit := "0" // none
		if left != forever {
			limit = millis(left)
		}
		command = append(command, "WAIT", limit, "MAIL", letter.box.name)
	}
	sent := now()
	token, begun, err := n.grant(ctx, command, letter, left)
	if err == nil && token == 0 {
		return nil, nil, ErrBusy
	}
	var refused *Refused
	if errors.As(err, &refused) {
		return nil, nil, err // an error changes nothing
	}
	lock := &Lock{locks: l, node: n, key: r.key, owner: owner, lease: r.lease, token: token, limit: forever}
	if r.maxHold > 0 {
		lock.limit = now() + r.maxHold
	}
	if err == nil {
		lock.extend(max(sent, begun))
		err = lock.confirm(ctx)
	}
	if err == nil {
		err = l.over(ctx)
	}
	if err != nil {
		l.leave(r.key, owner)
		return nil, nil, err
	}
	return lock, lock.start(ctx), nil
}

// over says why nothing more is to be taken, if so.
func (l *Locks) over(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return context.Cause(l.ended)
}

func (l *Locks) name(task string) string {
	count := strconv.FormatUint(l.count.Add(1), 36)
	if task != "" {
		return task + "##" + l.uuid[:12] + count
	}
	return l.uuid + ":" + count
}

// Lock is a lock that is held, until Unlock or until it is lost.
type Lock struct {
	locks      *Locks
	node       *node // that granted it
	key, owner string
	lease      time.Duration
	token      int64
	limit      time.Duration // of MaxHold, on the clock of now()

	mu      sync.Mutex
	until   time.Duration // it is believed until then
	asked   time.Duration // when the server was last asked with success
	renewal bool          // one is on its way
	over    error         // ErrLost or ErrUnlocked
	cancel  context.CancelCauseFunc
	alarm   *time.Timer
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
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over == nil && now() >= k.until {
		k.finish(ErrLost)
	}
	return k.token, k.over
}

// Unlock gives the lock back. It answers nil if the lock was held to the last moment, else ErrLost. It takes no
// context, because a lock has to be given back above all when that has ended. A server that does not answer is
// told in the background.
func (k *Lock) Unlock() error {
	k.locks.job(+1)
	defer k.locks.job(-1)
	_, over := k.Check()
	k.mu.Lock()
	first := k.finish(ErrUnlocked)
	k.mu.Unlock()
	switch {
	case over == ErrLost:
		return ErrLost
	case !first:
		return nil
	}
	switch (<-k.at().send("LOCK.RELEASE", k.key, k.owner, "ALL", "TOKEN", decimal(k.token))).(type) {
	case int64:
		return nil
	case nil:
		return ErrLost
	default:
		k.locks.leave(k.key, k.owner)
		return nil
	}
}
