package enginetest

import "time"

// SetPatience shortens the wait for an engine that does not become idle.
func SetPatience(d time.Duration) (before time.Duration) {
	before, patience = patience, d
	return before
}
