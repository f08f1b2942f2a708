//go:build unix

// Interop is Go's worker in `make interop`: goroutines that contend for one lock, and for the permits of one semaphore, with
// programs in other languages, and write down when they were inside for certain.
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
	alone  = 4 // goroutines at the lock
	beside = 2 // at the semaphore
	limit  = 5 // its permits

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
	client, err := connect(name, addr)
	if err != nil {
		return err
	}
	var over atomic.Bool
	time.AfterFunc(time.Duration(limit*float64(time.Second)), func() { over.Store(true) })
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	locks := mortise.New(client)
	w := &worker{locks: locks, key: key, ledger: ledger, who: fmt.Sprintf("%s:%d", name, os.Getpid())}
	var running sync.WaitGroup
	for i := range alone + beside {
		running.Go(func() {
			for round := 0; !over.Load(); round++ {
				if i < alone {
					w.section(0)
				} else {
					w.section(1 + round%3)
				}
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

// connect tries until the server is reached: the worker may be started while it is cut off.
func connect(name, addr string) (mortise.Client, error) {
	switch name {
	case "go-redis":
		return goredisconn.New(redis.NewClient(&redis.Options{Addr: addr})), nil
	case "rueidis":
		for {
			client, err := rueidisconn.New(rueidis.ClientOption{InitAddress: []string{addr}})
			if err == nil {
				return client, nil
			}
			time.Sleep(pause)
		}
	}
	return nil, errors.New("no worker has the name " + name)
}

type worker struct {
	locks    *mortise.Locks
	key, who string
	ledger   *os.File
	count    atomic.Int64
}

// section enters once, if it can, with that many permits; with none by the lock. What it writes down is proven: the clock is
// read first, and then the lock is asked.
func (w *worker) section(permits int) {
	lock, err := w.take(permits)
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
	w.write("enter", lock, last, permits)
	w.count.Add(1)
	for range 3 {
		time.Sleep(700 * time.Microsecond)
		at := clock()
		if _, err := lock.Check(); err != nil {
			break
		}
		last = at
	}
	w.write("leave", lock, last, permits)
}

func (w *worker) take(permits int) (*mortise.Lock, error) {
	options := []mortise.Option{mortise.Lease(lease), mortise.Wait(wait)}
	if permits == 0 {
		lock, _, err := w.locks.Lock(context.Background(), w.key, options...)
		return lock, err
	}
	lock, _, err := w.locks.Semaphore(w.key+":permits", limit).Acquire(context.Background(), permits, options...)
	return lock, err
}

func (w *worker) write(what string, lock *mortise.Lock, at int64, permits int) {
	line := fmt.Sprintf("%s %d %d %s", what, lock.Token(), at, w.who)
	if permits > 0 {
		line += fmt.Sprintf(" %d", permits)
	}
	if _, err := w.ledger.WriteString(line + "\n"); err != nil {
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
