package mortise

import "time"

var started = time.Now()

// sinceStart is the time since the program started, on Go's monotonic clock.
func sinceStart() time.Duration { return time.Since(started) }
