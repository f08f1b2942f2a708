package mortise

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// A server: what it is asked goes out in pipelines of one connection, what it answers later comes by mail over a
// second one, whatever the number of locks. What is held is renewed, and a name that is not wanted any more is left.

const (
	// timeout is how long a server may take to answer a command.
	timeout = time.Second
	// mailWait is how long one request for letters waits.
	mailWait = 2 * time.Second
	// away is for how long what still arrives under a name that was left changes nothing.
	away = time.Minute
	// mostCommands is how many go out in one pipeline.
	mostCommands = 512
)

var (
	// errUnsure says that a request's outcome is not known, or came too late to be of use.
	errUnsure = errors.New("mortise: the server lost the request, or answered too late")
	// errNoMail says that the server does not let this user wait. Whether the request is gone is not known.
	errNoMail = errors.New("mortise: no mail")
)

// Client is what the locks need of a Redis client; goredisconn and rueidisconn have one each. In every
// command the second word is the key that it is routed by.
type Client interface {
	// Do sends the commands in one pipeline and answers as many replies: int64, string, nil, []any or a map,
	// a *Refused where the server answered an error, any other error where what became of it is not known.
	Do(ctx context.Context, commands [][]string) []any
	// Mail sends one command that may block for seconds, over a connection that Do does not use.
	Mail(ctx context.Context, command []string) any
	// Node names the server that serves the key: its address in a cluster, else always the same.
	Node(ctx context.Context, key string) (string, error)
	// Refresh looks again which server serves which key.
	Refresh(ctx context.Context)
	// Close closes the connections; what is in flight ends.
	Close() error
}

// Refused is an error that the server answered.
type Refused struct{ Code, Message string }

func (e *Refused) Error() string { return "mortise: the server refused: " + e.Code + " " + e.Message }

// NewRefused makes a *Refused of the text of an error reply, which some clients strip of its "ERR".
func NewRefused(text string) *Refused {
	code, message, _ := strings.Cut(text, " ")
	if code != strings.ToUpper(code) {
		return &Refused{"ERR", text}
	}
	return &Refused{code, message}
}

// IsDeadlock says that waiting would have closed a cycle of owners that wait for each other.
func IsDeadlock(err error) bool { return isRefused(err, "DEADLOCK") }

// isRefused says that the server answered an error, of that code if there is one.
func isRefused(err error, code string) bool {
	var refused *Refused
	return errors.As(err, &refused) && (code == "" || refused.Code == code)
}

// passing says that what a server or a connection said may be over soon: a failover, a slot that moves, a break.
func passing(err error) bool {
	var refused *Refused
	if !errors.As(err, &refused) {
		return err != ErrBusy && !errors.Is(err, errNoMail)
	}
	switch refused.Code {
	case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "READONLY", "UNBLOCKED", "NOREPLICAS", "MISCONF", "BUSY":
		return true
	}
	return false
}

