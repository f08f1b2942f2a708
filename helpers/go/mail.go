package mortise

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
)

// Later answers: the server puts them into a box as letters, which one goroutine collects over a second connection, for all requests that
// wait.

// mailWait is how long one request for letters waits.
const mailWait = 2 * time.Second

// pending is a request that waits for a letter.
type pending struct {
	since  int64 // of the box that the server put it to
	answer chan answer
}

// answer is a request's outcome: a token and when its lease began, if that is known; no token for denied; or why nothing can come.
type answer struct {
	token  int64
	begun  time.Duration
	err    error
	queued bool // it had to wait
}

// grant sends a request and waits for its outcome, in the server's queue if wait is positive.
func (n *node) grant(ctx context.Context, r *request, owner string, wait time.Duration) (a answer) {
	command := r.words(owner)
	var p *pending
	if r.queues() && wait > 0 { // a letter may come before the request's reply
		p = &pending{answer: make(chan answer, 1)}
		n.locks.mu.Lock()
		n.pending[owner] = p
		command = append(command, "WAIT", ms(wait), "MAIL", n.box)
		n.locks.mu.Unlock()
		defer func() {
			n.locks.mu.Lock()
			delete(n.pending, owner)
			n.locks.mu.Unlock()
		}()
	}
	switch reply := n.commands.callAll(ctx, command)[0].(type) {
	case int64:
		a.token = reply
	case error:
		a.err = reply
	case []any:
		n.queued(p, reply)
		select {
		case a = <-p.answer:
		case <-ctx.Done():
			a.err = errUnsure
		case <-n.locks.ended.Done():
			a.err = ErrClosed
		}
		a.queued = true
	}
	return a
}

// newBox makes up a name that is routed to this server: in a cluster a box has to be where the locks are.
func (n *node) newBox(ctx context.Context) (box string) {
	for range 100_000 {
		box = "{" + rand.Text() + "}"
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
	n.reopened(p.since)
	if !n.listens {
		n.listens = true
		go n.listen()
	}
}

// reopened takes the box's number. If it is a new one, the requests to the box before are gone. Another primary may count from a lower number.
// The mutex is held.
func (n *node) reopened(since int64) {
	if since == n.since {
		return
	}
	n.since, n.last = since, 0
	for owner, p := range n.pending {
		if p.since != 0 && p.since != since {
			n.settle(owner, answer{err: errUnsure})
		}
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
		reply := n.letters.do([][]string{command})[0]
		if mail, ok := reply.([]any); ok && len(mail) == 3 {
			n.read(sent, mail)
			pause = firstPause
			continue
		}
		if err, _ := reply.(error); err != nil && !passing(err) {
			n.giveUp(err) // the server does not let this user wait
		}
		sleep(l.stopped, pause)
		pause = min(2*pause, lastPause)
		l.lookForServers()
	}
}

// collect is the command that collects letters; none when nobody waits for any.
func (n *node) collect() []string {
	n.locks.mu.Lock()
	defer n.locks.mu.Unlock()
	n.listens = len(n.pending) > 0 && n.locks.stopped.Err() == nil
	if !n.listens {
		return nil
	}
	return []string{"LOCK.MAIL", n.box, "WAIT", ms(mailWait), "AFTER", number(n.since), number(n.last)}
}

// giveUp ends all waits for letters, and makes the next one wait at another box.
func (n *node) giveUp(err error) {
	box := n.newBox(n.locks.stopped)
	n.locks.mu.Lock()
	defer n.locks.mu.Unlock()
	n.box = box
	for owner := range n.pending {
		n.settle(owner, answer{err: err})
	}
}

// settle answers the request of that name, if it still waits: once. The mutex is held.
func (n *node) settle(owner string, a answer) {
	if p := n.pending[owner]; p != nil { // else nobody wants it any more, and its name has left
		delete(n.pending, owner)
		p.answer <- a
	}
}

// read hands letters out.
func (n *node) read(sent time.Duration, mail []any) {
	n.locks.mu.Lock()
	defer n.locks.mu.Unlock()
	since, _ := mail[0].(int64)
	n.reopened(since)
	waited, _ := mail[1].(int64)
	letters, _ := mail[2].([]any)
	for _, l := range letters {
		letter := fields(l)
		n.last, _ = letter["number"].(int64)
		owner, _ := letter["owner"].(string)
		a := answer{}
		switch letter["result"] {
		case "granted":
			a.token, _ = letter["token"].(int64)
			age, _ := letter["age"].(int64)
			a.begun = sent + time.Duration(waited-age)*time.Millisecond
		case "refused":
			text, _ := letter["error"].(string)
			a.err = NewRefused(text)
		}
		n.settle(owner, a)
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
