package mortise

import (
	"context"
	"strconv"
	"time"
)

// How a lock is believed, renewed and lost, and how a name is left.

const (
	forever    = time.Duration(1<<63 - 1)
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
	// timeout is how long a server may take to answer a command.
	timeout = time.Second
	// away is for how long what still arrives under a name that was left changes nothing.
	away = "60000"
)

// extend believes the lock until a lease after begun, less what clocks may differ by. k.mu is held, or k is new.
func (k *Lock) extend(begun time.Duration) {
	until := begun + k.lease - k.lease/100 - 2*time.Millisecond
	k.until = min(max(k.until, until), k.limit)
	k.asked = max(k.asked, begun)
}

// confirm asks once more where more than half of the lease has gone by the time the grant is known.
func (k *Lock) confirm(ctx context.Context) error {
	if k.until-now() > k.lease/2 || k.limit != forever && k.until == k.limit {
		return nil
	}
	sent := now()
	switch reply := k.node.call(ctx, "LOCK.RENEW", k.key, k.owner, millis(k.lease), "TOKEN", decimal(k.token)).(type) {
	case int64:
		if reply == k.token && now() < k.until {
			k.extend(sent)
			return nil
		}
	case error:
		return reply
	}
	return errUnsure
}

// start makes the lock the caller's.
func (k *Lock) start(ctx context.Context) context.Context {
	held, cancel := context.WithCancelCause(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cancel = cancel
	k.alarm = time.AfterFunc(k.until-now(), k.ring)
	l := k.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds[k] = struct{}{}
	if k.lease/6 < l.period {
		select {
		case l.hurry <- struct{}{}:
		default:
		}
	}
	return held
}

// ring is called where the belief may have run out.
func (k *Lock) ring() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if left := k.until - now(); k.over == nil && left > 0 {
		k.alarm.Reset(left)
	} else {
		k.finish(ErrLost)
	}
}

// finish ends the lock, if it has not ended. A belief that has ended is never taken up again. k.mu is held.
func (k *Lock) finish(why error) bool {
	if k.over != nil {
		return false
	}
	if why == ErrLost {
		k.locks.leave(k.key, k.owner)
	}
	k.over = why
	k.alarm.Stop()
	k.cancel(why)
	k.locks.mu.Lock()
	defer k.locks.mu.Unlock()
	delete(k.locks.holds, k)
	k.locks.settleQuiet()
	return true
}

// keep renews what is held, at a third of its lease at the latest, all of one server together.
func (l *Locks) keep() {
	for l.ended.Err() == nil {
		period, holds := time.Second, []*Lock{}
		l.mu.Lock()
		for k := range l.holds {
			holds, period = append(holds, k), min(period, k.lease/6)
		}
		period = max(period, 2*time.Millisecond)
		l.period = period
		l.mu.Unlock()
		due := map[*node][]*Lock{}
		for _, k := range holds {
			if k.due(period) {
				n := k.at()
				due[n] = append(due[n], k)
			}
		}
		for n, locks := range due {
			go n.renew(locks)
		}
		select {
		case <-time.After(period):
		case <-l.hurry:
		case <-l.ended.Done():
		}
	}
}

// due says that the lock has to be renewed before it is looked at again.
func (k *Lock) due(period time.Duration) bool {
	if _, err := k.Check(); err != nil { // time asleep counts here
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.renewal || now()+period < k.asked+k.lease/3 || k.until == k.limit {
		return false
	}
	k.renewal = true
	return true
}

func (n *node) renew(locks []*Lock) {
	sent, replies := now(), make([]<-chan any, len(locks))
	for i, k := range locks {
		replies[i] = n.send("LOCK.RENEW", k.key, k.owner, millis(k.lease), "TOKEN", decimal(k.token))
	}
	for i, k := range locks {
		reply := <-replies[i]
		k.renewed(sent, reply)
		if _, failed := reply.(error); failed {
			n.locks.refresh(n.locks.stopped)
		}
	}
}

// at is the server that the lock is on: in a cluster its slot may move.
func (k *Lock) at() *node {
	if n, err := k.locks.node(k.locks.stopped, k.key); err == nil {
		return n
	}
	return k.node
}

// renewed hears what became of a renewal. An error says nothing: it is tried again until the lock is lost.
func (k *Lock) renewed(sent time.Duration, reply any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewal = false
	token, known := reply.(int64)
	switch {
	case k.over != nil:
	case reply == nil, now() >= k.until, known && token != k.token:
		k.finish(ErrLost)
	case known:
		k.extend(sent)
		k.alarm.Reset(k.until - now())
	}
}

// leave says, until it is answered, that nothing is wanted under that name any more.
func (l *Locks) leave(key, owner string) {
	l.job(+1)
	go func() {
		defer l.job(-1)
		for pause := firstPause; l.stopped.Err() == nil; pause = min(2*pause, lastPause) {
			n, err := l.node(l.stopped, key)
			if err == nil {
				reply := <-n.send("LOCK.LEAVE", key, owner, "FOR", away)
				if err, _ = reply.(error); err == nil || !passing(err) {
					return
				}
			}
			sleep(pause, l.stopped.Done(), nil)
			l.refresh(l.stopped)
		}
	}()
}

func sleep(pause time.Duration, stop, end <-chan struct{}) {
	select {
	case <-time.After(pause):
	case <-stop:
	case <-end:
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// millis rounds up: a wait of 0 would be one without limit.
func millis(d time.Duration) string {
	return decimal(max(int64((d-1)/time.Millisecond)+1, 1))
}
