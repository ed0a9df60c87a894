package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/codec"
)

type importVerb struct {
	File string `arg:"" default:"-" help:"The file of an export, or - for the standard input."`
}

func (importVerb) Help() string {
	return `It stores what ojs export has written. Queues are paused until the end of the import, and then
have the states of the export. Run it again after an interruption: jobs that are stored are
skipped. Jobs of other ids in the storage stay as they are.`
}

// markImport is in the meta of a job that has not all of its fields.
const markImport = "ojs.import"

// importBatch is how many jobs are stored at once.
const importBatch = 500

// Run imports an export.
func (v *importVerb) Run(c *call) error {
	if _, err := c.store(); err != nil {
		return err
	}
	in := c.in
	if v.File != "-" {
		file, err := os.Open(v.File)
		if err != nil {
			return usageError{err}
		}
		defer func() { _ = file.Close() }() // it is only read
		in = file
	}
	i := importer{call: c, states: make(map[string]ojs.QueueState), paused: make(map[string]bool)}
	if err := i.run(bufio.NewReaderSize(in, 1<<16)); err != nil {
		if i.done+i.there > 0 {
			err = fixError{err, fmt.Sprintf(
				"run the import again: %s stored, and the queues stay paused until its end",
				counted(i.done+i.there, "job"))}
		}
		return err
	}
	return c.done("imported", fmt.Sprintf("%s imported, %s there before", counted(i.done, "job"),
		number(i.there)))
}

// importer reads an export.
type importer struct {
	*call
	states map[string]ojs.QueueState // of queues at the end
	paused map[string]bool           // queues that the import has paused
	crons  []storage.Document
	batch  []storage.Record
	begun  bool
	done   int
	there  int
}

func (i *importer) run(in *bufio.Reader) error {
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return usageError{fixError{errors.New("the export is not complete"),
				"run ojs export again with the same file"}}
		}
		if err != nil {
			return err
		}
		var l exportLine
		if err := json.Unmarshal(line, &l); err != nil || !i.begun && l.Head == nil {
			return usageError{fmt.Errorf("line %d is no line of an export", n)}
		}
		end, err := i.line(&l)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if end {
			return nil
		}
	}
}

// line takes a line. It reports whether that is the end.
func (i *importer) line(l *exportLine) (end bool, err error) {
	now := i.now()
	switch {
	case l.Head != nil && l.Head.Version != 1:
		return false, usageError{fmt.Errorf("the export is of version %d, and this program knows 1",
			l.Head.Version)}
	case l.Head != nil:
		i.begun = true
	case l.Queue != nil:
		i.states[l.Queue.Name] = l.Queue.State
	case l.Limit != nil:
		bounds := ojs.RateLimit{Concurrency: l.Limit.Concurrency, Rate: l.Limit.Rate,
			Throttle: l.Limit.Throttle}
		return false, i.opened.SetLimit(i.ctx, now, l.Limit.LimitName, bounds, l.Limit.Until)
	case l.Document != nil:
		l.Document.Version = 0 // an entry that is stored stays
		i.crons = append(i.crons, *l.Document)
	case l.Job != nil:
		rec, err := codec.DecodeRecord(l.Job)
		if err != nil {
			return false, err
		}
		if i.batch = append(i.batch, rec); len(i.batch) == importBatch {
			return false, i.flush()
		}
	case l.End != nil:
		if err := i.flush(); err != nil {
			return false, err
		}
		return true, i.resume()
	}
	return false, err
}

// resume stores the recurring jobs, and gives the queues their states.
func (i *importer) resume() error {
	for _, e := range i.crons {
		if _, err := i.opened.PutDocuments(i.ctx, storage.KindCron, []storage.Document{e}); err != nil {
			return err
		}
	}
	for name := range i.paused {
		if i.states[name] == "" {
			i.states[name] = ojs.QueueActive
		}
	}
	for name, state := range i.states {
		if _, err := i.opened.SetQueueState(i.ctx, name, state); err != nil {
			return err
		}
	}
	return nil
}

