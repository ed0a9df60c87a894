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
	"github.com/ojsengine/ojs/internal/document"
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
skipped. An export is imported once. Jobs of other ids in the storage stay as they are.`
}

// markImport is in the meta of a job that has not all of its fields.
const markImport = "ojs.import"

// queueImport has the jobs that pass through states in which a job may be claimed. It is
// paused.
const queueImport = "ojs.import"

// The values of an import in the target, by the id of the export.
const (
	prefixImport = "import/"
	importStored = "stored" // the jobs are; the recurring jobs and queues may not be
	importDone   = "done"
)

// importBatch is how many jobs are stored at once. Tests change it.
var importBatch = 500

// Run imports an export.
func (v *importVerb) Run(c *call) error {
	if _, err := c.store(); err != nil {
		return err
	}
	shown := c.progress()
	var in io.Reader
	if v.File == "-" {
		in = shown.reads(c.input(), c.in)
	} else {
		file, err := os.Open(v.File)
		if err != nil {
			return usageError{err}
		}
		defer func() { _ = file.Close() }() // it is only read
		in = shown.reads(file, file)
	}
	i := importer{call: c, states: make(map[string]ojs.QueueState), paused: make(map[string]bool),
		shown: shown}
	err := i.run(bufio.NewReaderSize(in, 1<<16))
	i.shown.clear()
	if err != nil {
		if i.id != "" && !errors.As(err, new(refusedError)) && !errors.As(err, new(fixError)) {
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
	id     string // of the export
	was    string // how far an import before this one has come
	jobs   int    // lines
	done   int
	there  int
	shown  progress
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
		if err := json.Unmarshal(line, &l); err != nil || i.id == "" && (l.Head == nil || l.Head.ID == "") {
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
		return false, i.begin(l.Head.ID)
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
		if i.jobs++; i.was == importStored {
			i.there++
			return false, nil
		}
		rec, err := codec.DecodeRecord(l.Job)
		if err != nil {
			return false, err
		}
		if i.batch = append(i.batch, rec); len(i.batch) == importBatch {
			return false, i.flush()
		}
	case l.End != nil:
		if i.jobs != l.End.Jobs {
			return false, usageError{fmt.Errorf("the export has %s and not the %s of its end",
				counted(i.jobs, "job"), number(l.End.Jobs))}
		}
		if err := i.flush(); err != nil {
			return false, err
		}
		return true, i.end()
	}
	return false, err
}

// begin refuses an export that is imported.
func (i *importer) begin(id string) error {
	v, _, err := document.Of(i.opened).Value(i.ctx, i.now(), prefixImport+id)
	if err != nil {
		return err
	}
	if i.id, i.was = id, string(v.Data); i.was == importDone {
		return refusedError{errors.New("the export is imported: its jobs would run again")}
	}
	return i.pause(queueImport)
}

// pause pauses a queue until the end.
func (i *importer) pause(name string) error {
	if i.paused[name] {
		return nil
	}
	i.paused[name] = true
	_, err := i.opened.SetQueueState(i.ctx, name, ojs.QueuePaused)
	return err
}

// end notes that the jobs are stored, and then that nothing else is to be done.
func (i *importer) end() error {
	note := func(text string) error {
		return document.Of(i.opened).PutValues(i.ctx, i.now(),
			[]document.Value{{Key: prefixImport + i.id, Data: []byte(text)}})
	}
	if err := note(importStored); err != nil {
		return err
	}
	if err := i.resume(); err != nil {
		return err
	}
	return note(importDone)
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
		if err := i.pause(batch[j].Queue); err != nil {
			return err
		}
	}
	begun := make([]storage.Record, len(batch))
	inserts := make([]storage.Insert, len(batch))
	for j := range batch {
		inserts[j] = unfinished(&batch[j])
		begun[j] = inserts[j].Record
	}
	if len(batch) == 0 {
		return nil
	}
	results, err := i.opened.Insert(i.ctx, i.now(), inserts, nil)
	switch {
	case err == nil:
		for j, r := range results {
			if begun[j].Version = r.Version; inserts[j].OrderingKey != "" && err == nil { // it may have moved
				begun[j], err = i.opened.Get(i.ctx, batch[j].ID)
			}
		}
	case errors.Is(err, ojs.ErrDuplicate):
		batch, begun, err = i.continued(batch, inserts)
	}
	if err == nil {
		err = i.complete(batch, begun)
	}
	i.shown.show(i.done+i.there, "imported")
	return err
}

// continued inserts the jobs of a batch one by one. It returns the jobs that lack some of
// their fields, and how they are stored.
func (i *importer) continued(
	batch []storage.Record, inserts []storage.Insert,
) (open, stored []storage.Record, err error) {
	for j := range batch {
		rec, err := i.opened.Get(i.ctx, batch[j].ID)
		if errors.Is(err, ojs.ErrNotFound) {
			if _, err = i.opened.Insert(i.ctx, i.now(), inserts[j:j+1:j+1], nil); err == nil {
				rec, err = i.opened.Get(i.ctx, batch[j].ID)
			}
		}
		switch {
		case err != nil:
			return nil, nil, err
		case rec.Meta[markImport] == nil, rec.State.Terminal():
			i.there++
			continue
		}
		open, stored = append(open, batch[j]), append(stored, rec)
	}
	return open, stored, nil
}

// unfinished is a job that nothing happens to: pending, and in a paused queue. A job that
// has not ended enters the line of its ordering key.
func unfinished(rec *storage.Record) (in storage.Insert) {
	r := rec.Copy()
	r.State, r.Version, r.Queue = ojs.StatePending, 0, queueImport
	r.Meta = jsonvalue.Clone(r.Meta)
	if r.Meta == nil {
		r.Meta = make(map[string]any)
	}
	r.Meta[markImport] = true
	r.Unique, r.Fingerprint, r.RateLimit, r.Dependencies = nil, "", nil, nil
	var none time.Time
	r.ExpiresAt, r.TotalTimeout, r.EnqueueTTL = none, 0, 0
	r.FinishedAt, r.DeadLetteredAt, r.NextRetryAt, r.LeaseUntil = none, none, none, none
	if d := rec.Dependencies; d != nil && d.OrderingKey != "" && !rec.State.Terminal() {
		in.OrderingKey = d.OrderingKey
		r.Dependencies = &ojs.Dependencies{Condition: d.Condition}
	}
	in.Record = r
	return in
}

// inLine gives a job of an ordering key the place in its line that the storage has given
// it: that of the export may be another one, if the target has jobs of the key.
func inLine(rec, stored *storage.Record, now time.Time) {
	d := stored.Dependencies
	if d == nil || d.OrderingKey == "" || rec.State.Terminal() {
		return
	}
	switch {
	case stored.InLine():
		rec.State = ojs.StatePending
	case rec.InLine() && rec.ScheduledAt.After(now):
		rec.State = ojs.StateScheduled
	case rec.InLine():
		rec.State = ojs.StateAvailable
	}
	rec.Dependencies = d
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
	for j := range batch {
		inLine(&batch[j], &stored[j], i.now())
	}
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
