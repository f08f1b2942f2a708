package mortise

import (
	"context"
	"slices"
	"time"
)

// Lock is a lock that is held, or several that were taken at once, until Unlock or until it is lost.
type Lock struct {
	*request
	locks *Locks
	owner string
	token int64
	limit time.Duration // of MaxHold, on the clock of now()

	until  time.Duration // it counts as held until then
	next   time.Duration // when it is to be renewed
	passes bool          // it is being passed on: nobody may rely on it
	over   error         // ErrLost, ErrUnlocked or ErrPassed
	held   context.Context
	cancel context.CancelCauseFunc
}

// Key is the key of the lock, or the first of several.
func (k *Lock) Key() string { return k.keys[0] }

// Keys are the keys of the locks, in the order in which LockAll got them.
func (k *Lock) Keys() []string { return slices.Clone(k.keys) }

// Token is the fencing token, larger than that of every grant before. Send it along with what you write, and
// refuse a write whose token is smaller than one that was seen already.
func (k *Lock) Token() int64 { return k.token }

// Guard turns a command of Redis into one that runs only while the lock is held, which the server checks in the same moment:
//
//	rdb.Do(held, lock.Guard("SET", "stock", 5)...)
//
// If it is not held, the reply is an error that begins with NOTHELD. For data on the lock's server, in the slot of
// its key, no token has to be compared. Send it over a client that does not repeat commands by itself. Of several locks, the server checks
// the first.
func (k *Lock) Guard(words ...any) []any {
	return append([]any{"LOCK.GUARD", k.Key(), k.owner, k.token}, words...)
}

// Check returns the token if the lock is held at this moment, else ErrLost, ErrUnlocked or ErrPassed.
func (k *Lock) Check() (int64, error) {
	k.locks.mu.Lock()
	defer k.locks.mu.Unlock()
	return k.token, k.state()
}

// Unlock releases the lock. It returns nil if the lock was held to the last moment, else ErrLost. It takes no context, because a lock has
// to be released above all when the context has ended. If a server does not answer, the library leaves the lock in the background.
func (k *Lock) Unlock() error {
	k.locks.job(+1)
	defer k.locks.job(-1)
	k.locks.mu.Lock()
	over := k.state()
	k.finish(ErrUnlocked)
	k.locks.mu.Unlock()
	var replies []any
	if over == nil {
		replies = k.locks.call(k.locks.stopped, k.Key(), k.each("LOCK.RELEASE", k.owner, "ALL", "TOKEN", number(k.token))...)
	}
	if slices.ContainsFunc(replies, isFailure) {
		k.leave(k.owner)
	}
	if over == ErrLost || slices.ContainsFunc(replies, isGone) {
		return ErrLost
	}
	return nil
}

// each is a command for each of the keys.
func (k *Lock) each(command string, more ...string) [][]string {
	commands := make([][]string, len(k.keys))
	for i, key := range k.keys {
		commands[i] = append([]string{command, key}, more...)
	}
	return commands
}

// start makes the lock the caller's, if the locks are not closed and ctx has not ended.
func (k *Lock) start(ctx context.Context) error {
	l := k.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.over(ctx); err != nil {
		return err
	}
	k.held, k.cancel = context.WithCancelCause(ctx)
	l.job(+1)
	l.holds[k] = struct{}{}
	k.watch()
	return nil
}

// extend counts the lock as held until a lease after begun, less what clocks may differ by. It never shortens that.
func (k *Lock) extend(begun time.Duration) {
	k.until = min(max(k.until, begun+k.lease-k.lease/100-2*time.Millisecond), k.limit)
	k.next = (begun + k.lease/3).Truncate(k.lease / 12) // so that locks are renewed together
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
		k.leave(k.owner)
	}
	k.over = why
	k.cancel(why)
	delete(k.locks.holds, k)
	k.locks.job(-1)
}

// granted takes the server's answer: the token, and when the lease began at the earliest. It asks once more where replicas have to confirm
// the lock, or where more than half of the lease has gone by now.
func (k *Lock) granted(ctx context.Context, token int64, begun time.Duration) error {
	at := now()
	k.token, k.limit = token, at+k.maxHold
	k.extend(begun)
	if k.locks.replicas == 0 && (k.until-at > k.lease/2 || k.until == k.limit) {
		return nil
	}
	for _, reply := range k.renew(ctx) {
		if err, failed := reply.(error); failed {
			return err
		}
		if reply != any(k.token) || now() >= k.until {
			return errUnsure
		}
	}
	k.extend(at)
	return nil
}

// renew sends a renewal for each of the keys, and waits for the replies.
func (k *Lock) renew(ctx context.Context) []any {
	return k.locks.call(ctx, k.Key(), k.each("LOCK.RENEW", k.owner, ms(k.lease), "TOKEN", number(k.token))...)
}

// keep renews all locks for which that is due, and notices which were lost.
func (l *Locks) keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = forever
	for k := range l.holds {
		if k.state() != nil {
			continue
		}
		if sent := now(); sent >= k.next {
			k.next = forever
			go func() { k.renewed(sent, k.renew(l.stopped)) }()
		}
		k.watch()
	}
}

// watch has the locks kept as soon as there is something to do for this one: within a second, because time in which the machine slept
// counts. One timer does that for all: to start one wakes a processor. The mutex is held.
func (k *Lock) watch() {
	l, at := k.locks, now()
	// Between two looks at all locks it rests, so that many of them do not keep a processor busy, but leaves each one time for a renewal.
	rest := min(time.Duration(len(l.holds))*5*time.Microsecond, time.Second, (k.until-at)/3)
	if due := min(max(min(k.next, at+time.Second), at+rest), k.until); due < l.due {
		l.due = due
		l.keeper.Reset(due - at)
	}
}

// renewed acts on the replies to a renewal. Most errors prove nothing: the renewal is repeated until the lock is lost.
func (k *Lock) renewed(sent time.Duration, replies []any) {
	k.locks.mu.Lock()
	defer k.locks.mu.Unlock()
	switch {
	case k.state() != nil:
		return
	case slices.ContainsFunc(replies, func(reply any) bool { return !isFailure(reply) && reply != any(k.token) }):
		k.finish(ErrLost) // gone, or revoked: then it shall be free
		return
	case slices.ContainsFunc(replies, isFailure):
		k.next = now() + k.lease/6
	default:
		k.extend(sent)
	}
	k.watch()
}
