//go:build unix

// Interop is Go's worker in `make -C verify interop`: goroutines that compete with programs in other languages for one lock, for the permits of
// one semaphore and for several keys at once, and record when they were certainly inside.
//
//	interop go-redis|rueidis PORT KEY SECONDS LEDGER
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"golang.org/x/sys/unix"

	mortise "mortise.example/mortise/helpers/go"
	"mortise.example/mortise/helpers/go/goredisconn"
	"mortise.example/mortise/helpers/go/rueidisconn"
)

const (
	limit = 5 // the permits of the semaphore

	lease = time.Second
	wait  = 5 * time.Second
	pause = 20 * time.Millisecond
)

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: interop go-redis|rueidis PORT KEY SECONDS LEDGER")
		os.Exit(2)
	}
	if err := run(os.Args[1], "127.0.0.1:"+os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(name, addr, key, seconds, path string) error {
	limit, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return err
	}
	ledger, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer ledger.Close()
	client, run, err := connect(name, addr)
	if err != nil {
		return err
	}
	var over atomic.Bool
	time.AfterFunc(time.Duration(limit*float64(time.Second)), func() { over.Store(true) })
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	replicas, _ := strconv.Atoi(os.Getenv("REPLICAS"))
	locks := mortise.New(client, mortise.Replicas(replicas))
	w := &worker{run: run, locks: locks, key: key, ledger: ledger, who: fmt.Sprintf("%s:%d", name, os.Getpid())}
	var running sync.WaitGroup
	for _, take := range []task{w.alone, w.alone, w.alone, w.alone, w.reading, w.reading, w.permits, w.permits, w.several, w.several} {
		running.Go(func() {
			for round := 0; !over.Load(); round++ {
				w.section(take(round))
			}
		})
	}
	running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := locks.Close(ctx); err != nil {
		return err
	}
	fmt.Println("done", w.count.Load())
	return nil
}

// connect retries until it reaches the server: the worker may be started while it is cut off.
func connect(name, addr string) (client mortise.Client, run func(ctx context.Context, command []any), err error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	run = func(ctx context.Context, command []any) { _ = rdb.Do(ctx, command...).Err() }
	switch name {
	case "go-redis":
		return goredisconn.New(rdb), run, nil
	case "rueidis":
		for {
			client, err := rueidisconn.New(rueidis.ClientOption{InitAddress: []string{addr}})
			if err == nil {
				return client, run, nil
			}
			time.Sleep(pause)
		}
	}
	return nil, nil, errors.New("no worker has the name " + name)
}

type worker struct {
	run      func(ctx context.Context, command []any) // over a client of its own
	locks    *mortise.Locks
	key, who string
	ledger   *os.File
	count    atomic.Int64
}

// held is a lock, permits or several locks.
type held interface {
	Token() int64
	Check() (int64, error)
	Unlock() error
}

// A task acquires something in each round, and returns what the ledger has after the name: nothing for the lock, read, a number of
// permits, or the numbers of several keys.
type task func(round int) (what held, share string, err error)

var options = []mortise.Option{mortise.Lease(lease), mortise.Wait(wait)}

func (w *worker) alone(int) (held, string, error) {
	lock, _, err := w.locks.Lock(context.Background(), w.key, options...)
	return lock, "", err
}

func (w *worker) reading(int) (held, string, error) {
	lock, _, err := w.locks.RLock(context.Background(), w.key, options...)
	return lock, " read", err
}

func (w *worker) permits(round int) (held, string, error) {
	permits := 1 + round%3
	lock, _, err := w.locks.Semaphore(w.key+":permits", limit).Acquire(context.Background(), permits, options...)
	return lock, fmt.Sprintf(" %d", permits), err
}

func (w *worker) several(round int) (held, string, error) {
	keys := []string{w.key, w.key + ":1", w.key + ":2"}
	first, second := round%3, (round+1)%3
	locks, _, err := w.locks.LockAll(context.Background(), []string{keys[first], keys[second]}, options...)
	return locks, fmt.Sprintf(" %d,%d", first, second), err
}

// section is inside once, if it was granted. What it records is certain: it reads the clock first, and then checks the lock.
func (w *worker) section(lock held, share string, err error) {
	if err != nil {
		if err != mortise.ErrBusy {
			time.Sleep(pause)
		}
		return
	}
	defer lock.Unlock()
	last := clock()
	if _, err := lock.Check(); err != nil {
		return
	}
	w.write("enter", lock, last, share)
	w.count.Add(1)
	if share == "" {
		w.guarded(lock.(*mortise.Lock))
	}
	for range 3 {
		time.Sleep(700 * time.Microsecond)
		at := clock()
		if _, err := lock.Check(); err != nil {
			break
		}
		last = at
	}
	w.write("leave", lock, last, share)
	if share == "" && lock.Token()%4 == 0 {
		w.handOver(lock.(*mortise.Lock))
	}
}

// handOver passes the lock on to a name, takes it over from there, and is inside again.
func (w *worker) handOver(lock *mortise.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	heir := fmt.Sprintf("%s:%d", w.who, lock.Token())
	token, err := lock.PassTo(ctx, heir, lease)
	if err != nil {
		return
	}
	taken, _, err := w.locks.TakeOver(context.Background(), w.key, heir, token, mortise.Lease(lease))
	w.section(taken, "", err)
}

// guarded appends to a list under LOCK.GUARD. It ignores errors: the lock may be lost, or the reply.
func (w *worker) guarded(lock *mortise.Lock) {
	name, _, _ := strings.Cut(w.who, ":")
	ctx, cancel := context.WithTimeout(context.Background(), lease)
	defer cancel()
	w.run(ctx, lock.Guard("RPUSH", "list:{"+w.key+"}", fmt.Sprintf("write:%d:%s", lock.Token(), name)))
}

func (w *worker) write(what string, lock held, at int64, share string) {
	if _, err := fmt.Fprintf(w.ledger, "%s %d %d %s%s\n", what, lock.Token(), at, w.who, share); err != nil {
		panic(err)
	}
}

// clock is CLOCK_MONOTONIC in nanoseconds, which all programs of the machine share.
func clock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}
