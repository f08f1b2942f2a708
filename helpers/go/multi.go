package mortise

import (
	"context"
	"errors"
)

// MultiLock is several locks that were taken at once by one token. Each is a hold of its own, renewed and given back like any other.
type MultiLock struct{ locks []*Lock }

// LockAll takes the locks of 1 to 16 keys to write: all in one instant, or none. Nothing is held while it waits. In a cluster the keys
// are in one slot, as by a {hash tag}. The context is cancelled as soon as one of the locks is lost.
func (l *Locks) LockAll(ctx context.Context, keys []string, options ...Option) (*MultiLock, context.Context, error) {
	if len(keys) == 0 {
		return nil, nil, errors.New("mortise: LockAll needs a key")
	}
	r, err := newRequest("LOCK.MACQUIRE", keys[0], options)
	if err != nil {
		return nil, nil, err
	}
	r.keys = append([]string(nil), keys...)
	locks, held, err := l.acquire(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	return &MultiLock{locks}, held, nil
}

// TryLockAll takes the locks if that is possible at once, else it returns ErrBusy.
func (l *Locks) TryLockAll(ctx context.Context, keys []string, options ...Option) (*MultiLock, context.Context, error) {
	return l.LockAll(ctx, keys, append(options[:len(options):len(options)], Wait(0))...)
}

// Locks is each of them, in the order of the keys.
func (m *MultiLock) Locks() []*Lock { return m.locks }

// Token is the fencing token of all of them: see Lock.Token.
func (m *MultiLock) Token() int64 { return m.locks[0].token }

// Check returns the token if all of them are held at this moment, else why the first is not.
func (m *MultiLock) Check() (int64, error) {
	for _, k := range m.locks {
		if _, err := k.Check(); err != nil {
			return m.Token(), err
		}
	}
	return m.Token(), nil
}

// Unlock releases all of them, in one pipeline: see Lock.Unlock. It returns ErrLost if one of them was lost.
func (m *MultiLock) Unlock() error {
	ended := make(chan error, len(m.locks))
	for _, k := range m.locks {
		go func() { ended <- k.Unlock() }()
	}
	var lost error
	for range m.locks {
		if err := <-ended; err != nil {
			lost = err
		}
	}
	return lost
}

// each is the request as if each key had been asked for by itself.
func (r *request) each() []*request {
	if r.keys == nil {
		return []*request{r}
	}
	requests := make([]*request, len(r.keys))
	for i, key := range r.keys {
		one := *r
		one.key, one.keys = key, nil
		requests[i] = &one
	}
	return requests
}
