// Package goredisconn lets the locks use go-redis: a client of one server, of Sentinel or of a cluster.
package goredisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	mortise "mortise.example/mortise/helpers/go"
)

// client has connections of its own, with the settings of the program's client: it shares no pool that could be
// used up, and nothing that is sent is sent again behind its back.
type client struct{ commands, mail redis.UniversalClient }

// New connects as rdb does: a *redis.Client, also one that NewFailoverClient made, or a *redis.ClusterClient. A
// failover client has to stay open as long as the locks.
func New(rdb redis.UniversalClient) mortise.Client {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return &client{redis.NewClient(options(rdb)), redis.NewClient(options(rdb))}
	case *redis.ClusterClient:
		return &client{redis.NewClusterClient(clusterOptions(rdb)), redis.NewClusterClient(clusterOptions(rdb))}
	}
	panic(fmt.Sprintf("goredisconn: no locks over a %T: pass a *redis.Client or a *redis.ClusterClient", rdb))
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
	rdb, err := at(ctx, c.commands, commands[0][mortise.KeyAt(commands[0])])
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
	cluster, ok := c.commands.(*redis.ClusterClient)
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
	rdb, err := at(ctx, c.mail, words[1])
	if err != nil {
		return err
	}
	return reply(rdb.Do(ctx, args(words)...))
}

func (c *client) Node(ctx context.Context, key string) (string, error) {
	rdb, err := at(ctx, c.commands, key)
	if err != nil || rdb == c.commands {
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
	for _, c := range []redis.UniversalClient{c.commands, c.mail} {
		if cluster, ok := c.(*redis.ClusterClient); ok {
			cluster.ReloadState(ctx)
		}
	}
}

func (c *client) Close() error { return errors.Join(c.commands.Close(), c.mail.Close()) }

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
