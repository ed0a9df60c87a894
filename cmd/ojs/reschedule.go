package main

import (
	"github.com/ojsengine/ojs/operate"
)

type rescheduleVerb struct {
	change
	At string `required:"" placeholder:"TIME" help:"The time: RFC 3339, a date, now, or from now on such as 90s, 2h or 3d."`
}

func (rescheduleVerb) Help() string { return changeHelp }

// Run gives jobs another time.
func (v *rescheduleVerb) Run(c *call) error {
	if _, err := c.store(); err != nil { // whose clock counts
		return err
	}
	at, err := parseTime(v.At, c.now())
	if err != nil {
		return err
	}
	return v.apply(c, operate.RescheduleJobs(at), "rescheduled")
}
