// Package goredisconn lets the locks use go-redis: a client of one server, of Sentinel or of a cluster.
package goredisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	mortise "mortise.example/mortise/helpers/go"
)

// client has connections of its own, with the settings of the program's client: it shares no pool that could be
// used up, and nothing that is sent is sent again behind its back.
type client struct {
	like     redis.UniversalClient
	replicas atomic.Int64 // that have to be attached to a server that confirms

	mu   sync.Mutex
	open *connections
}

type connections struct {
	commands, mail redis.UniversalClient
	confirms       map[string]*redis.Client // each is one connection, by its server
	since          time.Time
}

// New connects as rdb does: a *redis.Client, also one that NewFailoverClient made, or a *redis.ClusterClient. A
// failover client has to stay open as long as the locks.
func New(rdb redis.UniversalClient) mortise.Client {
	c := &client{like: rdb}
	c.open = c.connect()
	return c
}

func (c *client) connect() *connections {
	switch rdb := c.like.(type) {
	case *redis.Client:
		return &connections{redis.NewClient(options(rdb)), redis.NewClient(options(rdb)), map[string]*redis.Client{}, time.Now()}
	case *redis.ClusterClient:
		commands, mail := redis.NewClusterClient(clusterOptions(rdb)), redis.NewClusterClient(clusterOptions(rdb))
		return &connections{commands, mail, map[string]*redis.Client{}, time.Now()}
	}
	panic(fmt.Sprintf("goredisconn: no locks over a %T: pass a *redis.Client or a *redis.ClusterClient", c.like))
}

// confirming is what replicas confirm over, at the server of that client.
func (c *client) confirming(rdb *redis.Client) *redis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	addr := rdb.Options().Addr
	if c.open.confirms[addr] == nil {
		o := options(rdb)
		o.PoolSize, o.OnConnect = 1, c.checked(o.OnConnect)
		c.open.confirms[addr] = redis.NewClient(o)
	}
	return c.open.confirms[addr]
}

// checked refuses a new connection to a server with too few replicas. Before it has written anything, WAIT counts those that are attached.
func (c *client) checked(connected func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, cn *redis.Conn) error {
		if connected != nil {
			if err := connected(ctx, cn); err != nil {
				return err
			}
		}
		needed := int(c.replicas.Load())
		had, err := cn.Wait(ctx, needed, mortise.ConfirmLimit).Result()
		if err == nil && int(had) < needed {
			err = &mortise.Unconfirmed{Needed: needed, Had: int(had)}
		}
		return err
	}
}

func (c *client) now() *connections {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// reconnect asks Sentinel anew, once a second at most: a primary that has lost its replicas may have a successor. What is in flight ends first.
func (c *client) reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, isOne := c.like.(*redis.Client); isOne && time.Since(c.open.since) > time.Second {
		before := c.open
		time.AfterFunc(mailTimeout, func() { _ = before.close() })
		c.open = c.connect()
	}
}

func (c *connections) close() error {
	err := errors.Join(c.commands.Close(), c.mail.Close())
	for _, confirming := range c.confirms {
		err = errors.Join(err, confirming.Close())
	}
	return err
}

// mailTimeout is longer than LOCK.MAIL waits; the context limits Do.
const mailTimeout = 10 * time.Second

func options(rdb *redis.Client) *redis.Options {
	o := *rdb.Options()
	o.Protocol, o.MaxRetries, o.ContextTimeoutEnabled = 2, -1, true
	o.ReadTimeout, o.WriteTimeout = mailTimeout, mailTimeout
	o.PoolSize, o.MinIdleConns, o.MaxActiveConns, o.PipelinePoolSize = 2, 0, 0, -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.PushNotificationProcessor = nil // belongs to rdb
	return &o
}

func clusterOptions(rdb *redis.ClusterClient) *redis.ClusterOptions {
	o := *rdb.Options()
	o.Protocol, o.MaxRetries, o.ContextTimeoutEnabled = 2, -1, true
	o.ReadTimeout, o.WriteTimeout = mailTimeout, mailTimeout
	o.PoolSize, o.MinIdleConns, o.MaxActiveConns, o.PipelinePoolSize = 2, 0, 0, -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.Addrs = slices.Clone(o.Addrs) // a cluster client appends to its list
	return &o
}

