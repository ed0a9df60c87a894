package storage

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// CronStore keeps recurring jobs [fields-5, fields-6]. A storage makes no jobs of them:
// engines do, and Version sees to it that each run is one engine's. The cost of a call
// grows with the entries that it names or returns, and only with the logarithm of those
// that are stored.
type CronStore interface {
	// SetCrons stores entries, each by itself [cron-4]. An entry is stored under its name
	// if the stored one has the version that the entry has, 0 standing for none [cron-1,
	// cron-6]. The result has the new version of each entry, and 0 for an entry that was
	// not stored because its version is not the stored one's [cron-1, cron-4]. A new
	// version is above every version that an entry of the name has had, deleted entries
	// included [cron-3, durable-3]. No name occurs twice in a call. A call that fails may
	// have stored some of the entries.
	SetCrons(ctx context.Context, entries []Cron) (versions []uint64, err error)

	// DeleteCron removes an entry [cron-2]. It reports whether there was one [cron-2].
	DeleteCron(ctx context.Context, name string) (bool, error)

	// Crons returns entries in the order of their names, which is that of their bytes
	// [cron-2].
	Crons(ctx context.Context, q CronQuery) ([]Cron, error)

	// DueCrons returns up to max entries whose NextRun is set and not after now, in the
	// order of NextRun and, for the same time, of their names [cron-5]. It begins with
	// the first that comes after an entry in this order: its Name and NextRun are all
	// that counts [cron-5]. If after is nil, it begins with the first of all [cron-5].
	// next is the NextRun of the first entry in this order that comes after those
	// returned; zero: there is none [cron-5, race-6].
	DueCrons(ctx context.Context, now time.Time, after *Cron, max int) (due []Cron, next time.Time, err error)
}

// CronQuery selects recurring jobs; the zero query selects the first of all.
type CronQuery struct {
	Names []string // the entries of these names; nil: all [cron-2]
	After string   // begin after this name [cron-2]
	Limit int      // most entries; 0 or more than 1000: 1000 [cron-2, cron-7]
}

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
	NextRun   time.Time // zero: none is to come [cron-5]
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

// CompareRuns orders entries by NextRun and, for the same time, by Name: the order of
// DueCrons.
func (c *Cron) CompareRuns(to *Cron) int {
	if d := c.NextRun.Compare(to.NextRun); d != 0 {
		return d
	}
	return cmp.Compare(c.Name, to.Name)
}

// MaxCrons is the most entries that Crons returns.
const MaxCrons = 1000

// Most returns Limit, or what stands for it.
func (q *CronQuery) Most() int {
	if q.Limit <= 0 || q.Limit > MaxCrons {
		return MaxCrons
	}
	return q.Limit
}
