package mortise

import (
	"context"
	"errors"
	"slices"
	"time"
)

// PassTo gives the lock to another name with that lease, and nobody is granted in between. It returns the new token: a program that knows
// the token and the name goes on with TakeOver. The error is ErrLost if the lock was lost before, or a *Refused, after which it is held as
// before. When the outcome is unknown, both names leave the lock. Several locks that were taken at once cannot be passed on: each would get a
// token of its own.
func (k *Lock) PassTo(ctx context.Context, owner string, lease time.Duration) (int64, error) {
	if len(k.keys) > 1 {
		return 0, errors.New("mortise: several locks that were taken at once cannot be passed on")
	}
	return k.pass(ctx, owner, lease, ErrPassed)
}

// KeepFor unlocks the lock, but keeps it taken for d from now: a job then runs once in that time, however short it is. It passes the lock to
// a name that nobody uses; the errors are those of PassTo, and an *Unconfirmed if the lock is kept but too few replicas know that.
func (k *Lock) KeepFor(ctx context.Context, d time.Duration) error {
	nobody := k.locks.name(&request{})
	_, err := k.pass(ctx, nobody, d, ErrUnlocked)
	if err != nil || k.locks.replicas == 0 {
		return err
	}
	for _, reply := range k.locks.call(ctx, k.Key(), k.each("LOCK.RENEW", nobody, ms(d))...) {
		if failed, ok := reply.(error); ok {
			err = k.locks.withEnd(ctx, failed)
		}
	}
	return err
}

// pass passes the locks on to owner. If the server passed only some of them, or the outcome is unknown, both names leave all of them.
func (k *Lock) pass(ctx context.Context, owner string, lease time.Duration, why error) (token int64, err error) {
	k.locks.job(+1)
	defer k.locks.job(-1)
	k.locks.mu.Lock()
	over := k.state()
	k.passes = k.passes || over == nil // another call may be passing it on
	k.locks.mu.Unlock()
	if over != nil {
		return 0, over
	}
	replies := k.locks.call(ctx, k.Key(), k.each("LOCK.PASS", k.owner, owner, ms(lease), "TOKEN", number(k.token))...)
	k.locks.mu.Lock()
	defer k.locks.mu.Unlock()
	k.passes = false
	for _, reply := range replies {
		switch reply := reply.(type) {
		case int64:
			token = max(token, reply)
		case error:
			err = k.locks.withEnd(ctx, reply)
		}
	}
	switch {
	case slices.ContainsFunc(replies, isGone):
		k.finish(ErrLost)
		if token != 0 || slices.ContainsFunc(replies, isUnknown) {
			k.leave(owner)
		}
		return 0, ErrLost
	case err == nil:
		k.finish(why)
		return token, nil
	case token == 0 && !slices.ContainsFunc(replies, isUnknown) && k.over == nil: // it has changed nothing
		k.next = min(k.next, now())
		k.watch()
		return 0, err
	}
	k.finish(ErrLost)
	k.leave(k.owner)
	k.leave(owner)
	return 0, err
}
