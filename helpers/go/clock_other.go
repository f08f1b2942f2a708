//go:build !linux

package mortise

import "time"

var started = time.Now()

// now is the time since the program started, on the monotonic clock.
func now() time.Duration { return time.Since(started) }
