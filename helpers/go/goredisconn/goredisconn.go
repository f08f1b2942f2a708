// Package goredisconn lets the locks use go-redis: a client of one server, of Sentinel or of a cluster.
package goredisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	mortise "mortise.example/mortise/helpers/go"
)

// client has connections of its own, with the settings of the program's client: it shares no pool that could be
// used up, and nothing that is sent is sent again behind its back.
type client struct {
	server  atomic.Pointer[redis.Options] // the settings for one server
	cluster *redis.ClusterClient          // knows which server serves which key
}

// New connects as rdb does: a *redis.Client, also one that NewFailoverClient made, or a *redis.ClusterClient. A
// failover client has to stay open as long as the locks.
func New(rdb redis.UniversalClient) mortise.Client {
	c := &client{}
	switch rdb := rdb.(type) {
	case *redis.Client:
		c.server.Store(rdb.Options())
	case *redis.ClusterClient:
		o := *rdb.Options()
		o.Protocol, o.ContextTimeoutEnabled = 2, true
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		o.Addrs = slices.Clone(o.Addrs) // a cluster client appends to its list
		c.cluster = redis.NewClusterClient(&o)
	default:
		panic(fmt.Sprintf("goredisconn: no locks over a %T: pass a *redis.Client or a *redis.ClusterClient", rdb))
	}
	return c
}

func (c *client) Node(ctx context.Context, key string) (string, error) {
	if c.cluster == nil {
		return c.server.Load().Addr, nil
	}
	rdb, err := c.cluster.MasterForKey(ctx, key)
	if err != nil {
		return "", failure(err)
	}
	c.server.CompareAndSwap(nil, rdb.Options())
	return rdb.Options().Addr, nil
}

func (c *client) Refresh(ctx context.Context) {
	if c.cluster != nil {
		c.cluster.ReloadState(ctx)
	}
}

// Connect makes a client with a single connection. Sentinel is asked when that opens.
func (c *client) Connect(node string, limit time.Duration) (mortise.Conn, error) {
	o := *c.server.Load()
	o.Addr = node
	o.Protocol, o.MaxRetries, o.ContextTimeoutEnabled = 2, -1, true
	o.ReadTimeout, o.WriteTimeout = limit, limit
	o.PoolSize, o.MinIdleConns, o.MaxActiveConns, o.PipelinePoolSize = 1, 0, 0, -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // the program's client changes its own
	o.PushNotificationProcessor = nil                                                              // belongs to the program's client
	rdb := redis.NewClient(&o)
	return &conn{rdb, rdb.Conn()}, nil
}

func (c *client) Close() {
	if c.cluster != nil {
		_ = c.cluster.Close()
	}
}

type conn struct {
	rdb    *redis.Client
	sticky *redis.Conn // opens once
}

func (c *conn) Do(ctx context.Context, commands [][]string) []any {
	if len(commands) == 1 { // which a pipeline would take longer for
		return []any{reply(c.sticky.Do(ctx, args(commands[0])...), nil)}
	}
	pipeline := c.sticky.Pipeline()
	for _, words := range commands {
		pipeline.Do(ctx, args(words)...)
	}
	cmds, err := pipeline.Exec(ctx)
	replies := make([]any, len(commands))
	for i, cmd := range cmds {
		replies[i] = reply(cmd.(*redis.Cmd), err)
	}
	return replies
}

func (c *conn) Close() { _ = c.rdb.Close() }

// args are pointers, which need no memory of their own as values of any; go-redis reads the command's name as a string.
func args(words []string) []any {
	args := make([]any, len(words))
	for i := range words {
		args[i] = &words[i]
	}
	args[0] = words[0]
	return args
}

// reply is that of the command, or the error of its pipeline if it was never reached.
func reply(cmd *redis.Cmd, pipeline error) any {
	value, err := cmd.Result()
	if value == nil {
		err = cmp.Or(err, pipeline)
	}
	if err == nil || err == redis.Nil {
		return value
	}
	return failure(err)
}

// failure is a *Refused if a server replied the error.
func failure(err error) error {
	if refused, ok := errors.AsType[redis.Error](err); ok {
		return mortise.NewRefused(refused.Error())
	}
	return err
}
