package main

import (
	"github.com/ojsengine/ojs/operate"
)

type cancelVerb struct{ change }

func (cancelVerb) Help() string {
	return `A running job is taken from its handler, whose context ends: a filter has to name state:active.

` + changeHelp
}

// Run cancels jobs.
func (v *cancelVerb) Run(c *call) error { return v.apply(c, operate.CancelJobs(), "cancelled") }
