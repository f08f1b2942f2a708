package mortise

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// A server: commands go out in pipelines over one connection, whatever the number of locks. It leaves names that are no longer wanted.

const (
	// timeout is how long a server may take to answer a command.
	timeout = 2 * time.Second
	// late is how long after the end of a wait its answer may still come.
	late = time.Second
	// away is for how long late requests under a name that has left change nothing.
	away = time.Minute
	// mostCommands is how many go out in one pipeline.
	mostCommands = 512
)

// errUnsure: a request's outcome is unknown, or came too late to be of use.
var errUnsure = errors.New("mortise: the server lost the request, or answered too late")

type node struct {
	locks              *Locks
	name               string
	commands, renewals *pipeline // the same, where no replica confirms renewals

	box     string              // where the server puts the answers of this program's requests
	since   int64               // distinguishes the box from an earlier one of the same name
	last    int64               // the number of the last letter that was read
	doubts  bool                // somebody's request may have been put to another box than this
	listens bool                // somebody collects letters
	pending map[string]*pending // who may get one, by owner
}

// pipeline sends what is queued in one pipeline, and then what was queued meanwhile.
type pipeline struct {
	locks *Locks
	do    func(ctx context.Context, commands [][]string) []any
	queue []command
	runs  bool       // there is a pump
	more  *sync.Cond // there is more in the queue, or nothing is sent any more
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
	n := l.nodes[name]
	if n == nil {
		n = &node{locks: l, name: name, commands: l.pipeline(l.client.Do), pending: map[string]*pending{}}
		n.renewals = n.commands
		if l.replicas > 0 {
			n.renewals = l.pipeline(l.confirm)
		}
		l.nodes[name] = n
	}
	return n, nil
}

func (l *Locks) pipeline(do func(ctx context.Context, commands [][]string) []any) *pipeline {
	made := &pipeline{locks: l, do: do, more: sync.NewCond(&l.mu)}
	context.AfterFunc(l.stopped, made.wake)
	return made
}

// confirm has replicas confirm renewals. The reply is an *Unconfirmed to each that too few of them have.
func (l *Locks) confirm(ctx context.Context, renewals [][]string) []any {
	return confirmed(l.replicas, l.client.Confirm(ctx, renewals, l.replicas))
}

func (p *pipeline) wake() {
	p.locks.mu.Lock()
	defer p.locks.mu.Unlock()
	p.more.Broadcast()
}

// lookForServers asks which server serves which key now, ten times a second at most.
func (l *Locks) lookForServers(ctx context.Context) {
	last, at := l.refresh.Load(), int64(now())
	if at > last+int64(100*time.Millisecond) && l.refresh.CompareAndSwap(last, at) {
		l.client.Refresh(ctx)
	}
}

// send queues the command, and delivers its reply, or an error if the server has none. The mutex is held.
func (p *pipeline) send(reply func(any), args ...any) {
	p.queue = append(p.queue, command{words(args...), reply})
	if !p.runs {
		p.runs = true
		go p.pump()
	}
	p.more.Signal()
}

// pump sends what is queued, then what was queued meanwhile, until nothing may be sent any more.
func (p *pipeline) pump() {
	for batch := p.next(); batch != nil; batch = p.next() {
		commands := make([][]string, len(batch))
		for i, c := range batch {
			commands[i] = c.words
		}
		ctx, cancel := context.WithTimeout(p.locks.stopped, timeout)
		replies := p.do(ctx, commands)
		cancel()
		for i, c := range batch {
			if err, failed := replies[i].(error); !failed || isRefused(err, "") {
				p.locks.answered.Store(true)
			}
			c.reply(replies[i])
		}
	}
}

// next waits for commands and takes them from the queue; none if the queue is empty and nothing may be sent any more. A goroutine of its own
// for each would have to grow its stack each time.
func (p *pipeline) next() []command {
	p.locks.mu.Lock()
	defer p.locks.mu.Unlock()
	for len(p.queue) == 0 {
		if p.locks.stopped.Err() != nil {
			p.runs = false
			return nil
		}
		p.more.Wait()
	}
	batch := p.queue[:min(len(p.queue), mostCommands)]
	p.queue = p.queue[len(batch):]
	return batch
}

// call sends the command and waits for its reply until ctx ends.
func (n *node) call(ctx context.Context, args ...any) any {
	return n.commands.callAll(ctx, args)[0]
}

// callAll sends the commands, in one pipeline, and waits for their replies until ctx ends.
func (p *pipeline) callAll(ctx context.Context, commands ...[]any) []any {
	type numbered struct {
		number int
		reply  any
	}
	arrived := make(chan numbered, len(commands))
	p.locks.mu.Lock()
	for number, args := range commands {
		p.send(func(reply any) { arrived <- numbered{number, reply} }, args...)
	}
	p.locks.mu.Unlock()
	replies := make([]any, len(commands))
	for i := range replies {
		replies[i] = errUnsure
	}
	for range commands {
		select {
		case one := <-arrived:
			replies[one.number] = one.reply
		case <-ctx.Done():
			for i := range replies {
				if replies[i] == any(errUnsure) {
					replies[i] = ended(ctx)
				}
			}
			return replies
		}
	}
	return replies
}

// ended is why the context has ended. Its cause may be a server's refusal of another request, and must not pass for a reply to this one.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if isRefused(cause, "") {
		return fmt.Errorf("%w: %v", ctx.Err(), cause)
	}
	return cause
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
		return 0, 0, ended(ctx)
	}
}

// leave sends LOCK.LEAVE for that name until it is answered, for each key.
func (l *Locks) leave(keys []string, owner string) {
	for _, key := range keys {
		l.job(+1)
		go func() {
			defer l.job(-1)
			l.leaveOne(key, owner)
		}()
	}
}

func (l *Locks) leaveOne(key, owner string) {
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
		switch arg := arg.(type) {
		case string:
			words[i] = arg
		case time.Duration:
			words[i] = strconv.FormatInt(int64((arg+time.Millisecond-1)/time.Millisecond), 10)
		default:
			words[i] = fmt.Sprint(arg)
		}
	}
	return words
}
