//go:build unix

// Conform is Go's worker of the conformance run: it carries out the orders that come line by line (helpers/README.md).
//
//	conform go-redis|rueidis PORT [PASSWORD]
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	mortise "mortise.example/mortise/helpers/go"
	"mortise.example/mortise/helpers/go/goredisconn"
	"mortise.example/mortise/helpers/go/rueidisconn"
)

const (
	rounds = 5 // of each task, of one object that tasks share
	pool   = 3 // permits

	patience = 10 * time.Second
)

var errBody = errors.New("body")

type worker struct {
	locks *mortise.Locks
	err   error // why there are none

	mu     sync.Mutex
	taken  map[string]*mortise.Lock
	blocks map[string]chan error
}

func main() {
	w := &worker{taken: map[string]*mortise.Lock{}, blocks: map[string]chan error{}}
	connected := make(chan struct{})
	go func() {
		w.connect(os.Args)
		close(connected)
	}()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if words[0] == "exit" {
			w.say(words[1], "leaves the hold")
			return
		}
		go func() {
			<-connected
			w.carryOut(words[0], words[1], words[2:])
		}()
	}
	if <-connected; w.locks != nil {
		_ = w.locks.Close(context.Background())
	}
}

// connect makes the locks. Rueidis connects at once, and a program that starts while its server is away tries that again.
func (w *worker) connect(args []string) {
	addr, password := "127.0.0.1:"+args[2], strings.Join(args[3:], "")
	replicas, _ := strconv.Atoi(os.Getenv("REPLICAS"))
	if args[1] == "go-redis" {
		w.locks = mortise.New(goredisconn.New(redis.NewClient(&redis.Options{Addr: addr, Password: password})), mortise.Replicas(replicas))
		return
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		client, err := rueidisconn.New(rueidis.ClientOption{InitAddress: []string{addr}, Password: password})
		if err == nil {
			w.locks = mortise.New(client, mortise.Replicas(replicas))
			return
		}
		if _, refused := rueidis.IsRedisErr(err); refused || time.Now().After(end) {
			w.err = err
			return
		}
	}
}

func (w *worker) say(handle, answer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Println(handle, strings.ReplaceAll(answer, "\n", " "))
}

func (w *worker) carryOut(verb, handle string, words []string) {
	orders := map[string]func(handle string, words []string) (string, error){
		"acquire": w.acquire, "fixed": w.fixed, "extend": w.extend, "held": w.held, "release": w.release,
		"block": w.block, "leave": w.leave, "fail": w.fail, "share": w.share,
	}
	answer, err := "", w.err
	if err == nil {
		answer, err = orders[verb](handle, words)
	}
	var refused *mortise.Refused
	switch _, isServers := rueidis.IsRedisErr(err); {
	case err == nil && answer == "":
		return
	case err == nil:
	case errors.Is(err, mortise.ErrBusy):
		answer = "busy"
	case errors.Is(err, mortise.ErrLost):
		answer = "lost"
	case errors.As(err, &refused) || isServers:
		answer = "refused " + err.Error()
	default:
		answer = "unreachable " + err.Error()
	}
	w.say(handle, answer)
}

func (w *worker) acquire(handle string, words []string) (string, error) {
	options := []mortise.Option{mortise.Lease(milliseconds(words[1]))}
	if words[2] != "ever" {
		options = append(options, mortise.Wait(milliseconds(words[2])))
	}
	var lock *mortise.Lock
	var err error
	if keys := strings.Split(words[0], ","); len(keys) > 1 {
		lock, _, err = w.locks.LockAll(context.Background(), keys, options...)
	} else {
		lock, _, err = w.locks.Lock(context.Background(), words[0], options...)
	}
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken[handle] = lock
	return "granted", nil
}

func milliseconds(word string) time.Duration {
	n, _ := strconv.Atoi(word)
	return time.Duration(n) * time.Millisecond
}

func (w *worker) lock(handle string) *mortise.Lock {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken[handle]
}

// fixed is not there: the library has no lock that is not renewed.
func (w *worker) fixed(string, []string) (string, error) { return "none", nil }

func (w *worker) extend(string, []string) (string, error) { return "none", nil }

func (w *worker) held(handle string, _ []string) (string, error) {
	_, err := w.lock(handle).Check()
	return "held", err
}

func (w *worker) release(handle string, _ []string) (string, error) {
	return "released", w.lock(handle).Unlock()
}

// signal is what ends the block of that handle.
func (w *worker) signal(handle string) chan error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.blocks[handle] == nil {
		w.blocks[handle] = make(chan error, 1)
	}
	return w.blocks[handle]
}

func (w *worker) block(handle string, words []string) (string, error) {
	err := w.locks.Run(context.Background(), words[0], func(context.Context, *mortise.Lock) error {
		w.say(handle, "inside")
		return <-w.signal(handle)
	}, mortise.Lease(milliseconds(words[1])))
	switch body, lost := errors.Is(err, errBody), errors.Is(err, mortise.ErrLost); {
	case body && lost:
		return "caught body with lost", nil
	case body:
		return "caught body", nil
	case lost:
		return "caught lost", nil
	}
	return "left", err
}

func (w *worker) leave(handle string, _ []string) (string, error) {
	w.signal(handle) <- nil
	return "", nil
}

func (w *worker) fail(handle string, _ []string) (string, error) {
	w.signal(handle) <- errBody
	return "", nil
}

func (w *worker) share(_ string, words []string) (string, error) {
	permits := w.locks.Semaphore(words[1], pool)
	take := map[string]func() (*mortise.Lock, context.Context, error){
		"lock":    func() (*mortise.Lock, context.Context, error) { return w.locks.Lock(context.Background(), words[1]) },
		"read":    func() (*mortise.Lock, context.Context, error) { return w.locks.RLock(context.Background(), words[1]) },
		"permits": func() (*mortise.Lock, context.Context, error) { return permits.Acquire(context.Background(), 1) },
	}[words[0]]
	tasks, _ := strconv.Atoi(words[2])
	var mu sync.Mutex
	var inside, most, entered int
	count := func(more int) {
		mu.Lock()
		defer mu.Unlock()
		inside += more
		most, entered = max(most, inside), entered+max(more, 0)
	}
	failed := make(chan error, tasks)
	for range tasks {
		go func() {
			for range rounds {
				lock, _, err := take()
				if err != nil {
					failed <- err
					return
				}
				count(1)
				time.Sleep(time.Millisecond)
				count(-1)
				_ = lock.Unlock()
			}
			failed <- nil
		}()
	}
	for range tasks {
		if err := <-failed; err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("done %d %d", entered, most), nil
}
