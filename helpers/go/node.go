package mortise

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A server: what it is asked goes out in pipelines of one connection, what it answers later comes by mail over a
// second one, whatever the number of locks.

var (
	// errUnsure says that a request's outcome is not known, or came too late to be of use.
	errUnsure = errors.New("mortise: the server lost the request, or answered too late")
	// mostCommands is how many go out in one pipeline.
	mostCommands = 512
)

type node struct {
	locks *Locks
	name  string

	mu      sync.Mutex
	queue   []command
	sending bool
	box     *box
}

type command struct {
	words []string
	reply chan any
}

// node is the server that serves the key now.
func (l *Locks) node(ctx context.Context, key string) (*node, error) {
	name, err := l.client.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[name]
	if n == nil {
		n = &node{locks: l, name: name}
		l.nodes[name] = n
	}
	return n, nil
}

// refresh looks for the servers again, ten times a second at most.
func (l *Locks) refresh(ctx context.Context) {
	l.mu.Lock()
	soon := l.refreshed != 0 && now() < l.refreshed+100*time.Millisecond
	if !soon {
		l.refreshed = now()
	}
	l.mu.Unlock()
	if !soon {
		l.client.Refresh(ctx)
	}
}

// send has the command sent. It never blocks, and there always is a reply: an error where the server has none.
func (n *node) send(words ...string) <-chan any {
	reply := make(chan any, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = append(n.queue, command{words, reply})
	if !n.sending {
		n.sending = true
		go n.pump()
	}
	return reply
}

// pump sends what is queued, then what was queued meanwhile, until there is nothing.
func (n *node) pump() {
	for {
		n.mu.Lock()
		batch := n.queue[:min(len(n.queue), mostCommands)]
		n.queue = n.queue[len(batch):]
		n.sending = len(batch) > 0
		n.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		words := make([][]string, len(batch))
		for i, c := range batch {
			words[i] = c.words
		}
		ctx, cancel := context.WithTimeout(n.locks.stopped, timeout)
		replies := n.locks.client.Do(ctx, words)
		cancel()
		for i, c := range batch {
			err, _ := replies[i].(error)
			var refused *Refused
			if err == nil || errors.As(err, &refused) {
				n.locks.answered.Store(true)
			}
			c.reply <- replies[i]
		}
	}
}

// call sends the command and awaits its reply until ctx ends.
func (n *node) call(ctx context.Context, words ...string) any {
	select {
	case reply := <-n.send(words...):
		return reply
	case <-ctx.Done():
		return ctx.Err()
	case <-n.locks.ended.Done():
		return ErrClosed
	}
}

// grant sends a request and awaits what becomes of it: the token and when its lease began, if that is known; or no
// token, for denied.
func (n *node) grant(ctx context.Context, words []string, p *pending, left time.Duration) (int64, time.Duration, error) {
	switch reply := n.call(ctx, words...).(type) {
	case int64:
		return reply, 0, nil
	case nil:
		return 0, 0, nil
	case error:
		return 0, 0, reply
	case []any:
		p.queued(reply)
	}
	var late <-chan time.Time
	if left != forever {
		late = time.After(left + 2*timeout)
	}
	select {
	case answer := <-p.answer:
		return answer.token, answer.begun, answer.err
	case <-late:
		return 0, 0, errUnsure
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-n.locks.ended.Done():
		return 0, 0, ErrClosed
	}
}

// box is where a server puts the answers of this program's requests. It lives while it is of use.
type box struct {
	node *node
	name string

	mu      sync.Mutex
	pending map[string]*pending
	since   int64 // tells this box from an earlier one of the same name
	after   int64 // the last letter that was read
	used    time.Duration
}

// pending is a request that waits for a letter.
type pending struct {
	box    *box
	owner  string
	since  int64
	answer chan answer
}

type answer struct {
	token int64
	begun time.Duration
	err   error
}

// expect awaits letters for the owner, before its request is sent: a letter may come before the request's reply.
func (n *node) expect(ctx context.Context, owner string) *pending {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.box == nil || n.box.misplaced(ctx) {
		n.box = &box{node: n, name: n.boxName(ctx), pending: map[string]*pending{}}
		go n.box.listen()
	}
	p := &pending{box: n.box, owner: owner, answer: make(chan answer, 1)}
	p.box.mu.Lock()
	defer p.box.mu.Unlock()
	p.box.pending[owner] = p
	return p
}

// boxName makes up a name that is routed to this server, as in a cluster the box has to be where the locks are.
func (n *node) boxName(ctx context.Context) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("{%s}", n.locks.name(""))
		if at, err := n.locks.client.Node(ctx, name); err != nil || at == n.name || i > 100000 {
			return name
		}
	}
}

