package mortise

import (
	"context"
	"math"
	"time"
)

// TakeOver goes on with a lock that was passed on to the name owner by that token: see Lock.PassTo. Of several that try, one gets it.
// The error is ErrLost if the lock is not held by that name and token, or no longer.
func (l *Locks) TakeOver(ctx context.Context, key, owner string, token int64, options ...Option) (*Lock, context.Context, error) {
	r := newRequest([]string{key}, options)
	r.wait, r.none = patience, ErrLost
	r.words = func(own string) []string {
		return []string{"LOCK.PASS", key, owner, own, ms(r.lease), "TOKEN", number(token)}
	}
	return l.take(ctx, r)
}

// Resume goes on with a lock that another program holds by the name owner and that token, under the same name: to unlock it here, say. The
// other one must not go on with it. The error is ErrLost if that hold is over.
func (l *Locks) Resume(ctx context.Context, key, owner string, token int64, options ...Option) (*Lock, context.Context, error) {
	r := newRequest([]string{key}, options)
	r.wait, r.none, r.owner = patience, ErrLost, owner
	r.words = func(own string) []string {
		return []string{"LOCK.RENEW", key, own, ms(r.lease), "TOKEN", number(token)}
	}
	return l.take(ctx, r)
}

// Revoke makes the holds of the lock, or that of owner if it is not empty (a name as LOCK.INFO shows it), end with their leases: their
// holders learn of it at their next renewal, and nobody else is granted before. It returns how long the last of them lasts at most, 0 if
// nobody holds the lock.
func (l *Locks) Revoke(ctx context.Context, key, owner string) (time.Duration, error) {
	holds := []map[string]any{{"owner": owner}}
	if owner == "" {
		var err error
		if holds, err = l.holders(ctx, key); err != nil {
			return 0, err
		}
	}
	var last time.Duration
	for _, hold := range holds {
		name, _ := hold["owner"].(string)
		reply, err := l.ask(ctx, key, "LOCK.REVOKE", key, name)
		if err != nil {
			return 0, err
		}
		left, _ := reply.(int64)
		last = max(last, time.Duration(left)*time.Millisecond)
	}
	return last, nil
}

// holders asks the server who holds the lock.
func (l *Locks) holders(ctx context.Context, key string) (holds []map[string]any, err error) {
	reply, err := l.ask(ctx, key, "LOCK.INFO", key, "COUNT", number(math.MaxInt32))
	list, _ := fields(reply)["holds"].([]any)
	for _, hold := range list {
		holds = append(holds, fields(hold))
	}
	return holds, err
}

// ask sends a command about the key once.
func (l *Locks) ask(ctx context.Context, key string, command ...string) (any, error) {
	if l.ended.Err() != nil {
		return nil, ErrClosed
	}
	reply := l.call(ctx, key, command)[0]
	err, _ := reply.(error)
	if err != nil {
		err = l.withEnd(ctx, err)
	}
	return reply, err
}
