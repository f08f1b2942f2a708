//go:build linux || darwin

package mortise

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestTheClockCountsTheTimeOfASleepingMachine(t *testing.T) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Skip("there is nothing to compare with")
	}
	var uptime float64
	if _, err := fmt.Sscan(string(text), &uptime); err != nil {
		t.Fatal(err)
	}
	if since := now().Seconds() - uptime; since < -1 || since > 60 {
		t.Fatalf("%.1f s from the time since boot", since)
	}
}

func TestIfTheSystemRefusesTheClockGosOwnIsUsed(t *testing.T) {
	read := clock(99)
	first := read()
	for limit := time.Now().Add(time.Minute); read() <= first; {
		if time.Now().After(limit) {
			t.Fatal("the clock stands still")
		}
	}
	if first > time.Since(started) {
		t.Fatal("another clock than Go's was read:", first)
	}
}