func (b *box) misplaced(ctx context.Context) bool {
	at, err := b.node.locks.client.Node(ctx, b.name)
	return err == nil && at != b.node.name
}

// queued hears which box the server put the request to.
func (p *pending) queued(reply []any) {
	p.box.mu.Lock()
	defer p.box.mu.Unlock()
	if len(reply) > 1 {
		p.since, _ = reply[1].(int64)
	}
}

func (p *pending) forget() {
	p.box.mu.Lock()
	defer p.box.mu.Unlock()
	delete(p.box.pending, p.owner)
}

// listen collects letters until nobody has waited for any for a while, or the box is not where the locks are.
func (b *box) listen() {
	l, pause := b.node.locks, firstPause
	for {
		words := []string{"LOCK.MAIL", b.name, "WAIT", "2000"}
		if b.since != 0 {
			words = append(words, "AFTER", decimal(b.since), decimal(b.after))
		}
		sent := now()
		ctx, cancel := context.WithTimeout(l.stopped, 2*time.Second+timeout)
		reply := l.client.Mail(ctx, words)
		cancel()
		if mail, ok := reply.([]any); ok && len(mail) == 3 {
			b.read(sent, mail)
			pause = firstPause
		} else {
			if err, _ := reply.(error); err != nil && !passing(err) {
				b.giveUp(&noMail{err})
			}
			sleep(pause, l.stopped.Done(), nil)
			pause = min(2*pause, lastPause)
			l.refresh(l.stopped)
		}
		if b.ends() {
			return
		}
	}
}

// ends says whether the box is of no use any more, and if so takes it out of it.
func (b *box) ends() bool {
	l, away := b.node.locks, b.misplaced(b.node.locks.stopped)
	b.node.mu.Lock()
	defer b.node.mu.Unlock()
	b.mu.Lock()
	if len(b.pending) > 0 || b.used == 0 {
		b.used = now()
	}
	ends := away || l.stopped.Err() != nil || now()-b.used > 10*time.Second
	b.mu.Unlock()
	if ends {
		if b.node.box == b {
			b.node.box = nil
		}
		b.giveUp(errUnsure)
	}
	return ends
}

// giveUp tells all who wait that nothing will come.
func (b *box) giveUp(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pending {
		p.tell(answer{err: err})
	}
}

func (p *pending) tell(a answer) {
	select {
	case p.answer <- a:
	default: // was told already
	}
}

// read hands letters out. A request that was made to another box than this is gone.
func (b *box) read(sent time.Duration, mail []any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	since, _ := mail[0].(int64)
	waited, _ := mail[1].(int64)
	letters, _ := mail[2].([]any)
	b.since = since
	for _, l := range letters {
		letter := fields(l)
		number, _ := letter["number"].(int64)
		if number <= b.after { // numbers grow from box to box, too
			continue
		}
		b.after = number
		owner, _ := letter["owner"].(string)
		age, _ := letter["age"].(int64)
		var a answer
		switch letter["result"] {
		case "granted":
			a.token, _ = letter["token"].(int64)
			a.begun = sent + time.Duration(waited-age)*time.Millisecond
		case "refused":
			text, _ := letter["error"].(string)
			a.err = NewRefused(text)
		}
		if p := b.pending[owner]; p != nil {
			p.tell(a)
		} else if a.token != 0 {
			key, _ := letter["key"].(string)
			b.node.locks.leave(key, owner)
		}
	}
	for _, p := range b.pending {
		if p.since != 0 && p.since != since {
			p.tell(answer{err: errUnsure})
		}
	}
}

// fields reads a map, which is a flat array in RESP2.
func fields(reply any) map[string]any {
	read := map[string]any{}
	switch m := reply.(type) {
	case map[any]any:
		for name, value := range m {
			read[fmt.Sprint(name)] = value
		}
	case map[string]any:
		return m
	case []any:
		for i := 0; i+1 < len(m); i += 2 {
			read[fmt.Sprint(m[i])] = m[i+1]
		}
	}
	return read
}

// noMail says that the server does not let this user wait by mail. The request it was for is not known to be gone.
type noMail struct{ cause error }

func (e *noMail) Error() string { return "mortise: no mail: " + e.cause.Error() }

// passing says that what a server or a connection said may be over soon: a failover, a slot that moves, a break.
func passing(err error) bool {
	var refused *Refused
	if !errors.As(err, &refused) {
		_, hopeless := err.(*noMail)
		return !hopeless && err != ErrBusy
	}
	switch refused.Code {
	case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "READONLY", "UNBLOCKED", "NOREPLICAS", "MISCONF", "BUSY":
		return true
	}
	return false
}
