// Package rueidisconn lets the locks use rueidis: one server, Sentinel or a cluster.
package rueidisconn

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	mortise "mortise.example/mortise/helpers/go"
)

const (
	// openLimit is how long a connection may take to open: as long as a reply, since who waits for one may open it.
	openLimit = 2 * time.Second
	// loadLimit is how long a server may take to say which server serves which slot, before another one is asked.
	loadLimit = time.Second
	// searchPause is how often rueidis asks for servers, unless the program's options say so: the locks' commands, which show that servers have
	// changed, go past what it watches.
	searchPause = 5 * time.Second
)

type client struct {
	rueidis.Client
	option rueidis.ClientOption
	known  [1 << 14]atomic.Pointer[string] // which server of a cluster serves each slot
}

// New connects with the program's options, over connections of its own: nothing else shares them, and nothing that
// is sent is sent again.
func New(option rueidis.ClientOption) (mortise.Client, error) {
	option.DisableRetry = true
	option.DisableCache, option.AlwaysRESP2 = true, true
	option.PipelineMultiplex = -1
	option.Dialer.Timeout, option.Sentinel.Dialer.Timeout, option.ConnWriteTimeout = openLimit, openLimit, openLimit
	option.Sentinel.TopologyRefreshInterval = cmp.Or(option.Sentinel.TopologyRefreshInterval, searchPause)
	option.ClusterOption.ShardsRefreshInterval = cmp.Or(option.ClusterOption.ShardsRefreshInterval, searchPause)
	option.BlockingPoolSize = 0                           // each connection here is one of that pool
	option.InitAddress = slices.Clone(option.InitAddress) // rueidis may shuffle its list
	option.SendToReplicas, option.ReplicaSelector, option.ReadNodeSelector, option.Standalone.ReplicaAddress = nil, nil, nil, nil
	option.ReplicaOnly, option.EnableReplicaAZInfo = false, false
	inner, err := rueidis.NewClient(option)
	if err != nil {
		return nil, err
	}
	c := &client{Client: inner, option: option}
	c.Refresh(context.Background())
	return c, nil
}

func (c *client) Node(ctx context.Context, key string) (string, error) {
	if c.Mode() != rueidis.ClientModeCluster {
		return "", nil
	}
	command := c.B().Arbitrary("TYPE").Keys(key).Build()
	node := c.known[command.Slot()].Load()
	if node == nil {
		return "", fmt.Errorf("rueidisconn: nobody serves slot %d", command.Slot())
	}
	return *node, nil
}

// Refresh asks one server of a cluster after the other for the slots, in any order, until one answers.
func (c *client) Refresh(ctx context.Context) {
	if c.Mode() != rueidis.ClientModeCluster {
		return
	}
	for addr, server := range c.Nodes() {
		if c.load(ctx, server, addr) { // else it does not answer, or has left the cluster
			return
		}
	}
}

// load asks the server at that address for the slots, and reports whether it knows any. Where it names no host, it means its own.
func (c *client) load(ctx context.Context, asked rueidis.Client, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	ranges, _ := asked.Do(ctx, asked.B().ClusterSlots().Build()).ToArray()
	for _, message := range ranges {
		parts, _ := message.ToArray()
		if len(parts) < 3 {
			continue
		}
		first, _ := parts[0].AsInt64()
		last, _ := parts[1].AsInt64()
		server, _ := parts[2].ToArray()
		if len(server) < 2 {
			continue
		}
		host, _ := server[0].ToString()
		if host == "" || host == "?" {
			host, _, _ = net.SplitHostPort(addr)
		}
		port, _ := server[1].AsInt64()
		node := net.JoinHostPort(host, fmt.Sprint(port))
		for slot := max(first, 0); slot <= min(last, int64(len(c.known))-1); slot++ {
			c.known[slot].Store(&node)
		}
	}
	return len(ranges) > 0
}

func (c *client) Connect(node string, limit time.Duration) (mortise.Conn, error) {
	server, closeOwn := c.Client, func() {}
	if node != "" {
		server = c.Nodes()[node]
	}
	if server == nil { // rueidis does not know it yet
		option := c.option
		option.InitAddress, option.ForceSingleClient = []string{node}, true
		own, err := rueidis.NewClient(option)
		if err != nil {
			return nil, err
		}
		server, closeOwn = own, own.Close
	}
	dedicated, _ := server.Dedicate()
	return conn{dedicated, limit, closeOwn}, nil
}

type conn struct {
	rueidis.DedicatedClient
	limit    time.Duration // of a reply
	closeOwn func()        // closes the client that this connection belongs to alone, if any
}

// Do marks all commands as blocking, so that the context alone limits them.
func (c conn) Do(ctx context.Context, commands [][]string) []any {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
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
func (c conn) Close() {
	go func() {
		c.DedicatedClient.Close()
		c.closeOwn()
	}()
}

func reply(result rueidis.RedisResult) any {
	value, err := result.ToAny()
	if err == nil || rueidis.IsRedisNil(err) {
		return value
	}
	if refused, ok := rueidis.IsRedisErr(err); ok {
		text, _ := result.ToString() // as the server sent it: the error lacks an "ERR"
		return mortise.NewRefused(cmp.Or(text, refused.Error()))
	}
	return err
}
