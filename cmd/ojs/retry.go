package main

import (
	"github.com/ojsengine/ojs/operate"
)

type retryVerb struct{ change }

func (retryVerb) Help() string {
	return `A discarded job begins again at attempt 0, with its errors kept. A retryable one runs at once:
a filter has to name that state.

` + changeHelp
}

// Run retries jobs.
func (v *retryVerb) Run(c *call) error { return v.apply(c, operate.RetryJobs(), "retried") }
