// Package rows is what storages in SQL databases have in common: a record as a row. Its
// columns are what statements compare and change; its documents are the rest.
//
// A row loses nothing of a record. A column has a time as nanoseconds since 1970. Times
// before 1677 and after 2262 do not fit: the column then has the nearest time that fits,
// for the order, and a document has the exact one.
package rows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/insert"
	"github.com/ojsengine/ojs/storage/rule"
)

// Row is a stored record. Its Place is the order in which jobs entered their queue, began
// to wait for their time, or ended.
type Row = insert.Job

// Columns are the columns of a row.
type Columns struct {
	ID, Queue, Type, Worker string
	State                   int
	Priority, Attempt       int
	Version                 int64
	Progress                float64
	Lease                   int64 // nanoseconds
	Fingerprint             string
	RateKey                 string
	Bounds                  string // see Bounds; for storages that count limits
	FairKey                 string // of ojs.Fairness
	Share                   int    // storage.Share of a row that was encoded; not read
	Kept                    int64  // storage.Record.KeptUntil of such a row, or None; not read

	// Nanoseconds since 1970, or None.
	Wake, Deadline, Created, Enqueued, Started, NextRetry, Finished, Dead, LeaseUntil int64

	Args       []byte // nil: null
	Job        []byte // what else no attempt changes; nil: all of it is as it is by default
	Outcome    []byte // what the attempts have come to; nil: nothing to tell
	Checkpoint []byte

	// Depends are the Dependencies of a job that was stored with DependsOn, by
	// EncodeDepends. They replace those of the document. Encode leaves them nil.
	Depends []byte
}

// None is the time of a column that has none.
const None = rule.None

// Codes of states. They are stored: none of them may ever change.
const (
	Pending = iota + 1
	Scheduled
	Available
	Active
	Retryable
	Completed
	Cancelled
	Discarded
)

var states = [...]ojs.State{
	Pending: ojs.StatePending, Scheduled: ojs.StateScheduled, Available: ojs.StateAvailable,
	Active:    ojs.StateActive,
	Retryable: ojs.StateRetryable, Completed: ojs.StateCompleted, Cancelled: ojs.StateCancelled,
	Discarded: ojs.StateDiscarded,
}

// Code returns the code of a state, 0 if there is no such state.
func Code(s ojs.State) int { return max(slices.Index(states[:], s), 0) }

// Codes returns the codes of states.
func Codes(of []ojs.State) []int {
	codes := make([]int, len(of))
	for i := range of {
		codes[i] = Code(of[i])
	}
	return codes
}

// State returns the state of a code, "" if there is none.
func State(code int) ojs.State {
	if code < 0 || code >= len(states) {
		return ""
	}
	return states[code]
}

// Terminal reports whether jobs in the state of a code have ended.
func Terminal(code int) bool { return code >= Completed && code <= Discarded }

// Settles reports whether Settle may bring a job from one state into another.
func Settles(from, to int) bool { return State(from) != "" && froms[to]>>from&1 == 1 }

// From returns the codes of the states that Settle may find a job in that it brings into
// a state: bit n stands for code n.
func From(to int) (mask int) { return froms[to] }

var froms = func() (masks [len(states)]int) {
	for to := range states {
		for code, from := range states {
			if from != "" && (from.CanBecome(states[to]) || code == to && from.Waiting()) {
				masks[to] |= 1 << code
			}
		}
	}
	return masks
}()

// Nanos returns a time as a column has it.
func Nanos(t time.Time) int64 { return rule.Nanos(t) }

// Time returns what Nanos was given.
func Time(ns int64) time.Time { return rule.Time(ns) }

// exact reports whether a column holds the time.
func exact(t time.Time) bool { return rule.Exact(Nanos(t)) }

// Encode returns the columns of a record.
func Encode(r *storage.Record) (Columns, error) {
	c := Columns{
		ID: r.ID, Queue: r.Queue, Type: versions.Full(r.Type, r.TypeVersion), Worker: r.Worker,
		State: Code(r.State), Priority: r.Priority, Attempt: r.Attempt, Version: int64(r.Version),
		Progress: r.Progress, Lease: int64(r.Lease), Fingerprint: r.Fingerprint,
		Wake: Nanos(r.WakeAt()), Deadline: Nanos(r.Deadline()), Created: Nanos(r.CreatedAt),
		Enqueued: Nanos(r.EnqueuedAt),
		Started:  Nanos(r.StartedAt), NextRetry: Nanos(r.NextRetryAt), Finished: Nanos(r.FinishedAt),
		Dead:       Nanos(r.DeadLetteredAt),
		LeaseUntil: Nanos(r.LeaseUntil),
		FairKey:    r.Fairness.Key, Share: storage.Share(r.Fairness), Kept: Nanos(r.KeptUntil()),
		Checkpoint: bytes.Clone(r.Checkpoint), // which may be on its way still when a call has been given up
	}
	if c.State == 0 {
		return c, &ojs.InvalidError{Code: ojs.InvalidCodeEnvelope, Field: "state",
			Reason: fmt.Sprintf("%q of job %s is none", r.State, r.ID)}
	}
	if r.RateLimit != nil {
		c.RateKey = r.RateLimit.Key
	}
	if args := r.Args.JSON(); string(args) != "null" {
		c.Args = args
	}
	var err error
	if c.Job, err = EncodeJob(r); err == nil {
		c.Outcome, err = EncodeOutcome(r)
	}
	if err == nil && r.RateLimit != nil {
		c.Bounds, err = Bounds(r.RateLimit)
	}
	if err != nil {
		return c, fmt.Errorf("ojs: job %s does not encode: %w", r.ID, err)
	}
	return c, nil
}

