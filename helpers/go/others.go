package mortise

import (
	"cmp"
	"context"
	"math"
	"time"
)

// TakeOver goes on with a lock that was passed on to the name owner by that token: see Lock.PassTo. Of several that try, one gets it.
// The error is ErrLost if the lock is not held by that name and token, or no longer.
func (l *Locks) TakeOver(ctx context.Context, key, owner string, token int64, options ...Option) (*Lock, context.Context, error) {
	r, err := newRequest("LOCK.PASS", []string{key}, options)
	if err != nil {
		return nil, nil, err
	}
	l.job(+1)
	defer l.job(-1)
	waiting, cancel := context.WithTimeoutCause(ctx, patience, errUnsure)
	defer cancel()
	defer context.AfterFunc(l.ended, cancel)()
	k := &Lock{locks: l, request: r, owner: l.name(r)}
	err = k.takeOver(waiting, owner, token)
	if err == nil && l.replicas > 0 {
		if err = k.confirm(waiting); err != nil {
			l.leave(k.keys, k.owner)
		}
	}
	if held := l.start(ctx, k, err); held != nil {
		return k, held, nil
	}
	return nil, nil, cmp.Or(l.over(ctx), err)
}

// Resume goes on with a lock that another program holds by the name owner and that token, under the same name: to unlock it here, say. The
// other one must not go on with it. The error is ErrLost if that hold is over.
func (l *Locks) Resume(ctx context.Context, key, owner string, token int64, options ...Option) (*Lock, context.Context, error) {
	r, err := newRequest("LOCK.RENEW", []string{key}, options)
	if err != nil {
		return nil, nil, err
	}
	l.job(+1)
	defer l.job(-1)
	n, err := l.node(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	k, sent := &Lock{locks: l, node: n, request: r, owner: owner, token: token}, now()
	reply := n.renewals.callAll(ctx, k.renewal(key))[0]
	if err, _ = reply.(error); err != nil {
		l.lookForServers(ctx)
	} else if reply == nil {
		err = ErrLost
	}
	k.granted(token, sent)
	if held := l.start(ctx, k, err); held != nil {
		return k, held, nil
	}
	return nil, nil, cmp.Or(err, l.over(ctx))
}

// takeOver asks again where the server has refused only for now. If the outcome is unknown, the new name leaves.
func (k *Lock) takeOver(ctx context.Context, owner string, token int64) error {
	l := k.locks
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		sent := now()
		n, err := l.node(ctx, k.Key())
		if err != nil {
			return err
		}
		reply := n.call(ctx, "LOCK.PASS", k.Key(), owner, k.owner, k.lease, "TOKEN", token)
		switch reply := reply.(type) {
		case int64:
			k.node = n
			k.granted(reply, sent)
			return nil
		case nil:
			return ErrLost
		case error:
			err = reply
		}
		if !isRefused(err, "") {
			l.leave(k.keys, k.owner)
			return err
		}
		if !passing(err) || ctx.Err() != nil {
			return err
		}
		sleep(ctx, pause)
		l.lookForServers(ctx)
	}
}

// Revoke makes the holds of the lock, or that of owner if it is not empty (a name as LOCK.INFO shows it), end with their leases: their
// holders learn of it at their next renewal, and nobody else is granted before. It returns how long the last of them lasts at most, 0 if
// nobody holds the lock.
func (l *Locks) Revoke(ctx context.Context, key, owner string) (time.Duration, error) {
	owners := []string{owner}
	if owner == "" {
		owners = nil
		holds, err := l.holders(ctx, key)
		if err != nil {
			return 0, err
		}
		for _, hold := range holds {
			name, _ := hold["owner"].(string)
			owners = append(owners, name)
		}
	}
	var last time.Duration
	for _, name := range owners {
		reply, err := l.ask(ctx, key, "LOCK.REVOKE", key, name)
		if err != nil {
			return 0, err
		}
		if left, ok := reply.(int64); ok {
			last = max(last, time.Duration(left)*time.Millisecond)
		}
	}
	return last, nil
}

// holders asks the server who holds the lock.
func (l *Locks) holders(ctx context.Context, key string) ([]map[string]any, error) {
	reply, err := l.ask(ctx, key, "LOCK.INFO", key, "COUNT", math.MaxInt32)
	if err != nil || reply == nil {
		return nil, err
	}
	var holds []map[string]any
	list, _ := fields(reply)["holds"].([]any)
	for _, hold := range list {
		holds = append(holds, fields(hold))
	}
	return holds, nil
}

// ask sends a command about the key once.
func (l *Locks) ask(ctx context.Context, key string, command ...any) (any, error) {
	if l.ended.Err() != nil {
		return nil, ErrClosed
	}
	n, err := l.node(ctx, key)
	if err != nil {
		return nil, err
	}
	reply := n.call(ctx, command...)
	if err, failed := reply.(error); failed {
		if isRefused(err, "MOVED") {
			l.lookForServers(ctx)
		}
		return nil, err
	}
	return reply, nil
}
