package mortise_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	mortise "mortise.example/mortise/helpers/go"
	"mortise.example/mortise/helpers/go/goredisconn"
	"mortise.example/mortise/helpers/go/rueidisconn"
)

// server is a real server with the module.
type server struct {
	t        testing.TB
	addr     string
	password string // of those that connect from now on
	args     []string
	cmd      *exec.Cmd
	*redis.Client
}

func modulePath() string {
	if path := os.Getenv("MORTISE_MODULE"); path != "" {
		return path
	}
	path, _ := filepath.Abs("../../target/release/libmortise.so")
	return path
}

// claims are held until the process ends.
var claims sync.Map

// claimPort returns a port that no other test of any language gets, even while its server is down: the process that listens
// 2,500 above owns it. It is below the range of outgoing connections, and a cluster's bus is 10,000 above.
func claimPort() int {
	for {
		port := 10_000 + rand.IntN(2_500)
		claim, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+2_500))
		if err != nil {
			continue
		}
		claims.Store(port, claim)
		if isFree(port) && isFree(port+10_000) {
			return port
		}
	}
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// start runs a server with more arguments of redis.conf, until the test ends.
func start(t testing.TB, args ...string) *server {
	t.Helper()
	return startWith(t, func(port int, dir string) []string {
		return append(serverArgs(port, dir, "--loadmodule", modulePath()), args...)
	})
}

// serverArgs are those of a server that does not know locks, and more.
func serverArgs(port int, dir string, more ...string) []string {
	args := []string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--enable-debug-command", "yes"}
	return append(args, more...)
}

func startWith(t testing.TB, args func(port int, dir string) []string) *server {
	t.Helper()
	port := claimPort()
	s := &server{t: t, addr: fmt.Sprintf("127.0.0.1:%d", port), args: args(port, t.TempDir())}
	s.Client = redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	s.run()
	t.Cleanup(func() {
		_ = s.Client.Close()
		s.kill()
	})
	return s
}

func (s *server) run() {
	s.t.Helper()
	name := os.Getenv("MORTISE_SERVER")
	if name == "" {
		name = "redis-server"
	}
	var log bytes.Buffer
	s.cmd = exec.Command(name, s.args...)
	s.cmd.Stdout = &log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	limit := time.Now().Add(60 * time.Second)
	for s.Ping(context.Background()).Err() != nil {
		if time.Now().After(limit) {
			s.t.Fatalf("the server does not answer:\n%s", log.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// freeze stops the server without closing anything, and returns a function that continues it.
func (s *server) freeze() func() {
	signal(s.t, s.cmd.Process, "STOP")
	return func() { signal(s.t, s.cmd.Process, "CONT") }
}

// signal uses the shell's kill, because package syscall has no SIGSTOP on Windows, where these files have to compile.
func signal(t testing.TB, process *os.Process, name string) {
	if err := exec.Command("kill", "-"+name, fmt.Sprint(process.Pid)).Run(); err != nil {
		t.Fatal(err)
	}
}

func (s *server) do(args ...any) any {
	s.t.Helper()
	reply, err := s.Do(context.Background(), args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return reply
}

func (s *server) info(field string) string {
	s.t.Helper()
	info, err := s.Info(context.Background(), "everything").Result()
	if err != nil {
		return "" // for a moment, while it changes its role
	}
	for line := range strings.Lines(info) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == field {
			return value
		}
	}
	s.t.Fatalf("INFO has no %s", field)
	return ""
}

// free reports whether nobody holds the lock and nobody waits for it.
func (s *server) free(key string) bool { return s.do("LOCK.INFO", key) == nil }

func (s *server) waiters(key string) int64 {
	m, _ := s.do("LOCK.INFO", key).(map[any]any)
	n, _ := m["waiters"].(int64)
	return n
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(60 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// clients are the supported clients. A test that uses one runs with each.
var clients = map[string]func(testing.TB, *server) mortise.Client{
	"go-redis": func(t testing.TB, s *server) mortise.Client {
		rdb := redis.NewClient(&redis.Options{Addr: s.addr, Password: s.password})
		t.Cleanup(func() { _ = rdb.Close() })
		return goredisconn.New(rdb)
	},
	"rueidis": func(t testing.TB, s *server) mortise.Client {
		c, err := rueidisconn.New(rueidis.ClientOption{InitAddress: []string{s.addr}, Password: s.password})
		if err != nil {
			t.Fatal(err)
		}
		return c
	},
}

func each(t *testing.T, args []string, test func(t *testing.T, s *server, connect func() *mortise.Locks)) {
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, args...)
			test(t, s, func() *mortise.Locks {
				locks := mortise.New(client(t, s))
				t.Cleanup(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					defer cancel()
					_ = locks.Close(ctx)
				})
				return locks
			})
		})
	}
}

// wants has the server want that password of new connections, and ends all but the test's own.
func (s *server) wants(password string) {
	s.t.Helper()
	s.do("CONFIG", "SET", "requirepass", password)
	s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
}

// calls returns how often the server ran the command.
func (s *server) calls(command string) int {
	s.t.Helper()
	var calls int
	for line := range strings.Lines(s.Info(context.Background(), "commandstats").Val()) {
		if rest, ok := strings.CutPrefix(strings.ToLower(line), "cmdstat_"+strings.ToLower(command)+":calls="); ok {
			_, _ = fmt.Sscanf(rest, "%d", &calls)
		}
	}
	return calls
}
