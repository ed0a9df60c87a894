package main

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/operate"
)

type moveVerb struct {
	change
	To string `name:"queue" required:"" placeholder:"NAME" help:"The queue to move jobs to."`
}

func (moveVerb) Help() string {
	return "A moved job goes behind those of its priority. queue:NAME in a filter is where jobs are.\n\n" +
		changeHelp
}

// Run moves jobs.
func (v *moveVerb) Run(c *call) error {
	if err := ojs.ValidateQueue(v.To); err != nil {
		return err
	}
	return v.apply(c, operate.MoveJobs(v.To), "moved to "+v.To)
}
