// The Go libraries, one at a time: benches/peers/README.md says what a driver does.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	mortise "mortise.example/mortise/helpers/go"
	"mortise.example/mortise/helpers/go/goredisconn"
	"mortise.example/mortise/helpers/go/rueidisconn"
)

// acquire takes a lock, or fails, and then is asked again; release gives it back.
type acquire func(ctx context.Context, key string, write bool) (release func(), err error)

func contender(name, addr string, keys int) (acquire, error) {
	switch name {
	case "token":
		return token(redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1100}), keys)
	case "mortise-go-redis":
		return ours(mortise.New(goredisconn.New(redis.NewClient(&redis.Options{Addr: addr})))), nil
	case "mortise-rueidis":
		client, err := rueidisconn.New(rueidis.ClientOption{InitAddress: []string{addr}})
		if err != nil {
			return nil, err
		}
		return ours(mortise.New(client)), nil
	case "redsync":
		sync := redsync.New(goredis.NewPool(redis.NewClient(&redis.Options{Addr: addr})))
		return func(ctx context.Context, key string, _ bool) (func(), error) {
			mutex := sync.NewMutex(key)
			err := mutex.LockContext(ctx)
			return func() { mutex.UnlockContext(ctx) }, err
		}, nil
	case "redislock":
		locker := redislock.New(redis.NewClient(&redis.Options{Addr: addr}))
		// The retries of its README, without the limit.
		options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
		return func(ctx context.Context, key string, _ bool) (func(), error) {
			ctx, cancel := context.WithTimeout(ctx, time.Hour) // else its own limit is the time to live
			lock, err := locker.Obtain(ctx, key, 30*time.Second, options)
			return func() { lock.Release(ctx); cancel() }, err
		}, nil
	case "rueidislock":
		// One key instead of three, and the tracking that its README recommends for servers from 7.0.5 on.
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: 1, NoLoopTracking: true,
		})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, key string, _ bool) (func(), error) {
			_, cancel, err := locker.WithContext(ctx, key)
			return cancel, err
		}, nil
	}
	return nil, fmt.Errorf("unknown contender %s", name)
}

// No lock, but what the server and the round trip allow: an element for each key, which one pops and pushes back.
func token(client *redis.Client, keys int) (acquire, error) {
	ctx := context.Background()
	for n := -1; n < keys; n++ {
		key := fmt.Sprint("key:", n)
		if n < 0 {
			key = "warm"
		}
		isFirst, err := client.SetNX(ctx, "made:"+key, 1, 0).Result() // of several processes, one
		if err == nil && isFirst {
			err = client.RPush(ctx, key, "free").Err()
		}
		if err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, key string, _ bool) (func(), error) {
		err := client.BLPop(ctx, 0, key).Err()
		return func() { client.RPush(ctx, key, "free") }, err
	}, nil
}

func ours(locks *mortise.Locks) acquire {
	return func(ctx context.Context, key string, write bool) (func(), error) {
		take := locks.Lock
		if !write {
			take = locks.RLock
		}
		lock, _, err := take(ctx, key)
		return func() { lock.Unlock() }, err
	}
}

func number(at int) int {
	n, err := strconv.Atoi(os.Args[at])
	if err != nil {
		panic(err)
	}
	return n
}

// A worker's waits in µs; since is when the one began that goes on.
type worker struct {
	sync.Mutex
	waits []int64
	since time.Time
}

func main() {
	addr, seconds, workers, keys := "127.0.0.1:"+os.Args[2], number(3), number(4), number(5)
	hold, think, writers := time.Duration(number(6))*time.Millisecond, time.Duration(number(7))*time.Millisecond, number(8)
	ctx := context.Background()
	take, err := contender(os.Args[1], addr, keys)
	if err != nil {
		panic(err)
	}
	for n := 0; n < 200; n++ {
		if release, err := take(ctx, "warm", true); err == nil {
			release()
		}
	}
	fmt.Println("ready")
	bufio.NewScanner(os.Stdin).Scan()

	all := make([]worker, workers)
	for i := range all {
		go func(w *worker) {
			for n := i; ; n += workers {
				key := fmt.Sprint("key:", n%keys)
				w.Lock()
				w.since = time.Now()
				w.Unlock()
				release, err := take(ctx, key, writers == 0 || i < writers)
				for err != nil {
					release, err = take(ctx, key, writers == 0 || i < writers)
				}
				w.Lock()
				w.waits = append(w.waits, time.Since(w.since).Microseconds())
				w.since = time.Time{}
				w.Unlock()
				pause(hold)
				release()
				pause(think)
			}
		}(&all[i])
	}
	time.Sleep(time.Duration(seconds) * time.Second)
	served, waits := make([]int, workers), make([][]int64, workers)
	for i := range all {
		w := &all[i]
		w.Lock() // and never unlocked: it is over
		served[i], waits[i] = len(w.waits), append([]int64{}, w.waits...)
		if !w.since.IsZero() {
			waits[i] = append(waits[i], time.Since(w.since).Microseconds())
		}
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"served": served, "waits": waits})
	bufio.NewScanner(os.Stdin).Scan()
}

func pause(d time.Duration) {
	if d > 0 {
		time.Sleep(d)
	}
}