type node struct {
	locks *Locks
	name  string
	queue []command
	sends bool
	box   *box
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
		l.nodes[name] = &node{locks: l, name: name}
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

// send has the command sent, and its reply told: an error where the server has none. The mutex is held.
func (n *node) send(reply func(any), args ...any) {
	n.queue = append(n.queue, command{words(args...), reply})
	if !n.sends {
		n.sends = true
		go n.pump()
	}
}

// pump sends what is queued, then what was queued meanwhile, until there is nothing.
func (n *node) pump() {
	for {
		n.locks.mu.Lock()
		batch := n.queue[:min(len(n.queue), mostCommands)]
		n.queue = n.queue[len(batch):]
		n.sends = len(batch) > 0
		n.locks.mu.Unlock()
		if len(batch) == 0 {
			return
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

// call sends the command and awaits its reply until ctx ends.
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

// grant sends a request and awaits what becomes of it: the token and when its lease began, if that is known; or no
// token, for denied.
func (n *node) grant(ctx context.Context, request []string, p *pending) (int64, time.Duration, error) {
	switch reply := n.call(ctx, request).(type) {
	case int64:
		return reply, 0, nil
	case nil:
		return 0, 0, nil
	case error:
		return 0, 0, reply
	case []any:
		since, _ := reply[len(reply)-1].(int64)
		p.since.Store(since)
	}
	select {
	case answer := <-p.answer:
		return answer.token, answer.begun, answer.err
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	}
}

// confirm asks once more where more than half of the lease has gone by the time the grant is known.
func (k *Lock) confirm(ctx context.Context) error {
	if k.until-now() > k.lease/2 || k.until == k.limit {
		return nil
	}
	sent := now()
	reply := k.node.call(ctx, "LOCK.RENEW", k.key, k.owner, k.lease, "TOKEN", k.token)
	if err, failed := reply.(error); failed {
		return err
	}
	if reply != any(k.token) || now() >= k.until {
		return errUnsure
	}
	k.extend(sent)
	return nil
}

// keep renews what is due, all of one server together, and notices what is lost. It looks once a second at least:
// time in which the machine slept counts.
func (l *Locks) keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look = now() + time.Second
	for k := range l.holds {
		if k.state() != nil {
			continue
		}
		if sent := now(); sent >= k.next-k.lease/12 {
			k.next = forever
			k.node.send(func(reply any) { k.renewed(sent, reply) }, "LOCK.RENEW", k.key, k.owner, k.lease, "TOKEN", k.token)
		}
		l.look = min(l.look, k.next, k.until)
	}
	l.keeper.Reset(l.look - now())
}

// keep has the keeper look in time for this lock. The mutex is held.
func (k *Lock) keep() {
	if at := min(k.next, k.until); at < k.locks.look {
		k.locks.look = at
		k.locks.keeper.Reset(at - now())
	}
}

// renewed hears what became of a renewal. An error says nothing: it is tried again until the lock is lost.
func (k *Lock) renewed(sent time.Duration, reply any) {
	k.locks.mu.Lock()
	defer k.locks.mu.Unlock()
	_, failed := reply.(error)
	switch {
	case k.state() != nil:
		return
	case failed:
		k.next = now() + k.lease/6
		go k.follow()
	case reply != any(k.token):
		k.finish(ErrLost)
		return
	default:
		k.extend(sent)
	}
	k.keep()
}

// follow looks where the lock is: in a cluster its slot may move.
func (k *Lock) follow() {
	k.locks.lookForServers(k.locks.stopped)
	if n, err := k.locks.node(k.locks.stopped, k.key); err == nil {
		k.locks.mu.Lock()
		defer k.locks.mu.Unlock()
		k.node = n
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
				if err, _ = n.call(l.stopped, "LOCK.LEAVE", key, owner, "FOR", away).(error); err == nil || !passing(err) {
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
	words := make([]string, 0, len(args))
	for _, arg := range args {
		switch arg := arg.(type) {
		case []string:
			words = append(words, arg...)
		case time.Duration:
			words = append(words, fmt.Sprint(int64((arg+time.Millisecond-1)/time.Millisecond)))
		default:
			words = append(words, fmt.Sprint(arg))
		}
	}
	return words
}

// box is where a server puts the answers of this program's requests. It lives while it is of use.
type box struct {
	node    *node
	name    string
	since   int64               // tells this box from an earlier one of the same name
	after   int64               // the last letter that was read
	idle    int                 // for how many rounds nobody has waited
	pending map[string]*pending // by owner
}

// pending is a request that waits for a letter.
type pending struct {
	box    *box
	owner  string
	since  atomic.Int64 // of the box that the server put it to
	answer chan answer
}

type answer struct {
	token int64
	begun time.Duration
	err   error
}

// expect awaits letters for the owner, before its request is sent: a letter may come before the request's reply.
func (n *node) expect(ctx context.Context, owner string) *pending {
	name := n.boxName(ctx)
	n.locks.mu.Lock()
	defer n.locks.mu.Unlock()
	if n.box == nil || n.box.name != name {
		n.box = &box{node: n, name: name, pending: map[string]*pending{}}
		go n.box.listen()
	}
	p := &pending{box: n.box, owner: owner, answer: make(chan answer, 1)}
	p.box.pending[owner] = p
	return p
}

func (p *pending) forget() {
	p.box.node.locks.mu.Lock()
	defer p.box.node.locks.mu.Unlock()
	delete(p.box.pending, p.owner)
}

func (p *pending) tell(a answer) {
	select {
	case p.answer <- a:
	default: // was told already
	}
}

// boxName is the box's, or a new one where that is not routed to this server: in a cluster it has to be where the locks are.
func (n *node) boxName(ctx context.Context) string {
	n.locks.mu.Lock()
	name := "{" + random() + "}"
	if n.box != nil {
		name = n.box.name
	}
	n.locks.mu.Unlock()
	for range 100_000 {
		if at, err := n.locks.client.Node(ctx, name); err != nil || at == n.name {
			break
		}
		name = "{" + random() + "}"
	}
	return name
}

// listen collects letters while anybody waits for them, or did lately.
func (b *box) listen() {
	l, pause := b.node.locks, firstPause
	for b.isOfUse() {
		command := words("LOCK.MAIL", b.name, "WAIT", mailWait)
		if b.since != 0 {
			command = append(command, words("AFTER", b.since, b.after)...)
		}
		sent := now()
		ctx, cancel := context.WithTimeout(l.stopped, mailWait+timeout)
		reply := l.client.Mail(ctx, command)
		cancel()
		if mail, ok := reply.([]any); ok && len(mail) == 3 {
			b.read(sent, mail)
			pause = firstPause
			continue
		}
		if err, _ := reply.(error); err != nil && !passing(err) {
			b.giveUp(fmt.Errorf("%w: %v", errNoMail, err))
		}
		sleep(l.stopped, pause)
		pause = min(2*pause, lastPause)
		l.lookForServers(l.stopped)
	}
	b.giveUp(errUnsure)
}

func (b *box) isOfUse() bool {
	name := b.node.boxName(b.node.locks.stopped)
	b.node.locks.mu.Lock()
	defer b.node.locks.mu.Unlock()
	if b.idle++; len(b.pending) > 0 {
		b.idle = 0
	}
	if name == b.name && b.idle < 6 && b.node.locks.stopped.Err() == nil {
		return true
	}
	if b.node.box == b {
		b.node.box = nil
	}
	return false
}

// giveUp tells all who wait that nothing will come.
func (b *box) giveUp(err error) {
	b.node.locks.mu.Lock()
	defer b.node.locks.mu.Unlock()
	for _, p := range b.pending {
		p.tell(answer{err: err})
	}
}

// read hands letters out. A request that was made to another box than this is gone.
func (b *box) read(sent time.Duration, mail []any) {
	b.node.locks.mu.Lock()
	defer b.node.locks.mu.Unlock()
	b.since, _ = mail[0].(int64)
	waited, _ := mail[1].(int64)
	letters, _ := mail[2].([]any)
	for _, l := range letters {
		letter := fields(l)
		number, _ := letter["number"].(int64)
		if number <= b.after { // numbers grow from box to box, too
			continue
		}
		b.after = number
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
		if p := b.pending[owner]; p != nil {
			p.tell(a)
		} else if a.token != 0 {
			key, _ := letter["key"].(string)
			b.node.locks.leave(key, owner)
		}
	}
	for _, p := range b.pending {
		if since := p.since.Load(); since != 0 && since != b.since {
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
