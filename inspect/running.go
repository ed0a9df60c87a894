package inspect

import (
	"time"

	"github.com/ojsengine/ojs"
)

// Running is an attempt that a handler of an engine works on.
type Running struct {
	Job    ojs.JobHeader // with a meta of its own
	Since  time.Time
	Asleep bool   // in handler.Sleep
	Ended  error  // why its context has ended; nil: it has not
	Stack  string // of the goroutine that runs the handler
}
