package rows

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// cronDocument is a recurring job. Raw JSON is kept as text, which encoding/json does not
// rewrite.
type cronDocument struct {
	Name, Description, Schedule, TimeZone, Overlap string    `json:",omitzero"`
	Paused                                         bool      `json:",omitzero"`
	Type                                           string    `json:",omitzero"`
	Args                                           text      `json:",omitzero"`
	Options                                        options   `json:",omitzero"`
	CreatedAt, LastRun, NextRun                    time.Time `json:",omitzero"`
	Runs                                           int       `json:",omitzero"`
	LastJobID                                      string    `json:",omitzero"`
	Missed                                         string    `json:",omitzero"`
	MissedLimit                                    int       `json:",omitzero"`
	Gap                                            string    `json:",omitzero"`
	RunOnStart, Template                           bool      `json:",omitzero"`
	History                                        []cronRun `json:",omitzero"`
}

type cronRun struct {
	Due            time.Time `json:",omitzero"`
	JobID, Outcome string    `json:",omitzero"`
	Manual         bool      `json:",omitzero"`
}

type options struct {
	ID                           string          `json:",omitzero"`
	TypeVersion                  string          `json:",omitzero"`
	Queue                        string          `json:",omitzero"`
	Priority                     int             `json:",omitzero"`
	Delay                        time.Duration   `json:",omitzero"`
	ScheduledAt                  time.Time       `json:",omitzero"`
	TTL                          time.Duration   `json:",omitzero"`
	ExpiresAt                    time.Time       `json:",omitzero"`
	Timeout, TotalTimeout, Lease time.Duration   `json:",omitzero"`
	EnqueueTTL                   time.Duration   `json:",omitzero"`
	ResultTTL                    time.Duration   `json:",omitzero"`
	Retry                        retry           `json:",omitzero"`
	Meta                         meta            `json:",omitzero"`
	RateLimit                    *rateLimit      `json:",omitzero"`
	RateLimitBy                  string          `json:",omitzero"`
	Fairness                     fairness        `json:",omitzero"`
	FairnessBy                   string          `json:",omitzero"`
	Unique                       *unique         `json:",omitzero"`
	Pending                      bool            `json:",omitzero"`
	Name                         string          `json:",omitzero"`
	DependsOn                    []string        `json:",omitzero"`
	Condition                    ojs.Condition   `json:",omitzero"`
	Join                         bool            `json:",omitzero"`
	OrderingKey                  string          `json:",omitzero"`
	Extra                        map[string]text `json:",omitzero"`
}

// text is raw JSON: in a string, or as base64 in a list, if it is not UTF-8, which no
// string of JSON can hold.
type text string

func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal([][]byte{[]byte(t)})
}

func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		var list [1][]byte
		err := json.Unmarshal(b, &list)
		*t = text(list[0])
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// EncodeCron returns a recurring job as a document, without its version.
func EncodeCron(c *storage.Cron) ([]byte, error) {
	o := &c.Options
	d := cronDocument{
		Name: c.Name, Description: c.Description, Schedule: c.Schedule, TimeZone: c.TimeZone,
		Overlap: c.Overlap, Paused: c.Paused,
		Type: c.Type, Args: text(c.Args.String()), CreatedAt: c.CreatedAt, LastRun: c.LastRun,
		NextRun: c.NextRun.UTC(), Runs: c.Runs, LastJobID: c.LastJobID,
		Missed: c.Missed, MissedLimit: c.MissedLimit, Gap: c.Gap,
		RunOnStart: c.RunOnStart, Template: c.Template,
		Options: options{
			ID: o.ID, TypeVersion: o.TypeVersion,
			Queue: o.Queue, Priority: o.Priority, Delay: o.Delay, ScheduledAt: o.ScheduledAt,
			TTL: o.TTL, ExpiresAt: o.ExpiresAt,
			Timeout: o.Timeout, TotalTimeout: o.TotalTimeout, EnqueueTTL: o.EnqueueTTL, Lease: o.Lease,
			ResultTTL: o.ResultTTL, Retry: retry(o.Retry), Meta: o.Meta, Pending: o.Pending,
			Name: o.Name, DependsOn: o.DependsOn, Condition: o.Condition, Join: o.Join,
			OrderingKey: o.OrderingKey, RateLimitBy: o.RateLimitBy,
			Fairness: fairness(o.Fairness), FairnessBy: o.FairnessBy,
		},
	}
	if c.History != nil {
		d.History = make([]cronRun, len(c.History))
		for i, r := range c.History {
			d.History[i] = cronRun{Due: r.Due, JobID: r.JobID, Outcome: r.Outcome, Manual: r.Manual}
		}
	}
	if o.RateLimit != nil {
		l := rateLimit(*o.RateLimit)
		d.Options.RateLimit = &l
	}
	if o.Unique != nil {
		u := unique(*o.Unique)
		d.Options.Unique = &u
	}
	if o.Extra != nil {
		d.Options.Extra = make(map[string]text, len(o.Extra))
		for k, v := range o.Extra {
			d.Options.Extra[k] = text(v)
		}
	}
	b, err := json.Marshal(&d)
	if err != nil {
		return nil, fmt.Errorf("ojs: recurring job %s does not encode: %w", c.Name, err)
	}
	return b, nil
}