// Note adds to a notice what a row tells as it is now.
func Note(n *storage.Notice, c *Columns) { n.Add(c.ID, State(c.State), Time(c.Wake)) }

// MaxCount is the most that attempts and versions come to. Rows with more have not been
// written by this program.
const MaxCount = 1 << 62

// Decode returns the record that was encoded. It keeps the slices of c. Its error says
// for a person why c is none.
func Decode(c *Columns) (storage.Record, error) {
	r, err := decode(c)
	switch {
	case err != nil:
	case c.Wake == None && !r.WakeAt().IsZero():
		err = fmt.Errorf("wake: is not set, though the job is %s", r.State)
	case c.Wake == None || !exact(Time(c.Wake)):
	case r.WakeAt().IsZero():
		err = fmt.Errorf("wake: is set, though the job is %s and waits for nothing", r.State)
	case (r.State == ojs.StateAvailable || r.State == ojs.StatePending) && c.Wake != Nanos(r.WakeAt()):
		err = fmt.Errorf("wake: is %v, though the job is %s until %v", Time(c.Wake), r.State, r.WakeAt())
	}
	return r, err
}

// Restore is Decode of a row from the quarantine, which is to be written anew: it does
// not matter what is in the columns that follow from others.
func Restore(c *Columns) (storage.Record, error) {
	r, err := decode(c)
	if r.State == ojs.StateActive && r.LeaseUntil.IsZero() { // it would never end
		// As a column has it: without a start it is longer ago than columns can say.
		r.LeaseUntil = Time(Nanos(r.StartedAt.Add(r.Lease)))
	}
	return r, err
}

func decode(c *Columns) (storage.Record, error) {
	switch {
	case c.Attempt < 0 || c.Attempt > MaxCount:
		return storage.Record{}, fmt.Errorf("attempt: %d is not from 0 to %d", c.Attempt, MaxCount)
	case c.Version < 1 || c.Version > MaxCount:
		return storage.Record{}, fmt.Errorf("version: %d is not from 1 to %d", c.Version, MaxCount)
	case math.IsNaN(c.Progress) || math.IsInf(c.Progress, 0):
		return storage.Record{}, fmt.Errorf("progress: %v is no share", c.Progress)
	}
	return Read(c)
}

// Read returns the record that was encoded. It does not check its numbers. It keeps the
// slices of c.
func Read(c *Columns) (storage.Record, error) {
	var r storage.Record
	r.ID, r.Queue, r.Type, r.Worker = c.ID, c.Queue, c.Type, c.Worker
	r.State, r.Priority, r.Attempt, r.Version = State(c.State), c.Priority, c.Attempt, uint64(c.Version)
	r.Progress, r.Lease, r.Fingerprint = c.Progress, time.Duration(c.Lease), c.Fingerprint
	r.CreatedAt, r.EnqueuedAt, r.StartedAt = Time(c.Created), Time(c.Enqueued), Time(c.Started)
	r.NextRetryAt, r.FinishedAt, r.DeadLetteredAt = Time(c.NextRetry), Time(c.Finished), Time(c.Dead)
	r.LeaseUntil, r.Checkpoint = Time(c.LeaseUntil), c.Checkpoint
	if r.State == "" {
		return r, fmt.Errorf("state: %d is no state", c.State)
	}
	if c.Args != nil {
		var err error
		if r.Args, err = ojs.NewArgs(json.RawMessage(c.Args)); err != nil {
			return r, fmt.Errorf("args: %w", err)
		}
	}
	if err := DecodeJob(&r, c.Job); err != nil {
		return r, fmt.Errorf("job: %w", err)
	}
	if c.Depends != nil {
		if err := decodeDepends(&r, c.Depends); err != nil {
			return r, fmt.Errorf("depends: %w", err)
		}
	}
	if r.TypeVersion != "" {
		r.Type = strings.TrimSuffix(r.Type, "@"+r.TypeVersion)
	}
	if err := DecodeOutcome(&r, c.Outcome); err != nil {
		return r, fmt.Errorf("outcome: %w", err)
	}
	return r, nil
}

// Reason is what the quarantine says of an error: some text that every database takes.
func Reason(err error) string {
	const most = 500
	s := err.Error()
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// TypeName is the name of a type, of the column of the type.
func TypeName(column string) string { return versions.Name(column) }
