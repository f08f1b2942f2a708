package mortise

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// A server: commands go out in pipelines over one connection, whatever the number of locks; with replicas, renewals over another. It leaves
// names that are no longer wanted.

const (
	// timeout is how long a server may take to answer a command.
	timeout = 2 * time.Second
	// late is how long after the end of a wait its answer may still come.
	late = time.Second
	// away is for how long late requests under a name that has left change nothing.
	away = time.Minute
	// idle is for how long a connection counts as whole without a reply.
	idle = time.Second
)

// errUnsure: a request's outcome is unknown, or came too late to be of use.
var errUnsure = errors.New("mortise: the server lost the request, or answered too late")

type node struct {
	locks              *Locks
	name               string
	commands, renewals *pipeline // the latter only where replicas confirm them

	letters *link
	box     string              // where the server puts the answers of this program's requests
	since   int64               // distinguishes the box from an earlier one of the same name
	last    int64               // the number of the last letter that was read
	listens bool                // somebody collects letters
	pending map[string]*pending // who may get one, by owner
}

// node is the server that serves the key now.
func (l *Locks) node(ctx context.Context, key string) (*node, error) {
	name, err := l.client.Node(ctx, key)
	if err != nil {
		l.lookForServers()
		return nil, err
	}
	return l.named(ctx, name), nil
}

// call sends commands about the key to the server that serves it now, and waits for their replies until ctx ends. Replies to renewals count once
// replicas have confirmed them.
func (l *Locks) call(ctx context.Context, key string, commands ...[]string) []any {
	n, err := l.node(ctx, key)
	if err != nil {
		return []any{err}
	}
	if l.replicas > 0 && commands[0][0] == "LOCK.RENEW" {
		return n.renewals.callAll(ctx, commands...)
	}
	return n.commands.callAll(ctx, commands...)
}

// named is the server of that name.
func (l *Locks) named(ctx context.Context, name string) *node {
	if known, ok := l.nodes.Load(name); ok {
		return known.(*node)
	}
	n := &node{locks: l, name: name, pending: map[string]*pending{}}
	n.commands, n.renewals = n.pipeline(0), n.pipeline(l.replicas)
	n.letters = &link{node: n, limit: mailWait + timeout}
	n.box = n.newBox(ctx)
	first, _ := l.nodes.LoadOrStore(name, n) // another goroutine may have stored it first
	return first.(*node)
}

// lookForServers asks which server serves which key now, ten times a second at most. It lets nobody wait: a server may be silent, and locks
// at the others shall not notice.
func (l *Locks) lookForServers() {
	if l.looking.CompareAndSwap(false, true) {
		go func() {
			l.client.Refresh(l.stopped)
			sleep(l.stopped, 100*time.Millisecond)
			l.looking.Store(false)
		}()
	}
}

// confirm sends renewals and then WAIT, in one write: WAIT is about what its connection has written. The reply to each renewal that too few
// replicas have is an *Unconfirmed; the server may have a successor then, to which all its connections shall lead. Where no replica
// confirms, it only sends commands.
func (k *link) confirm(renewals [][]string) []any {
	if k.replicas == 0 {
		return k.do(renewals)
	}
	replies := k.do(append(renewals, []string{"WAIT", strconv.Itoa(k.replicas), ms(confirmLimit)}))
	had, _ := replies[len(renewals)].(int64)
	replies = replies[:len(renewals)]
	if int(had) >= k.replicas {
		return replies
	}
	for _, each := range []*link{k.node.commands.link, k.node.letters, k} {
		each.stale.Store(true)
	}
	for i, reply := range replies {
		if _, failed := reply.(error); !failed && reply != nil {
			replies[i] = &Unconfirmed{k.replicas, int(had)}
		}
	}
	return replies
}

// link is one connection to a server. It opens when it is needed, and anew after any trouble.
type link struct {
	node     *node
	limit    time.Duration // of a reply
	replicas int           // that have to be attached to the server when it opens
	open     Conn
	forget   func() bool // ends that it is closed when all is
	used     time.Time   // when it last replied without an error
	stale    atomic.Bool // it shall open anew
}

// isWhole is whether it is open, and has replied without an error within the last second: go-redis and rueidis themselves repeat the error
// by which a server refused to open one.
func (k *link) isWhole() bool { return k.open != nil && !k.stale.Load() && time.Since(k.used) <= idle }

// do sends the commands in one write. There is one call at a time. A connection that was not used for a second may be gone: PING shows that,
// and costs no command its reply. All of it together takes as long as a reply at most.
func (k *link) do(commands [][]string) []any {
	if k.isWhole() {
		return k.ask(context.Background(), commands)
	}
	ctx, cancel := context.WithTimeout(k.node.locks.stopped, k.limit)
	defer cancel()
	if k.open != nil && !k.stale.Load() {
		k.ask(ctx, [][]string{{"PING"}})
	}
	if k.open != nil && !k.isWhole() {
		k.close()
	}
	if k.open == nil {
		if err := k.connect(ctx); err != nil {
			return slices.Repeat([]any{err}, len(commands))
		}
	}
	return k.ask(ctx, commands)
}

