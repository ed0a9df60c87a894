package storage

import (
	"context"
	"time"

	"github.com/ojsengine/ojs"
)

// CronStore is the ability to keep recurring jobs. It is optional; see As. Nothing in a storage makes jobs of them: engines
// do, and Version sees to it that each run is one engine's.
type CronStore interface {
	// SetCron stores an entry under its name if the stored entry has the version that c has, 0 standing for none, and
	// returns the new version. Otherwise it returns ErrFenced, and nothing changes.
	SetCron(ctx context.Context, c Cron) (version uint64, err error)

	// DeleteCron removes an entry. It reports whether there was one.
	DeleteCron(ctx context.Context, name string) (bool, error)

	// Crons returns the entries, sorted by name.
	Crons(ctx context.Context) ([]Cron, error)
}

// Cron is a recurring job.
type Cron struct {
	Name        string
	Description string
	Schedule    string
	TimeZone    string
	Overlap     string
	Paused      bool

	Type    string // of the jobs, their args and their options
	Args    ojs.Args
	Options ojs.Options

	CreatedAt time.Time
	LastRun   time.Time // the time for which a job was last made; zero: never
	NextRun   time.Time // zero: none is to come
	Runs      int
	LastJobID string
	Version   uint64
}

// Copy returns an entry that shares nothing with c.
func (c *Cron) Copy() Cron {
	d := *c
	d.Options = c.Options.Clone()
	return d
}
