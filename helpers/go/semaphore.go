package mortise

import "context"

// Semaphore limits the number of permits that are out at the same time, in all programs together. A permit is a shared hold: Lock of
// the same key drains the pool. All users of a key pass the same limit; the server stores none.
type Semaphore struct {
	locks *Locks
	key   string
	limit int
}

// Semaphore is the one with that many permits on this key.
func (l *Locks) Semaphore(key string, limit int) *Semaphore {
	return &Semaphore{l, key, limit}
}

// Acquire takes n permits at once, or none. Unlock of the returned lock gives all of them back.
func (s *Semaphore) Acquire(ctx context.Context, n int, options ...Option) (*Lock, context.Context, error) {
	return s.locks.takeOne(ctx, "LOCK.RLOCK", s.key, options, "HOLDS", number(int64(n)), "LIMIT", number(int64(s.limit)))
}

// TryAcquire takes n permits if that is possible at once, else it returns ErrBusy.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, options ...Option) (*Lock, context.Context, error) {
	return s.Acquire(ctx, n, append(options[:len(options):len(options)], Wait(0))...)
}

// Available returns the number of free permits: none while Lock has drained the pool.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	holds, err := s.locks.holders(ctx, s.key)
	if err != nil {
		return 0, err
	}
	taken := 0
	for _, hold := range holds {
		if count, _ := hold["write"].(int64); count > 0 {
			return 0, nil
		}
		count, _ := hold["read"].(int64)
		taken += int(count)
	}
	return max(0, s.limit-taken), nil
}