// flush stores the batch: new jobs at first without what makes them run, expire or count
// for others, and then step by step what they are.
func (i *importer) flush() error {
	batch := i.batch
	i.batch = i.batch[:0]
	for j := range batch {
		if name := batch[j].Queue; !i.paused[name] {
			if _, err := i.opened.SetQueueState(i.ctx, name, ojs.QueuePaused); err != nil {
				return err
			}
			i.paused[name] = true
		}
	}
	begun := make([]storage.Record, len(batch))
	inserts := make([]storage.Insert, len(batch))
	for j := range batch {
		begun[j] = unfinished(&batch[j])
		inserts[j] = storage.Insert{Record: begun[j]}
	}
	if len(batch) == 0 {
		return nil
	}
	results, err := i.opened.Insert(i.ctx, i.now(), inserts, nil)
	switch {
	case err == nil:
		for j, r := range results {
			begun[j].Version = r.Version
		}
	case errors.Is(err, ojs.ErrDuplicate):
		batch, begun, err = i.continued(batch, begun)
	}
	if err == nil {
		err = i.complete(batch, begun)
	}
	return err
}

// continued inserts the jobs of a batch one by one, and returns those that have not all
// of their fields, as they are stored.
func (i *importer) continued(batch, begun []storage.Record) (open, stored []storage.Record, err error) {
	for j := range batch {
		rec, err := i.opened.Get(i.ctx, batch[j].ID)
		switch {
		case errors.Is(err, ojs.ErrNotFound):
			r, err := i.opened.Insert(i.ctx, i.now(), []storage.Insert{{Record: begun[j]}}, nil)
			if err != nil {
				return nil, nil, err
			}
			rec = begun[j]
			rec.Version = r[0].Version
		case err != nil:
			return nil, nil, err
		case rec.Meta[markImport] == nil:
			i.there++
			continue
		}
		open, stored = append(open, batch[j]), append(stored, rec)
	}
	return open, stored, nil
}

// unfinished is a job that nothing happens to: pending, or scheduled until it is due.
func unfinished(rec *storage.Record) storage.Record {
	r := rec.Copy()
	r.State, r.Version = ojs.StatePending, 0
	if rec.State == ojs.StateScheduled {
		r.State = ojs.StateScheduled
	}
	r.Meta = jsonvalue.Clone(r.Meta)
	if r.Meta == nil {
		r.Meta = make(map[string]any)
	}
	r.Meta[markImport] = true
	r.Unique, r.Fingerprint, r.RateLimit, r.Dependencies = nil, "", nil, nil
	var none time.Time
	r.ExpiresAt, r.TotalTimeout, r.EnqueueTTL = none, 0, 0
	r.FinishedAt, r.DeadLetteredAt, r.NextRetryAt, r.LeaseUntil = none, none, none, none
	return r
}

// nextState is the state on the way from one to another, by the table of transitions.
func nextState(from, to ojs.State) ojs.State {
	if from == to || from.CanBecome(to) {
		return to
	}
	if from == ojs.StateAvailable {
		return ojs.StateActive
	}
	return ojs.StateAvailable
}

// complete takes jobs to their states, one transition of all at a time.
func (i *importer) complete(batch, stored []storage.Record) error {
	for len(batch) > 0 {
		changes := make([]storage.Change, len(batch))
		for j := range batch {
			to := nextState(stored[j].State, batch[j].State)
			rec := batch[j].Copy()
			if to != batch[j].State {
				rec = stored[j].Copy()
				rec.State = to
			}
			if to == ojs.StateActive { // no engine takes it over before it is complete
				rec.LeaseUntil = i.now().Add(10 * 365 * 24 * time.Hour)
			}
			rec.Version = stored[j].Version
			changes[j] = storage.Change{Record: rec}
		}
		settled, err := i.opened.Settle(i.ctx, i.now(), changes, nil)
		if err != nil {
			return err
		}
		var open, at []storage.Record
		for j := range batch {
			if err := settled[j].Err; err != nil {
				return fmt.Errorf("job %s: %w", batch[j].ID, err)
			}
			rec := changes[j].Record
			rec.Version = settled[j].Version
			if rec.State == batch[j].State {
				i.done++
				continue
			}
			open, at = append(open, batch[j]), append(at, rec)
		}
		batch, stored = open, at
	}
	return nil
}
