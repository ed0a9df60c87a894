//go:build race

package engine

import "time"

// With the race detector handlers are not as quick as workers want them to be before they pile up jobs.
func init() { quickTime, trust = 5*time.Millisecond, 4 }
