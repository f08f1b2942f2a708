package mortise

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A server: commands go out in pipelines over one connection, later answers come by mail over a second one, whatever the number of locks.
// It renews held locks, and leaves names that are no longer wanted.

const (
	// timeout is how long a server may take to answer a command.
	timeout = time.Second
	// mailWait is how long one request for letters waits.
	mailWait = 2 * time.Second
	// away is for how long late requests under a name that has left change nothing.
	away = time.Minute
	// mostCommands is how many go out in one pipeline.
	mostCommands = 512
)

var (
	// errUnsure: a request's outcome is unknown, or came too late to be of use.
	errUnsure = errors.New("mortise: the server lost the request, or answered too late")
	// errNoMail: the server does not let this user wait. Whether the request is gone is unknown.
	errNoMail = errors.New("mortise: no mail")
)

type node struct {
	locks *Locks
	name  string
	queue []command
	sends bool          // the pump has something to do
	pumps bool          // there is one
	wake  chan struct{} // makes it check the queue

	box     string              // where the server puts the answers of this program's requests
	since   int64               // distinguishes the box from an earlier one of the same name
	last    int64               // the number of the last letter that was read
	doubts  bool                // somebody's request may have been put to another box than this
	listens bool                // somebody collects letters
	pending map[string]*pending // who may get one, by owner
}

type command struct {
	words []string
	reply func(any)
}

// node is the server that serves the key now.
func (l *Locks) node(ctx context.Context, key string) (*node, error) {
	name, err := l.client.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[name] == nil {
		l.nodes[name] = &node{locks: l, name: name, wake: make(chan struct{}, 1), pending: map[string]*pending{}}
	}
	return l.nodes[name], nil
}

// lookForServers asks which server serves which key now, ten times a second at most.
func (l *Locks) lookForServers(ctx context.Context) {
	last, at := l.refresh.Load(), int64(now())
	if at > last+int64(100*time.Millisecond) && l.refresh.CompareAndSwap(last, at) {
		l.client.Refresh(ctx)
	}
}

// send queues the command, and delivers its reply, or an error if the server has none. The mutex is held.
func (n *node) send(reply func(any), args ...any) {
	n.queue = append(n.queue, command{words(args...), reply})
	switch {
	case n.sends:
	case n.pumps:
		n.sends = true
		n.wake <- struct{}{}
	default:
		n.sends, n.pumps = true, true
		go n.pump()
	}
}

// pump sends what is queued, then what was queued meanwhile. It stays: a new goroutine would have to grow its stack for each command.
func (n *node) pump() {
	for {
		n.locks.mu.Lock()
		batch := n.queue[:min(len(n.queue), mostCommands)]
		n.queue = n.queue[len(batch):]
		n.sends = len(batch) > 0
		n.pumps = n.sends || n.locks.stopped.Err() == nil
		pumps := n.pumps
		n.locks.mu.Unlock()
		if !pumps {
			return
		}
		if len(batch) == 0 {
			select {
			case <-n.wake:
			case <-n.locks.stopped.Done():
			}
			continue
		}
		commands := make([][]string, len(batch))
		for i, c := range batch {
			commands[i] = c.words
		}
		ctx, cancel := context.WithTimeout(n.locks.stopped, timeout)
		replies := n.locks.client.Do(ctx, commands)
		cancel()
		for i, c := range batch {
			if err, failed := replies[i].(error); !failed || isRefused(err, "") {
				n.locks.answered.Store(true)
			}
			c.reply(replies[i])
		}
	}
}

