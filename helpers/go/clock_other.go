//go:build !linux && !darwin

package mortise

// now goes on while Windows sleeps: Go reads the interrupt time there, which counts that. On other systems it may stand still.
var now = sinceStart
