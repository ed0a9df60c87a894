package storage

import (
	"bytes"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// Cron is a recurring job.
type Cron struct {
	Name        string
	Description string
	Schedule    string
	TimeZone    string
	Overlap     string
	Paused      bool

	// The five are what cron.Entry says [fields-5].
	Missed      string
	MissedLimit int
	Gap         string
	RunOnStart  bool
	Template    bool

	Type    string // of the jobs, their args and their options
	Args    ojs.Args
	Options ojs.Options

	CreatedAt time.Time
	LastRun   time.Time // the time for which a job was last made; zero: never
	NextRun   time.Time // the Due of its document; zero: none is to come [cron-5]
	Runs      int
	LastJobID string
	History   []CronRun // the last runs, the oldest first [fields-5]

	Version uint64
}

// CronRun is one run of a recurring job, or a run that was skipped.
type CronRun struct {
	Due     time.Time
	JobID   string // "": no job was made [fields-5]
	Manual  bool   // an operator called for the run [fields-5]
	Outcome string // the job's end, or why there is no job; "": not known yet [fields-5]
}

// Copy returns an entry that shares nothing with c.
func (c *Cron) Copy() Cron {
	d := *c
	d.Options = c.Options.Clone()
	d.Options.Meta = jsonvalue.Clone(c.Options.Meta)
	d.History = slices.Clone(c.History)
	for k, v := range d.Options.Extra {
		d.Options.Extra[k] = bytes.Clone(v)
	}
	return d
}
