package main

import (
	"github.com/ojsengine/ojs/operate"
)

type deleteVerb struct{ change }

func (deleteVerb) Help() string { return "Only jobs that have ended can be deleted.\n\n" + changeHelp }

// Run deletes jobs.
func (v *deleteVerb) Run(c *call) error { return v.apply(c, operate.DeleteJobs(), "deleted") }
