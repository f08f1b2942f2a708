package mortise_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	mortise "mortise.example/mortise/helpers/go"
	"mortise.example/mortise/helpers/go/goredisconn"
	"mortise.example/mortise/helpers/go/rueidisconn"
)

// between is a client whose commands go through a function, which gets what the real client would do with one.
type between struct {
	mortise.Client
	reply func(words []string, real func() any) any
}

type connBetween struct {
	mortise.Conn
	between
}

func (b between) Connect(node string, limit time.Duration) (mortise.Conn, error) {
	conn, err := b.Client.Connect(node, limit)
	return connBetween{conn, b}, err
}

func (b connBetween) Close() { b.Conn.Close() }

func (b connBetween) Do(ctx context.Context, commands [][]string) []any {
	replies := make([]any, len(commands))
	for i, words := range commands {
		replies[i] = b.reply(words, func() any { return b.Conn.Do(ctx, [][]string{words})[0] })
	}
	return replies
}

var errNoAnswer = errors.New("no answer")

func TestARenewalCountsFromWhenItWasSentHoweverLateItsReplyIs(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	s := start(t)
	sent := make(chan time.Time, 1) // of the only renewal that is answered
	var renewals atomic.Int64
	locks := mortise.New(between{clients["go-redis"](t, s), func(words []string, real func() any) any {
		if words[0] != "LOCK.RENEW" {
			return real()
		}
		if renewals.Add(1) > 1 {
			return errNoAnswer
		}
		sent <- time.Now()
		reply := real()
		time.Sleep(lease / 2)
		return reply
	}})
	defer locks.Close(background)
	lock, _, err := locks.TryLock(background, "k", mortise.Lease(lease))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until((<-sent).Add(lease)))
	if _, err := lock.Check(); err != mortise.ErrLost {
		t.Fatal("it counts from the reply:", err)
	}
}

func TestANameLeavesThoughItsLeaveFailsSeveralTimes(t *testing.T) {
	t.Parallel()
	s := start(t)
	var requests, leaves atomic.Int64
	locks := mortise.New(between{clients["go-redis"](t, s), func(words []string, real func() any) any {
		lost := words[0] == "LOCK.WLOCK" && requests.Add(1) == 1
		if lost {
			real()
		}
		if lost || words[0] == "LOCK.LEAVE" && leaves.Add(1) <= 3 {
			return errNoAnswer
		}
		return real()
	}})
	defer locks.Close(background)
	lock, _, err := locks.Lock(background, "k", mortise.Lease(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(); err != nil || leaves.Load() != 4 {
		t.Fatal(leaves.Load(), "leaves,", err)
	}
	eventually(t, "it is free", func() bool { return s.free("k") })
}

func TestAWrongPasswordIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.do("CONFIG", "SET", "requirepass", "right")
	rdb := redis.NewClient(&redis.Options{Addr: s.addr, Password: "wrong"})
	defer rdb.Close()
	client := goredisconn.New(rdb)
	locks := mortise.New(client)
	defer locks.Close(background)
	var refused *mortise.Refused
	if _, _, err := locks.Lock(background, "k"); !errors.As(err, &refused) || refused.Code != "WRONGPASS" {
		t.Fatal(err)
	}
	conn, err := connection(client)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, reply := range conn.Do(background, [][]string{{"PING"}, {"PING"}}) {
		if refused, ok := reply.(*mortise.Refused); !ok || refused.Code != "WRONGPASS" {
			t.Error("of two commands:", reply)
		}
	}
	inCluster := start(t, "--cluster-enabled", "yes")
	inCluster.do("CONFIG", "SET", "requirepass", "right")
	overCluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{inCluster.addr}, Password: "wrong"})
	defer overCluster.Close()
	if _, err := goredisconn.New(overCluster).Node(background, "k"); !errors.As(err, &refused) || refused.Code != "WRONGPASS" {
		t.Error("of a cluster:", err)
	}
	if _, err := rueidisconn.New(rueidis.ClientOption{InitAddress: []string{s.addr}, Password: "wrong"}); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Fatal(err)
	}
}

// connection is one to the server that serves some key.
func connection(c mortise.Client) (mortise.Conn, error) {
	node, err := c.Node(background, "k")
	if err != nil {
		return nil, err
	}
	return c.Connect(node, time.Second)
}

func TestAnErrorHasTheCodeThatTheServerSent(t *testing.T) {
	t.Parallel()
	s := start(t, "--replicaof", "127.0.0.1 1")
	for name, client := range clients {
		c := client(t, s)
		defer c.Close()
		conn, err := connection(c)
		if err != nil {
			t.Fatal(name, err)
		}
		defer conn.Close()
		reply := conn.Do(background, [][]string{{"WAIT", "1", "1"}})[0]
		if refused, ok := reply.(*mortise.Refused); !ok || refused.Code != "ERR" || !strings.HasPrefix(refused.Message, "WAIT cannot be used") {
			t.Error(name, reply)
		}
	}
}

func TestAServerWithoutTheModuleIsReportedAtOnceWithWhatToDo(t *testing.T) {
	s := startWith(t, func(port int, dir string) []string { return serverArgs(port, dir) })
	for name, client := range clients {
		locks := mortise.New(client(t, s))
		if _, _, err := locks.Lock(background, "k"); !isRefused(err) || !strings.Contains(err.Error(), "loadmodule") {
			t.Fatal(name, err)
		}
		_ = locks.Close(background)
	}
}

func TestATakeOverThatCouldNotBeSentIsRepeated(t *testing.T) {
	t.Parallel()
	s := start(t)
	token := s.do("LOCK.ACQUIRE", "job", "producer", 60_000).(int64)
	var refused atomic.Int64
	locks := mortise.New(between{clients["go-redis"](t, s), func(words []string, real func() any) any {
		if (words[0] == "LOCK.PASS" || words[0] == "LOCK.RENEW") && refused.Add(1)%2 == 1 {
			return &net.OpError{Op: "dial", Err: errNoAnswer}
		}
		return real()
	}})
	defer closeSoon(locks)
	runner, _, err := locks.TakeOver(background, "job", "producer", token)
	if err != nil || runner.Unlock() != nil {
		t.Fatal(err)
	}
	token = s.do("LOCK.ACQUIRE", "job", "producer", 60_000).(int64)
	runner, _, err = locks.Resume(background, "job", "producer", token)
	if err != nil || runner.Unlock() != nil {
		t.Fatal(err)
	}
}
