package mortise

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// prompt is a connection to a server that answers at once.
type prompt struct{ tokens int64 }

func (p *prompt) Do(_ context.Context, commands [][]string) []any {
	replies := make([]any, len(commands))
	for i, words := range commands {
		if replies[i] = int64(0); words[0] != "LOCK.RELEASE" {
			p.tokens++
			replies[i] = p.tokens
		}
	}
	return replies
}

func (p *prompt) Close() {}

// promptClient connects to it.
type promptClient struct{}

func (promptClient) Node(context.Context, string) (string, error) { return "", nil }
func (promptClient) Refresh(context.Context)                      {}
func (promptClient) Connect(string) (Conn, error)                 { return &prompt{}, nil }
func (promptClient) Close()                                       {}

// What the library itself needs for an acquisition and a release.
func BenchmarkOwnTime(b *testing.B) {
	locks := New(promptClient{})
	defer locks.Close(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		lock, _, err := locks.Lock(context.Background(), "key")
		if err != nil {
			b.Fatal(err)
		}
		lock.Unlock()
	}
}

func TestNoGoroutineIsLeftAfterClose(t *testing.T) {
	before := runtime.NumGoroutine()
	locks := New(promptClient{})
	for range 3 {
		lock, _, err := locks.Lock(context.Background(), "key")
		if err != nil {
			t.Fatal(err)
		}
		lock.Unlock()
	}
	if err := locks.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
