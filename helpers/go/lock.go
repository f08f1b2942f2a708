package mortise

import (
	"context"
	"time"
)

// Lock is a lock that is held, until Unlock or until it is lost.
type Lock struct {
	*request
	locks *Locks
	owner string
	token int64
	limit time.Duration // of MaxHold, on the clock of now()

	node   *node         // that granted it, or where it has moved to
	until  time.Duration // it counts as held until then
	next   time.Duration // when it is to be renewed
	rests  time.Duration // the lock stays taken until then: of AtLeast
	passes bool          // it is being passed on: nobody may rely on it
	over   error         // ErrLost, ErrUnlocked or ErrPassed
	cancel context.CancelCauseFunc
}

// Key is the key of the lock.
func (k *Lock) Key() string { return k.key }

// Token is the fencing token, larger than that of every grant before. Send it along with what you write, and
// refuse a write whose token is smaller than one that was seen already.
func (k *Lock) Token() int64 { return k.token }

// Guard turns a command of Redis into one that runs only while the lock is held, which the server checks in the same moment:
//
//	rdb.Do(held, lock.Guard("SET", "stock", 5)...)
//
// If it is not held, the reply is an error that begins with NOTHELD. For data on the lock's server, in the slot of
// its key, no token has to be compared. Send it over a client that does not repeat commands by itself.
func (k *Lock) Guard(words ...any) []any {
	return append([]any{"LOCK.GUARD", k.key, k.owner, k.token}, words...)
}

// Check returns the token if the lock is held at this moment, else ErrLost, ErrUnlocked or ErrPassed.
func (k *Lock) Check() (int64, error) {
	k.locks.mu.Lock()
	defer k.locks.mu.Unlock()
	return k.token, k.state()
}

// Unlock releases the lock. It returns nil if the lock was held to the last moment, else ErrLost. It takes no context, because a lock has
// to be released above all when the context has ended. If a server does not answer, Unlock repeats the release in the background.
func (k *Lock) Unlock() error {
	k.locks.job(+1)
	defer k.locks.job(-1)
	k.follow()
	k.locks.mu.Lock()
	over, n := k.state(), k.node
	k.finish(ErrUnlocked)
	rests := k.rests > 0 && k.rests > now()
	k.locks.mu.Unlock()
	if over == ErrLost {
		return ErrLost
	} else if over != nil {
		return nil
	}
	var reply any
	if rests {
		reply = n.call(k.locks.stopped, k.farewell()...)
	}
	if reply == nil { // nothing has to rest, or what was revoked cannot
		k.locks.mu.Lock()
		k.rests = 0
		k.locks.mu.Unlock()
		reply = n.call(k.locks.stopped, "LOCK.RELEASE", k.key, k.owner, "ALL", "TOKEN", k.token)
	}
	if isGone(reply) {
		return ErrLost
	}
	if _, failed := reply.(error); failed {
		k.locks.repeat(k.key, k.farewell)
	}
	return nil
}

// PassTo gives the lock to another name with that lease, and nobody is granted in between. It returns the new token: a program that knows
// the token and the name goes on with TakeOver. What the lock had of AtLeast ends. The error is ErrLost if the lock was lost before, or a
// *Refused, after which it is held as before. When the outcome is unknown, both names leave the lock.
func (k *Lock) PassTo(ctx context.Context, owner string, lease time.Duration) (int64, error) {
	k.locks.job(+1)
	defer k.locks.job(-1)
	k.follow()
	k.locks.mu.Lock()
	over, n := k.state(), k.node
	k.passes = over == nil
	k.locks.mu.Unlock()
	if over != nil {
		return 0, over
	}
	reply := n.call(ctx, "LOCK.PASS", k.key, k.owner, owner, lease, "TOKEN", k.token)
	k.locks.mu.Lock()
	defer k.locks.mu.Unlock()
	k.passes = false
	token, passed := reply.(int64)
	err, _ := reply.(error)
	switch {
	case passed:
		k.finish(ErrPassed)
		return token, nil
	case isGone(reply):
		k.rests = 0
		k.finish(ErrLost)
		return 0, ErrLost
	case isRefused(err, "") && k.over == nil: // it has changed nothing
		k.next = min(k.next, now())
		k.keep()
		return 0, err
	}
	k.rests = 0
	k.finish(ErrLost)
	for _, name := range []string{k.owner, owner} {
		k.locks.leave(k.key, name)
	}
	return 0, err
}

