package mortise

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// now is the time since boot. It goes on while the machine sleeps, as the server's leases do.
func now() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return time.Since(started)
	}
	return time.Duration(ts.Nano())
}

var started = time.Now()
