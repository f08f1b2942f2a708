package mortise_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	mortise "mortise.example/mortise/helpers/go"
	"mortise.example/mortise/helpers/go/goredisconn"
	"mortise.example/mortise/helpers/go/rueidisconn"
)

// proxy is between a client and the server, and breaks chosen commands.
type proxy struct {
	net.Listener
	to      string
	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	word    []byte
	when    int
	broken  atomic.Int64
	release chan struct{}
	// While they are locked, data is held back.
	requests, replies sync.RWMutex
}

const (
	before = iota // the connection breaks, the command is lost
	after         // the command arrives, its reply is lost
	later         // the connection breaks, the command arrives after release is closed
)

// breaks breaks the next command with that word, once.
func (p *proxy) breaks(word string, when int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word, p.when = []byte(word), when
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) hit(chunk []byte) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.word == nil || !bytes.Contains(chunk, p.word) {
		return 0, false
	}
	p.word = nil
	p.broken.Add(1)
	return p.when, true
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client] = struct{}{}
	p.mu.Unlock()
	var mute atomic.Bool
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				break
			}
			if mute.Load() {
				_ = client.Close()
				continue
			}
			p.replies.RLock()
			p.replies.RUnlock()
			_, _ = client.Write(buffer[:n])
		}
		_ = client.Close()
	}()
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			break
		}
		p.requests.RLock()
		p.requests.RUnlock()
		when, hit := p.hit(buffer[:n])
		switch {
		case hit && when == before:
			_ = client.Close()
			return
		case hit && when == later:
			_ = client.Close()
			<-p.release
		case hit:
			mute.Store(true)
		}
		_, _ = server.Write(buffer[:n])
		if hit && when == later {
			time.Sleep(100 * time.Millisecond) // let it be read before the connection goes
		}
	}
	if mute.Load() {
		time.Sleep(100 * time.Millisecond)
	}
}

// through runs the test with each client, through a proxy.
func through(t *testing.T, test func(t *testing.T, s *server, p *proxy, locks *mortise.Locks)) {
	for _, name := range []string{"go-redis", "rueidis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p := &proxy{Listener: l, to: s.addr, conns: map[net.Conn]struct{}{}, release: make(chan struct{})}
			defer p.Close()
			go func() {
				for {
					c, err := p.Accept()
					if err != nil {
						return
					}
					go p.serve(c)
				}
			}()
			addr := l.Addr().String()
			var client mortise.Client
			if name == "go-redis" {
				rdb := redis.NewClient(&redis.Options{Addr: addr})
				defer rdb.Close()
				client = goredisconn.New(rdb)
			} else if client, err = rueidisconn.New(rueidis.ClientOption{InitAddress: []string{addr}}); err != nil {
				t.Fatal(err)
			}
			locks := mortise.New(client)
			defer func() {
				ctx, cancel := context.WithTimeout(background, 5*time.Second)
				defer cancel()
				_ = locks.Close(ctx)
			}()
			test(t, s, p, locks)
		})
	}
}