// farewell ends the lock for good, whatever became of it: the rest of AtLeast goes to a name that nobody uses.
func (k *Lock) farewell() []any {
	k.locks.mu.Lock()
	defer k.locks.mu.Unlock()
	left := k.rests - now()
	if left <= 0 {
		return []any{"LOCK.LEAVE", k.key, k.owner, "FOR", away}
	}
	rest := "rest:" + k.owner
	if len(rest) > mostOwner {
		rest = "rest:" + k.locks.name(&request{})
	}
	return []any{"LOCK.PASS", k.key, k.owner, rest, left, "TOKEN", k.token}
}

// isGone says that this reply to a release or a renewal proves that nothing is held: there is no such hold, or the key
// was overwritten.
func isGone(reply any) bool {
	err, _ := reply.(error)
	return reply == nil || isRefused(err, "WRONGTYPE")
}

// granted takes the server's answer: the token, and when the lease began at the earliest.
func (k *Lock) granted(token int64, begun time.Duration) {
	k.token, k.limit = token, forever
	if k.maxHold != forever {
		k.limit = now() + k.maxHold
	}
	if k.atLeast > 0 {
		k.rests = now() + k.atLeast
	}
	k.extend(begun)
}

// start makes the locks the caller's, if they are not closed. The context ends with the first of them.
func (l *Locks) start(ctx context.Context, locks ...*Lock) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over(ctx) != nil {
		for _, k := range locks {
			l.leave(k.key, k.owner)
		}
		return nil
	}
	var held context.Context
	held, locks[0].cancel = context.WithCancelCause(ctx)
	for _, k := range locks {
		l.job(+1)
		l.holds[k] = struct{}{}
		k.cancel = locks[0].cancel
		k.keep()
	}
	return held
}

// extend counts the lock as held until a lease after begun, less what clocks may differ by. It never shortens that.
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
	if k.over == nil && k.passes {
		return ErrPassed
	}
	return k.over
}

// finish ends the lock, if it has not ended. A belief that has ended is never taken up again. The mutex is held.
func (k *Lock) finish(why error) {
	if k.over != nil {
		return
	}
	if why == ErrLost {
		k.locks.repeat(k.key, k.farewell)
	}
	k.over = why
	k.cancel(why)
	delete(k.locks.holds, k)
	k.locks.job(-1)
}

// confirm asks once more where more than half of the lease has gone by the time the grant is known.
func (k *Lock) confirm(ctx context.Context) error {
	if k.until-now() > k.lease/2 || k.until == k.limit {
		return nil
	}
	sent := now()
	reply := k.node.call(ctx, "LOCK.RENEW", k.key, k.owner, k.lease, "TOKEN", k.token)
	if err, failed := reply.(error); failed {
		return err
	}
	if reply != any(k.token) || now() >= k.until {
		return errUnsure
	}
	k.extend(sent)
	return nil
}

// keep renews what is due, all of one server together, and notices lost locks. It checks once a second at least:
// time in which the machine slept counts.
func (l *Locks) keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped.Err() != nil && len(l.holds) == 0 {
		return
	}
	l.look = now() + time.Second
	for k := range l.holds {
		if k.state() != nil {
			continue
		}
		if sent := now(); sent >= k.next-k.lease/12 {
			k.next = forever
			k.node.send(func(reply any) { k.renewed(sent, reply) }, "LOCK.RENEW", k.key, k.owner, k.lease, "TOKEN", k.token)
		}
		l.look = min(l.look, k.next, k.until)
	}
	l.keeper.Reset(l.look - now())
}

// keep makes the keeper check in time for this lock. The mutex is held.
func (k *Lock) keep() {
	if at := min(k.next, k.until); at < k.locks.look {
		k.locks.look = at
		k.locks.keeper.Reset(at - now())
	}
}

// renewed acts on the reply to a renewal. Most errors prove nothing: the renewal is repeated until the lock is lost.
func (k *Lock) renewed(sent time.Duration, reply any) {
	k.locks.mu.Lock()
	defer k.locks.mu.Unlock()
	_, failed := reply.(error)
	switch {
	case k.state() != nil:
		return
	case failed && !isGone(reply):
		k.next = now() + k.lease/6
		go func() {
			k.locks.lookForServers(k.locks.stopped)
			k.follow()
		}()
	case reply != any(k.token): // gone, or revoked: then it shall be free
		k.rests = 0
		k.finish(ErrLost)
		return
	default:
		k.extend(sent)
	}
	k.keep()
}

// follow finds the lock's node: in a cluster its slot may move.
func (k *Lock) follow() {
	if n, err := k.locks.node(k.locks.stopped, k.key); err == nil {
		k.locks.mu.Lock()
		defer k.locks.mu.Unlock()
		k.node = n
	}
}
