package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	mortise "mortise.example/mortise/helpers/go"
	"mortise.example/mortise/helpers/go/goredisconn"
)

func main() {
	addr := "127.0.0.1:6379"
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	locks := mortise.New(goredisconn.New(rdb))
	defer locks.Close(context.Background())

	if err := sell(context.Background(), locks); err != nil {
		log.Fatal(err)
	}
}

func sell(ctx context.Context, locks *mortise.Locks) error {
	lock, held, err := locks.Lock(ctx, "stock:17", mortise.Lease(10*time.Second), mortise.Wait(5*time.Second))
	if err != nil {
		return err // mortise.ErrBusy: somebody else held it for 5 s
	}
	defer lock.Unlock()

	// Work with held: it is cancelled when the lock is lost.
	select {
	case <-held.Done():
		return context.Cause(held)
	case <-time.After(10 * time.Millisecond):
		fmt.Println("sold, with the fencing token", lock.Token())
		return nil
	}
}
