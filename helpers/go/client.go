package mortise

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Client is what the locks need of a Redis client; goredisconn and rueidisconn have one each. Every command is routed by the
// word at KeyAt.
type Client interface {
	// Do sends the commands in one pipeline and returns a reply for each, as RESP2 has them: int64, string, nil, []any, a *Refused if the
	// server replied an error, any other error when the outcome is unknown.
	Do(ctx context.Context, commands [][]string) []any
	// Mail sends one command that may block for seconds, over a connection that Do does not use.
	Mail(ctx context.Context, command []string) any
	// Confirm sends renewals and then WAIT for so many replicas and ConfirmLimit, in one write, over a connection that nothing else uses: WAIT
	// is about what its connection has written, and blocks it. It returns the replies, that to WAIT last. A new connection sends WAIT alone first;
	// if too few replicas are attached, it is closed, and all replies are an *Unconfirmed. There is one call at a time for each server.
	Confirm(ctx context.Context, renewals [][]string, replicas int) []any
	// Node names the server that serves the key: its address in a cluster, else always the same.
	Node(ctx context.Context, key string) (string, error)
	// Refresh finds out again which server serves which key.
	Refresh(ctx context.Context)
	// Close closes the connections; what is in flight ends.
	Close() error
}

// KeyAt says which word of a command is the key that it is routed by.
func KeyAt(command []string) int {
	if command[0] == "LOCK.MACQUIRE" {
		return 4
	}
	return 1
}

// Refused is an error that the server replied.
type Refused struct{ Code, Message string }

func (e *Refused) Error() string {
	text := "mortise: the server refused: " + e.Code + " " + e.Message
	if e.Code == "ERR" && strings.HasPrefix(e.Message, "unknown command") && strings.Contains(e.Message, "LOCK.") {
		text += `: it has not loaded the Mortise module; load it by "loadmodule …/libmortise.so" in redis.conf, or by MODULE LOAD`
	}
	return text
}

// NewRefused makes a *Refused of the text of an error reply, which some clients strip of its "ERR".
func NewRefused(text string) *Refused {
	code, message, _ := strings.Cut(text, " ")
	if code != strings.ToUpper(code) {
		return &Refused{"ERR", text}
	}
	return &Refused{code, message}
}

// ConfirmLimit is how long replicas may take to confirm.
const ConfirmLimit = time.Second

// Unconfirmed: too few replicas had the lock in time. A new one was given back.
type Unconfirmed struct{ Needed, Had int }

func (e *Unconfirmed) Error() string {
	return fmt.Sprintf("mortise: %d replicas have the lock, and %d have to", e.Had, e.Needed)
}

// confirmed are the replies to renewals, of which the last one is WAIT's: a token counts if as many replicas have it as are needed.
func confirmed(replicas int, replies []any) []any {
	renewals, had := replies[:len(replies)-1], replies[len(replies)-1]
	count, counted := had.(int64)
	if counted && count >= int64(replicas) {
		return renewals
	}
	few := &Unconfirmed{replicas, int(count)}
	for i, reply := range renewals {
		err, failed := reply.(error)
		switch renewed := !failed && reply != nil; {
		case renewed && counted, failed && isReplicas(err):
			renewals[i] = few
		case renewed:
			renewals[i] = had
		}
	}
	return renewals
}

// isReplicas reports whether a replica refused WAIT: its primary is another server.
func isReplicas(err error) bool {
	return isRefused(err, "") && strings.Contains(err.Error(), "WAIT cannot be used with replica")
}

// IsDeadlock reports whether waiting would have closed a cycle of owners that wait for each other.
func IsDeadlock(err error) bool { return isRefused(err, "DEADLOCK") }

// isRefused reports whether the server replied an error, of that code if one is given.
func isRefused(err error, code string) bool {
	if err == nil {
		return false
	}
	var refused *Refused
	return errors.As(err, &refused) && (code == "" || refused.Code == code)
}

// passing reports whether an error may be over soon: a failover, a slot that moves, a broken connection.
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
