package mortise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Client makes connections to the servers with the settings of a Redis client; goredisconn and rueidisconn have one each.
type Client interface {
	// Node names the server that serves the key: its address in a cluster, else always the same.
	Node(ctx context.Context, key string) (string, error)
	// Refresh finds out again which server serves which key. There is one call at a time.
	Refresh(ctx context.Context)
	// Connect makes one connection to the server of that name. It waits for a reply for limit at most. It opens at once or with its first
	// commands, and never again.
	Connect(node string, limit time.Duration) (Conn, error)
	// Close closes what the client itself has opened.
	Close()
}

// Conn is one connection to a server, which nothing else uses.
type Conn interface {
	// Do sends the commands in one write and returns a reply for each, as RESP2 has them: int64, string, nil, []any, a *Refused if the
	// server replied an error, any other error when the outcome is unknown. There is one call at a time.
	Do(ctx context.Context, commands [][]string) []any
	// Close closes it, also while Do runs, which ends then.
	Close()
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

// target is the server at which to repeat a command after this reply, because its slot is moving there, if so. The server at replied has
// sent "ASK slot host:port": of IPv6 it writes no brackets, and without a host, or where that is unknown, it means its own.
func target(reply any, replied string) string {
	refused, ok := reply.(*Refused)
	if !ok || refused.Code != "ASK" {
		return ""
	}
	_, named, _ := strings.Cut(refused.Message, " ")
	colon := max(strings.LastIndex(named, ":"), 0)
	host := strings.Trim(named[:colon], "[]")
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(replied)
	}
	return net.JoinHostPort(host, strings.TrimPrefix(named[colon:], ":"))
}

// confirmLimit is how long replicas may take to confirm.
const confirmLimit = time.Second

// Unconfirmed: too few replicas had the lock in time. A new one was given back.
type Unconfirmed struct{ Needed, Had int }

func (e *Unconfirmed) Error() string {
	return fmt.Sprintf("mortise: %d replicas have the lock, and %d have to", e.Had, e.Needed)
}

// IsDeadlock reports whether waiting would have closed a cycle of owners that wait for each other.
func IsDeadlock(err error) bool { return isRefused(err, "DEADLOCK") }

// isRefused reports whether the server replied an error, of that code if one is given.
func isRefused(err error, code string) bool {
	refused, ok := errors.AsType[*Refused](err)
	return ok && (code == "" || refused.Code == code)
}

// isShutOut says that the server did not let the connection in: by a password that may be right again soon.
func isShutOut(reply any) bool {
	err, _ := reply.(error)
	return isRefused(err, "WRONGPASS") || isRefused(err, "NOAUTH")
}

// isUnknown says that this is no reply: what became of the command is unknown.
func isUnknown(reply any) bool {
	err, failed := reply.(error)
	return failed && !isRefused(err, "")
}

// isMisdirected says that this reply came from a server that is not the right one, or no longer: a new connection may lead to another. Go-redis
// itself uses the old one no more.
func isMisdirected(reply any) bool {
	err, _ := reply.(error)
	return isRefused(err, "READONLY") || isRefused(err, "MOVED")
}

// isUnsent reports whether there was no connection over which the command could have been sent.
func isUnsent(err error) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == "dial"
}

// isGone says that this reply to a release or a renewal proves that nothing is held: there is no such hold, or the key
// was overwritten.
func isGone(reply any) bool {
	err, _ := reply.(error)
	return reply == nil || isRefused(err, "WRONGTYPE")
}

// isFailure says that this reply proves nothing about a hold.
func isFailure(reply any) bool {
	_, failed := reply.(error)
	return failed && !isGone(reply)
}

// passing reports whether this reply is an error that may be over soon: a failover, a slot that moves, a broken connection.
func passing(reply any) bool {
	err, failed := reply.(error)
	refused, ok := errors.AsType[*Refused](err)
	if !ok {
		return failed && err != ErrBusy && err != ErrLost
	}
	switch refused.Code {
	case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "READONLY", "UNBLOCKED", "NOREPLICAS", "MISCONF", "BUSY":
		return true
	}
	return false
}
