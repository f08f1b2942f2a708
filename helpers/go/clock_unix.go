//go:build linux || darwin

package mortise

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// now is the time since boot. It goes on while the machine sleeps, as the server's leases do.
var now = clock(bootTime[runtime.GOOS])

var bootTime = map[string]int32{
	"darwin": unix.CLOCK_MONOTONIC, // goes on while a Mac sleeps; Go's own clock does not
	"linux":  7,                    // CLOCK_BOOTTIME, a name that macOS does not have
}

// clock reads that clock of the system, or Go's own where the system refuses it.
func clock(id int32) func() time.Duration {
	if unix.ClockGettime(id, &unix.Timespec{}) != nil {
		return sinceStart
	}
	return func() time.Duration {
		var ts unix.Timespec
		_ = unix.ClockGettime(id, &ts) // does not fail: it has been read
		return time.Duration(ts.Nano())
	}
}
