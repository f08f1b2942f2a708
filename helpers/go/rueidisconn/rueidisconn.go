// Package rueidisconn lets the locks use rueidis: one server, Sentinel or a cluster.
package rueidisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	mortise "mortise.example/mortise/helpers/go"
)

type client struct {
	rueidis.Client
	cluster bool
	known   atomic.Pointer[[]slots] // which server serves which; nil where that has to be asked for

	mu       sync.Mutex
	confirms map[string]rueidis.DedicatedClient // connections over which replicas confirm, by server
}

type slots struct {
	first, last int64
	addr        string
}

// New connects with the program's options, over connections of its own: nothing else shares them, and nothing that
// is sent is sent again.
func New(option rueidis.ClientOption) (mortise.Client, error) {
	option.DisableRetry = true
	option.DisableCache, option.AlwaysRESP2 = true, true
	option.PipelineMultiplex = -1
	option.InitAddress = slices.Clone(option.InitAddress) // rueidis may shuffle its list
	option.SendToReplicas, option.ReplicaOnly = nil, false
	c, err := rueidis.NewClient(option)
	if err != nil {
		return nil, err
	}
	return &client{Client: c, cluster: c.Mode() == rueidis.ClientModeCluster, confirms: map[string]rueidis.DedicatedClient{}}, nil
}

func (c *client) command(words []string) rueidis.Completed {
	at := mortise.KeyAt(words)
	return c.B().Arbitrary(words[0]).Args(words[1:at]...).Keys(words[at]).Args(words[at+1:]...).Build()
}

func (c *client) Do(ctx context.Context, commands [][]string) []any {
	cmds := make([]rueidis.Completed, len(commands))
	for i, words := range commands {
		cmds[i] = c.command(words)
	}
	replies := make([]any, len(commands))
	for i, result := range c.Client.DoMulti(ctx, cmds...) {
		replies[i] = reply(result)
	}
	return replies
}

// Mail is marked as blocking, so that it does not stall the connection that all commands share.
func (c *client) Mail(ctx context.Context, words []string) any {
	return reply(c.Client.Do(ctx, c.B().Arbitrary(words[0]).Keys(words[1]).Args(words[2:]...).Blocking()))
}

func (c *client) Confirm(ctx context.Context, renewals [][]string, replicas int) []any {
	replies := make([]any, len(renewals)+1)
	name, err := c.Node(ctx, renewals[0][1])
	var connection rueidis.DedicatedClient
	if err == nil {
		connection, err = c.confirming(ctx, name, renewals[0], replicas)
	}
	if err != nil {
		for i := range replies {
			replies[i] = err
		}
		return replies
	}
	var cmds []rueidis.Completed
	for _, words := range renewals {
		cmds = append(cmds, connection.B().Arbitrary(words...).Build())
	}
	for i, result := range connection.DoMulti(ctx, append(cmds, wait(connection, replicas))...) {
		replies[i] = reply(result)
	}
	if had, _ := replies[len(renewals)].(int64); had < int64(replicas) { // its primary may have a successor
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.confirms, name)
		connection.Close()
	}
	return replies
}

func wait(connection rueidis.DedicatedClient, replicas int) rueidis.Completed {
	return connection.B().Wait().Numreplicas(int64(replicas)).Timeout(mortise.ConfirmLimit.Milliseconds()).Build()
}

// confirming is the connection to that server. Before a new one has written anything, WAIT counts the replicas that are attached.
func (c *client) confirming(ctx context.Context, name string, renewal []string, replicas int) (rueidis.DedicatedClient, error) {
	c.mu.Lock()
	connection := c.confirms[name]
	c.mu.Unlock()
	if connection != nil {
		return connection, nil
	}
	server := c.Client
	if c.cluster {
		if c.Client.Nodes()[name] == nil { // rueidis learns of another primary when it is sent there: the renewal alone does not count
			c.Client.Do(ctx, c.command(renewal))
		}
		server = c.Client.Nodes()[name]
	}
	if server == nil {
		return nil, fmt.Errorf("rueidisconn: the cluster knows no %s", name)
	}
	connection, _ = server.Dedicate()
	had, err := connection.Do(ctx, wait(connection, replicas)).AsInt64()
	if err == nil && had < int64(replicas) {
		err = &mortise.Unconfirmed{Needed: replicas, Had: int(had)}
	}
	if err != nil {
		connection.Close()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.confirms[name] = connection
	return connection, nil
}

func (c *client) Node(ctx context.Context, key string) (string, error) {
	if !c.cluster {
		return "", nil
	}
	known := c.known.Load()
	if known == nil {
		loaded, err := c.load(ctx)
		if err != nil {
			return "", err
		}
		known = &loaded
		c.known.Store(known)
	}
	command := c.command([]string{"TYPE", key})
	slot := int64(command.Slot())
	for _, s := range *known {
		if s.first <= slot && slot <= s.last {
			return s.addr, nil
		}
	}
	return "", fmt.Errorf("rueidisconn: nobody serves slot %d", slot)
}

// load asks any node for the slots.
func (c *client) load(ctx context.Context) ([]slots, error) {
	ranges, err := c.Client.Do(ctx, c.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, err
	}
	var loaded []slots
	for _, message := range ranges {
		parts, err := message.ToArray()
		if err != nil || len(parts) < 3 {
			return nil, errors.Join(err, errStrange)
		}
		first, _ := parts[0].AsInt64()
		last, _ := parts[1].AsInt64()
		node, err := parts[2].ToArray()
		if err != nil || len(node) < 2 {
			return nil, errors.Join(err, errStrange)
		}
		host, _ := node[0].ToString()
		port, _ := node[1].AsInt64()
		loaded = append(loaded, slots{first, last, net.JoinHostPort(host, strconv.FormatInt(port, 10))})
	}
	return loaded, nil
}

var errStrange = errors.New("rueidisconn: a strange reply to CLUSTER SLOTS")

func (c *client) Refresh(context.Context) { c.known.Store(nil) }

func (c *client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, connection := range c.confirms {
		connection.Close()
	}
	c.Client.Close()
	return nil
}

func reply(result rueidis.RedisResult) any {
	value, err := result.ToAny()
	refused, ok := rueidis.IsRedisErr(err)
	switch {
	case rueidis.IsRedisNil(err):
		return nil
	case ok:
		return mortise.NewRefused(refused.Error())
	case err != nil:
		return err
	}
	return value
}
