// Package rueidisconn lets the locks use rueidis: one server, Sentinel or a cluster.
package rueidisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/redis/rueidis"

	mortise "mortise.example/mortise/helpers/go"
)

type client struct {
	rueidis.Client
	option rueidis.ClientOption
	known  atomic.Pointer[[]slots] // which server of a cluster serves which; nil where that has to be asked for
}

type slots struct {
	first, last int64
	node        string
}

// New connects with the program's options, over connections of its own: nothing else shares them, and nothing that
// is sent is sent again.
func New(option rueidis.ClientOption) (mortise.Client, error) {
	option.DisableRetry = true
	option.DisableCache, option.AlwaysRESP2 = true, true
	option.PipelineMultiplex = -1
	option.BlockingPoolSize = 0                           // each connection here is one of that pool
	option.InitAddress = slices.Clone(option.InitAddress) // rueidis may shuffle its list
	option.SendToReplicas, option.ReplicaOnly = nil, false
	c, err := rueidis.NewClient(option)
	return &client{Client: c, option: option}, err
}

func (c *client) Node(ctx context.Context, key string) (string, error) {
	if c.Mode() != rueidis.ClientModeCluster {
		return "", nil
	}
	known := c.known.Load()
	if known == nil {
		loaded, err := c.load(ctx)
		if err != nil {
			return "", err
		}
		c.Do(ctx, c.B().Arbitrary("TYPE").Keys(key).Build()) // so that rueidis finds the server, too
		known = &loaded
		c.known.Store(known)
	}
	command := c.B().Arbitrary("TYPE").Keys(key).Build()
	slot := int64(command.Slot())
	for _, s := range *known {
		if s.first <= slot && slot <= s.last {
			return s.node, nil
		}
	}
	return "", fmt.Errorf("rueidisconn: nobody serves slot %d", slot)
}

// load asks any node for the slots.
func (c *client) load(ctx context.Context) ([]slots, error) {
	ranges, err := c.Do(ctx, c.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, err
	}
	var loaded []slots
	for _, message := range ranges {
		parts, _ := message.ToArray()
		if len(parts) < 3 {
			return nil, errStrange
		}
		first, _ := parts[0].AsInt64()
		last, _ := parts[1].AsInt64()
		server, _ := parts[2].ToArray()
		if len(server) < 2 {
			return nil, errStrange
		}
		host, _ := server[0].ToString()
		port, _ := server[1].AsInt64()
		loaded = append(loaded, slots{first, last, net.JoinHostPort(host, strconv.FormatInt(port, 10))})
	}
	return loaded, nil
}

var errStrange = errors.New("rueidisconn: a strange reply to CLUSTER SLOTS")

func (c *client) Refresh(context.Context) { c.known.Store(nil) }

func (c *client) Connect(node string) (mortise.Conn, error) {
	server := c.Client
	if node != "" {
		server = c.Nodes()[node]
	}
	if server == nil {
		return nil, fmt.Errorf("rueidisconn: rueidis does not know %s yet", node)
	}
	dedicated, _ := server.Dedicate()
	return conn{dedicated}, nil
}

type conn struct{ rueidis.DedicatedClient }

// Do marks all commands as blocking, so that the context alone limits them.
func (c conn) Do(ctx context.Context, commands [][]string) []any {
	cmds := make([]rueidis.Completed, len(commands))
	for i, words := range commands {
		cmds[i] = c.B().Arbitrary(words...).Blocking()
	}
	replies := make([]any, len(commands))
	for i, result := range c.DoMulti(ctx, cmds...) {
		replies[i] = reply(result)
	}
	return replies
}

// Close lets nobody wait: rueidis opens another connection before it returns, which a silent server delays by its time-out.
func (c conn) Close() { go c.DedicatedClient.Close() }

func reply(result rueidis.RedisResult) any {
	value, err := result.ToAny()
	refused, ok := rueidis.IsRedisErr(err)
	switch {
	case rueidis.IsRedisNil(err):
		return nil
	case ok:
		text, _ := result.ToString() // as the server sent it: the error lacks an "ERR"
		return mortise.NewRefused(cmp.Or(text, refused.Error()))
	case err != nil:
		return err
	}
	return value
}