// call sends the command and waits for its reply until ctx ends.
func (n *node) call(ctx context.Context, args ...any) any {
	replies := make(chan any, 1)
	n.locks.mu.Lock()
	n.send(func(reply any) { replies <- reply }, args...)
	n.locks.mu.Unlock()
	select {
	case reply := <-replies:
		return reply
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// grant sends a request and waits for its outcome: the token and when its lease began, if that is known; or no
// token, for denied.
func (n *node) grant(ctx context.Context, request []any, p *pending) (int64, time.Duration, error) {
	switch reply := n.call(ctx, request...).(type) {
	case int64:
		return reply, 0, nil
	case nil:
		return 0, 0, nil
	case error:
		return 0, 0, reply
	case []any:
		n.queued(p, reply)
	}
	select {
	case answer := <-p.answer:
		return answer.token, answer.begun, answer.err
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	}
}

// leave sends LOCK.LEAVE for that name until it is answered.
func (l *Locks) leave(key, owner string) {
	l.repeat(key, func() []any { return []any{"LOCK.LEAVE", key, owner, "FOR", away} })
}

// repeat sends a command, made anew each time, until it is answered.
func (l *Locks) repeat(key string, command func() []any) {
	l.job(+1)
	go func() {
		defer l.job(-1)
		for pause := firstPause; l.stopped.Err() == nil; pause = min(2*pause, lastPause) {
			n, err := l.node(l.stopped, key)
			if err == nil {
				if err, _ = n.call(l.stopped, command()...).(error); err == nil || !passing(err) {
					return
				}
			}
			sleep(l.stopped, pause)
			l.lookForServers(l.stopped)
		}
	}()
}

func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// words are those of a command; times in milliseconds, rounded up: a wait of 0 would be one without limit.
func words(args ...any) []string {
	words := make([]string, len(args))
	for i, arg := range args {
		if d, ok := arg.(time.Duration); ok {
			arg = int64((d + time.Millisecond - 1) / time.Millisecond)
		}
		words[i] = fmt.Sprint(arg)
	}
	return words
}

// pending is a request that waits for a letter.
type pending struct {
	node       *node
	box, owner string
	since      int64 // of the box that the server put it to
	answer     chan answer
}

// answer is a letter's content: a token and when its lease began, no token for denied, or why nothing can come.
type answer struct {
	token int64
	begun time.Duration
	err   error
}

// expect awaits a letter for the owner, before its request is sent: a letter may come before the request's reply.
func (n *node) expect(ctx context.Context, owner string) *pending {
	n.locks.mu.Lock()
	defer n.locks.mu.Unlock()
	if n.box == "" {
		n.locks.mu.Unlock()
		box := n.newBox(ctx)
		n.locks.mu.Lock()
		if n.box == "" { // nobody was faster
			n.box, n.since, n.last = box, 0, 0
		}
	}
	p := &pending{node: n, box: n.box, owner: owner, answer: make(chan answer, 1)}
	n.pending[owner] = p
	return p
}

func (p *pending) forget() {
	p.node.locks.mu.Lock()
	defer p.node.locks.mu.Unlock()
	delete(p.node.pending, p.owner)
}

// newBox makes up a name that is routed to this server: in a cluster a box has to be where the locks are.
func (n *node) newBox(ctx context.Context) (box string) {
	for range 100_000 {
		box = "{" + random() + "}"
		if n.serves(ctx, box) {
			break
		}
	}
	return box
}

// serves is whether the server serves the key, as far as is known.
func (n *node) serves(ctx context.Context, key string) bool {
	name, err := n.locks.client.Node(ctx, key)
	return err != nil || name == n.name
}

// queued has letters collected for a request that the server has put to the box.
func (n *node) queued(p *pending, reply []any) {
	n.locks.mu.Lock()
	defer n.locks.mu.Unlock()
	p.since, _ = reply[len(reply)-1].(int64)
	n.doubts = n.doubts || p.since != n.since
	if !n.listens {
		n.listens = true
		go n.listen()
	}
}

// listen collects letters while anybody waits for them.
func (n *node) listen() {
	l, pause := n.locks, firstPause
	for command := n.collect(); command != nil; command = n.collect() {
		if !n.serves(l.stopped, command[1]) {
			n.giveUp(errUnsure)
			continue
		}
		sent := now()
		ctx, cancel := context.WithTimeout(l.stopped, mailWait+timeout)
		reply := l.client.Mail(ctx, command)
		cancel()
		if mail, ok := reply.([]any); ok && len(mail) == 3 {
			n.read(sent, mail)
			pause = firstPause
			continue
		}
		if err, _ := reply.(error); err != nil && !passing(err) {
			n.giveUp(fmt.Errorf("%w: %v", errNoMail, err))
		}
		sleep(l.stopped, pause)
		pause = min(2*pause, lastPause)
		l.lookForServers(l.stopped)
	}
}

// collect is the command that collects letters; none when nobody waits for any.
func (n *node) collect() []string {
	n.locks.mu.Lock()
	defer n.locks.mu.Unlock()
	n.listens = len(n.pending) > 0 && n.locks.stopped.Err() == nil
	switch {
	case !n.listens:
		return nil
	case n.since == 0:
		return words("LOCK.MAIL", n.box, "WAIT", mailWait)
	}
	return words("LOCK.MAIL", n.box, "WAIT", mailWait, "AFTER", n.since, n.last)
}

// giveUp ends all waits for letters, and makes the next one wait at another box.
func (n *node) giveUp(err error) {
	n.locks.mu.Lock()
	defer n.locks.mu.Unlock()
	n.box = ""
	for _, p := range n.pending {
		p.settle(answer{err: err})
	}
}

// settle sets the answer once. The mutex is held.
func (p *pending) settle(a answer) {
	delete(p.node.pending, p.owner)
	p.answer <- a
}

// read hands letters out. A request that was made to another box than this is gone.
func (n *node) read(sent time.Duration, mail []any) {
	n.locks.mu.Lock()
	defer n.locks.mu.Unlock()
	since, _ := mail[0].(int64)
	n.since, n.doubts = since, n.doubts || since != n.since
	waited, _ := mail[1].(int64)
	letters, _ := mail[2].([]any)
	for _, l := range letters {
		letter := fields(l)
		number, _ := letter["number"].(int64)
		if number <= n.last { // numbers grow from box to box, too
			continue
		}
		n.last = number
		owner, _ := letter["owner"].(string)
		var a answer
		switch letter["result"] {
		case "granted":
			a.token, _ = letter["token"].(int64)
			age, _ := letter["age"].(int64)
			a.begun = sent + time.Duration(waited-age)*time.Millisecond
		case "refused":
			text, _ := letter["error"].(string)
			a.err = NewRefused(text)
		}
		if p := n.pending[owner]; p != nil {
			p.settle(a)
		} else if a.token != 0 {
			keys, several := letter["keys"].([]any)
			if !several {
				keys = []any{letter["key"]}
			}
			for _, key := range keys {
				n.locks.leave(fmt.Sprint(key), owner)
			}
		}
	}
	if !n.doubts { // not checked with every letter: there may be tens of thousands
		return
	}
	n.doubts = false
	for _, p := range n.pending {
		if p.since != 0 && p.since != n.since {
			p.settle(answer{err: errUnsure})
		}
	}
}

// fields reads a map, which is a flat array in RESP2.
func fields(reply any) map[string]any {
	read := map[string]any{}
	flat, _ := reply.([]any)
	for i := 0; i+1 < len(flat); i += 2 {
		read[fmt.Sprint(flat[i])] = flat[i+1]
	}
	return read
}