func (c *client) Do(ctx context.Context, commands [][]string) []any {
	replies := make([]any, len(commands))
	rdb, err := at(ctx, c.now().commands, commands[0][mortise.KeyAt(commands[0])])
	if err != nil {
		for i := range replies {
			replies[i] = err
		}
		return replies
	}
	send(ctx, rdb, commands, replies)
	for i, reply := range replies {
		if refused, ok := reply.(*mortise.Refused); ok && refused.Code == "ASK" {
			replies[i] = c.ask(ctx, rdb.Options().Addr, refused, commands[i])
		}
	}
	return replies
}

func send(ctx context.Context, rdb *redis.Client, commands [][]string, replies []any) {
	if len(commands) == 1 { // which a pipeline would take longer for
		replies[0] = reply(rdb.Do(ctx, args(commands[0])...))
		return
	}
	cmds := make([]*redis.Cmd, len(commands))
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, words := range commands {
			cmds[i] = p.Do(ctx, args(words)...)
		}
		return nil
	})
	for i, cmd := range cmds {
		replies[i] = reply(cmd)
		if replies[i] == nil && cmd.Err() == nil && cmd.Val() == nil { // was never reached
			replies[i] = err
		}
	}
}

// ask repeats a command at the server to which its slot is moving; the one at replied has refused it.
func (c *client) ask(ctx context.Context, replied string, refused *mortise.Refused, words []string) any {
	addr, answer := target(refused.Message, replied), any(refused)
	cluster, ok := c.now().commands.(*redis.ClusterClient)
	if !ok {
		return answer
	}
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
		if rdb.Options().Addr == addr {
			replies := make([]any, 2)
			send(ctx, rdb, [][]string{{"ASKING"}, words}, replies)
			answer = replies[1]
		}
		return nil
	})
	return answer
}

// target is the address that an ASK names, as "slot host:port". Of IPv6 the server writes no brackets. Without a host, or where that is
// unknown, it is the host of the server that replied.
func target(ask, replied string) string {
	_, named, _ := strings.Cut(ask, " ")
	colon := strings.LastIndex(named, ":")
	if colon < 0 {
		return named
	}
	host, port := strings.Trim(named[:colon], "[]"), named[colon+1:]
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(replied)
	}
	return net.JoinHostPort(host, port)
}

func (c *client) Mail(ctx context.Context, words []string) any {
	rdb, err := at(ctx, c.now().mail, words[1])
	if err != nil {
		return err
	}
	return reply(rdb.Do(ctx, args(words)...))
}

func (c *client) Confirm(ctx context.Context, renewals [][]string, replicas int) []any {
	c.replicas.Store(int64(replicas))
	replies := make([]any, len(renewals)+1)
	rdb, err := at(ctx, c.now().commands, renewals[0][1])
	if err != nil {
		for i := range replies {
			replies[i] = err
		}
		return replies
	}
	wait := []string{"WAIT", strconv.Itoa(replicas), strconv.FormatInt(mortise.ConfirmLimit.Milliseconds(), 10)}
	send(ctx, c.confirming(rdb), append(slices.Clip(renewals), wait), replies)
	if had, _ := replies[len(renewals)].(int64); had < int64(replicas) {
		c.reconnect()
	}
	return replies
}

func (c *client) Node(ctx context.Context, key string) (string, error) {
	commands := c.now().commands
	rdb, err := at(ctx, commands, key)
	if err != nil || rdb == commands {
		return "", err
	}
	return rdb.Options().Addr, nil
}

// at is the client for the server that serves the key.
func at(ctx context.Context, c redis.UniversalClient, key string) (*redis.Client, error) {
	if cluster, ok := c.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return c.(*redis.Client), nil
}

func (c *client) Refresh(ctx context.Context) {
	open := c.now()
	for _, c := range []redis.UniversalClient{open.commands, open.mail} {
		if cluster, ok := c.(*redis.ClusterClient); ok {
			cluster.ReloadState(ctx)
		}
	}
}

func (c *client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open.close()
}

// args are pointers, which need no memory of their own as values of any; go-redis reads the command's name as a string.
func args(words []string) []any {
	args := make([]any, len(words))
	for i := range words {
		args[i] = &words[i]
	}
	args[0] = words[0]
	return args
}

func reply(cmd *redis.Cmd) any {
	value, err := cmd.Result()
	var refused redis.Error
	switch {
	case err == redis.Nil:
		return nil
	case errors.As(err, &refused):
		return mortise.NewRefused(refused.Error())
	case err != nil:
		return err
	}
	return value
}