func (k *link) ask(ctx context.Context, commands [][]string) []any {
	replies := k.open.Do(ctx, commands)
	if _, failed := replies[len(replies)-1].(error); !failed {
		k.used = time.Now()
	}
	unknown := slices.ContainsFunc(replies, isUnknown)
	if !unknown {
		k.node.locks.answered.Store(true)
	}
	if unknown || slices.ContainsFunc(replies, isMisdirected) {
		k.close()
	}
	return replies
}

// connect opens it. Before it has written anything, WAIT counts the replicas that are attached.
func (k *link) connect(ctx context.Context) error {
	if end, ends := ctx.Deadline(); ends && time.Until(end) <= 0 { // which ctx.Err may not show yet
		return context.DeadlineExceeded // PING had no reply
	}
	k.stale.Store(false)
	l := k.node.locks
	open, err := l.client.Connect(k.node.name, k.limit)
	if err != nil {
		return err
	}
	k.open, k.used, k.forget = open, time.Time{}, context.AfterFunc(l.stopped, open.Close)
	if k.replicas == 0 {
		return nil
	}
	reply := k.ask(ctx, [][]string{{"WAIT", strconv.Itoa(k.replicas), ms(confirmLimit)}})[0]
	had, counted := reply.(int64)
	if int(had) >= k.replicas {
		return nil
	}
	k.stale.Store(true)
	if err, _ := reply.(error); !counted && !isRefused(err, "ERR") { // else it is a replica by now
		return err
	}
	return &Unconfirmed{k.replicas, int(had)}
}

func (k *link) close() {
	k.forget()
	k.open.Close()
	k.open = nil
}

// pipeline sends what is queued in one write, and then what was queued meanwhile. One of those who wait for replies sends for all.
type pipeline struct {
	*link
	queue []group
	turn  chan struct{} // holds a value while a goroutine sends
}

// group is commands that are sent one after the other.
type group struct {
	commands [][]string
	replies  chan []any
}

func (n *node) pipeline(replicas int) *pipeline {
	return &pipeline{link: &link{node: n, limit: timeout, replicas: replicas}, turn: make(chan struct{}, 1)}
}

// send sends what is queued, if anything is. The caller has the turn, and gives it back here.
func (p *pipeline) send() {
	l := p.node.locks
	l.mu.Lock()
	batch := p.queue
	p.queue = nil
	l.mu.Unlock()
	if len(batch) > 0 {
		commands := batch[0].commands
		for _, queued := range batch[1:] {
			commands = append(commands, queued.commands...)
		}
		replies := p.confirm(commands)
		if slices.ContainsFunc(replies, passing) {
			l.lookForServers()
		}
		for _, queued := range batch {
			n := len(queued.commands)
			queued.replies <- replies[:n:n]
			replies = replies[n:]
		}
	}
	<-p.turn
}

// callAll sends the commands, one after the other, and waits for their replies until ctx ends. Commands whose slot is moving are repeated
// where it moves to; of renewals that replicas confirm, none is.
func (p *pipeline) callAll(ctx context.Context, commands ...[]string) []any {
	l, arrived := p.node.locks, make(chan []any, 1)
	l.mu.Lock()
	p.queue = append(p.queue, group{commands, arrived})
	l.mu.Unlock()
	turn := p.turn
	for {
		select {
		case turn <- struct{}{}:
			turn = nil // its own commands are among those
			if p.isWhole() {
				p.send() // from this goroutine: to wake another takes long
			} else {
				go p.send() // because to open a connection may take longer than ctx lasts
			}
		case replies := <-arrived:
			for i, reply := range replies {
				if to := target(reply, p.node.name); to != "" && p == p.node.commands {
					replies[i] = l.named(ctx, to).commands.callAll(ctx, []string{"ASKING"}, commands[i])[1]
				}
			}
			return replies
		case <-ctx.Done():
			go func() { p.turn <- struct{}{}; p.send() }() // now, or they might be sent much later
			return slices.Repeat([]any{errUnsure}, len(commands))
		case <-l.stopped.Done():
			return slices.Repeat([]any{ErrClosed}, len(commands))
		}
	}
}

// leave sends LOCK.LEAVE for that name until it is answered, for each key. While the server does not let this program in, it tries that for
// a lease.
func (k *Lock) leave(owner string) {
	l := k.locks
	l.job(+1)
	go func() {
		defer l.job(-1)
		leaves, end := k.each("LOCK.LEAVE", owner, "FOR", ms(away)), now()+k.lease
		for pause := firstPause; l.stopped.Err() == nil; pause = min(2*pause, lastPause) {
			replies := l.call(l.stopped, k.Key(), leaves...)
			mayBeLetIn := slices.ContainsFunc(replies, isShutOut) && now() < end
			if !mayBeLetIn && !slices.ContainsFunc(replies, passing) {
				return
			}
			sleep(l.stopped, pause)
		}
	}()
}

func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// ms is a time in milliseconds, rounded up: a wait of 0 would be one without limit.
func ms(d time.Duration) string { return number(int64((d + time.Millisecond - 1) / time.Millisecond)) }

func number(n int64) string { return strconv.FormatInt(n, 10) }