// CheckDocument returns, for a person, why a document is none of its kind; nil: it is. It
// gives the document of a recurring job its Due.
func CheckDocument(kind storage.Kind, d *storage.Document) error {
	if d.Version < 1 || d.Version > MaxCount {
		return fmt.Errorf("version: %d is not from 1 to %d", d.Version, MaxCount)
	}
	if kind != storage.KindCron {
		return nil
	}
	c, err := DecodeCron(d)
	if err == nil {
		d.Due = c.NextRun
	}
	return err
}

// DecodeCron returns the recurring job of a document. Its error says for a person why the
// document is none.
func DecodeCron(d *storage.Document) (storage.Cron, error) {
	c, err := readCron(d.Data)
	if err == nil && c.Name != d.Name {
		err = fmt.Errorf("name: the entry of %q says that it is that of %q", d.Name, c.Name)
	}
	c.Version = d.Version
	return c, err
}

// readCron returns the recurring job of a document, without its version.
func readCron(entry []byte) (storage.Cron, error) {
	var d cronDocument
	if err := json.Unmarshal(entry, &d); err != nil {
		return storage.Cron{}, fmt.Errorf("entry: %w", err)
	}
	args, err := ojs.NewArgs(json.RawMessage(d.Args))
	if err != nil {
		return storage.Cron{}, fmt.Errorf("args: %w", err)
	}
	o := &d.Options
	c := storage.Cron{
		Name: d.Name, Description: d.Description, Schedule: d.Schedule, TimeZone: d.TimeZone,
		Overlap: d.Overlap, Paused: d.Paused,
		Type: d.Type, Args: args, CreatedAt: d.CreatedAt, LastRun: d.LastRun, NextRun: d.NextRun,
		Runs: d.Runs, LastJobID: d.LastJobID,
		Missed: d.Missed, MissedLimit: d.MissedLimit, Gap: d.Gap,
		RunOnStart: d.RunOnStart, Template: d.Template,
		Options: ojs.Options{
			ID: o.ID, TypeVersion: o.TypeVersion,
			Queue: o.Queue, Priority: o.Priority, Delay: o.Delay, ScheduledAt: o.ScheduledAt,
			TTL: o.TTL, ExpiresAt: o.ExpiresAt,
			Timeout: o.Timeout, TotalTimeout: o.TotalTimeout, EnqueueTTL: o.EnqueueTTL, Lease: o.Lease,
			ResultTTL: o.ResultTTL, Retry: ojs.RetryPolicy(o.Retry), Meta: o.Meta, Pending: o.Pending,
			Name: o.Name, DependsOn: o.DependsOn, Condition: o.Condition, Join: o.Join,
			OrderingKey: o.OrderingKey, RateLimitBy: o.RateLimitBy,
			Fairness: ojs.Fairness(o.Fairness), FairnessBy: o.FairnessBy,
		},
	}
	if d.History != nil {
		c.History = make([]storage.CronRun, len(d.History))
		for i, r := range d.History {
			c.History[i] = storage.CronRun{Due: r.Due, JobID: r.JobID, Outcome: r.Outcome, Manual: r.Manual}
		}
	}
	if o.RateLimit != nil {
		l := ojs.RateLimit(*o.RateLimit)
		c.Options.RateLimit = &l
	}
	if o.Unique != nil {
		u := ojs.UniquePolicy(*o.Unique)
		c.Options.Unique = &u
	}
	if o.Extra != nil {
		c.Options.Extra = make(map[string]json.RawMessage, len(o.Extra))
		for k, v := range o.Extra {
			c.Options.Extra[k] = json.RawMessage(v)
		}
	}
	return c, nil
}
