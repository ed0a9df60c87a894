package main

import (
	"github.com/ojsengine/ojs/operate"
)

type activateVerb struct{ change }

func (activateVerb) Help() string { return changeHelp }

// Run activates jobs.
func (v *activateVerb) Run(c *call) error { return v.apply(c, operate.ActivateJobs(), "activated") }
