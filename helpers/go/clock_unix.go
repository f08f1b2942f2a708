//go:build linux || darwin

package mortise

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// now is the time since boot. It goes on while the machine sleeps, as the server's leases do.
var now = clock(bootTime())

func bootTime() int32 {
	if runtime.GOOS == "darwin" {
		return unix.CLOCK_MONOTONIC // goes on while a Mac sleeps; Go's own clock does not
	}
	return 7 // CLOCK_BOOTTIME, a name that macOS does not have
}

// clock reads that clock of the system, or Go's own where the system refuses it.
func clock(id int32) func() time.Duration {
	read := func() (time.Duration, error) {
		var ts unix.Timespec
		err := unix.ClockGettime(id, &ts)
		return time.Duration(ts.Nano()), err
	}
	if _, err := read(); err != nil {
		return sinceStart
	}
	return func() time.Duration {
		t, _ := read() // does not fail: it has been read
		return t
	}
}
