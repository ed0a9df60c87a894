package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/codec"
)

// An export is lines of JSON: a head, the states of queues, limits that were set, jobs in
// the order of their insertion, recurring jobs, and an end. After each page of jobs a
// line has the cursor of the next one.
//
// # Invariants
//
//  1. An export without --live is made while everything is paused and no job is active.
//     It pauses each queue itself, too: Claim obeys that, while an engine may not have
//     read yet that everything is paused. Before the end it checks all of this again.
//     Each job that it has can run only where it is imported.
//  2. A file that ends with a whole line of a cursor can be continued from there, as long
//     as the pause of everything is the one of its head.
//  3. An import runs no job before it has read the end: it pauses each queue before the
//     first job of it is stored. Until a job has all of its fields, it is pending or in
//     queueImport, which is paused.
//  4. A job is stored under its id once. As long as it has not all of its fields, its
//     meta has markImport, and a further import continues with it.
//  5. An export is imported once: its id is stored in the target.
//  6. Jobs of an ordering key enter its line in the order of the file. Whether one waits
//     in it is for the target to say.

// exportLine is a line of an export; one of its fields is set.
type exportLine struct {
	Head     *exportHead       `json:"ojs_export,omitempty"`
	Queue    *exportQueue      `json:"queue,omitempty"`
	Limit    *exportLimit      `json:"limit,omitempty"`
	Document *storage.Document `json:"cron,omitempty"`
	Job      []byte            `json:"job,omitempty"` // of package storage/codec
	Cursor   *exportCursor     `json:"next,omitempty"`
	End      *exportCursor     `json:"end,omitempty"`
}

type exportHead struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Source  string    `json:"source"`          // the address without passwords
	Paused  time.Time `json:"paused,omitzero"` // since when everything is; zero: --live
}

type exportQueue struct {
	Name  string         `json:"name"`
	State ojs.QueueState `json:"state"`
}

type exportLimit struct {
	storage.LimitName
	Concurrency int
	Rate        ojs.Rate  `json:",omitzero"`
	Throttle    ojs.Rate  `json:",omitzero"`
	Until       time.Time `json:",omitzero"`
}

// exportCursor says how many jobs the file has up to here, how many were left out, and
// where the others are.
type exportCursor struct {
	Jobs   int    `json:"jobs"`
	Left   int    `json:"left,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

type exportVerb struct {
	File     string `arg:"" default:"-" help:"The file to write, or - for the standard output."`
	Live     bool   `help:"Export while jobs run, without active ones: a job may run in both storages."`
	SkipOpen bool   `name:"skip-waiting" help:"Leave out jobs that wait for other jobs."`
}

func (exportVerb) Help() string {
	return `It writes queues, limits, recurring jobs and jobs, for ojs import into any storage. Stop programs
that enqueue, pause everything (ojs queues pause --all), and wait until no job is active. The
export pauses each queue, too: a second export has them as paused. A file that is not complete is
continued. Do not resume the storage afterwards: its jobs would run there, too.

Not in an export: logs of jobs, history and pauses. Jobs that wait for others to end, such as
those of workflows that run, cannot be exported: a storage counts for how many jobs one
waits, and does not list them. Let them end before, or give --skip-waiting. Jobs of an
ordering key are exported, and wait in the order in which they were stored.`
}

// Run exports the storage.
func (v *exportVerb) Run(c *call) error {
	op, err := c.operator()
	if err != nil {
		return err
	}
	e := exporter{call: c, op: op, v: v, shown: c.progress()}
	if e.head, err = e.newHead(); err != nil {
		return err
	}
	if err := e.check(); err != nil {
		return err
	}
	if err := e.total(); err != nil {
		return err
	}
	w, restart := c.out, func() error { return nil }
	if v.File != "-" {
		file, from, err := openExport(v.File, e.head)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // Sync has reported errors
		e.at, e.begun, e.sync = from.at, from.begun, file.Sync
		w, restart = file, func() error { return file.Truncate(0) }
	}
	e.w = bufio.NewWriterSize(w, 1<<16)
	err = e.run()
	e.shown.clear()
	if err != nil {
		err = errors.Join(err, e.w.Flush())
		if errors.As(err, new(refusedError)) && e.at.Cursor != "" { // the file may have jobs that have run
			err = errors.Join(err, restart())
		}
		return err
	}
	fmt.Fprintf(c.errs, "%s exported", counted(e.at.Jobs, "job"))
	if e.at.Left > 0 {
		fmt.Fprintf(c.errs, ", %s left out: active, or waiting for others", counted(e.at.Left, "job"))
	}
	fmt.Fprintln(c.errs)
	return nil
}

// newHead makes a head. It refuses an export of jobs that may run meanwhile.
func (e *exporter) newHead() (exportHead, error) {
	head := exportHead{Version: 1, ID: uuid.NewString(), At: e.now().UTC(), Source: e.source()}
	if e.v.Live {
		return head, nil
	}
	pauses, err := e.op.Queues().Pauses(e.ctx)
	if err != nil {
		return head, err
	}
	if len(pauses) == 0 || pauses[0].Type != "" {
		return head, refusedError{fixError{
			errors.New("jobs may run during the export: not everything is paused"), fixActive}}
	}
	head.Paused = pauses[0].At.UTC()
	return head, e.idle()
}

const fixActive = "ojs queues pause --all, and wait until ojs jobs --count state:active is 0; " +
	"or --live for a copy"

// idle refuses an export while jobs are active.
func (e *exporter) idle() error {
	n, err := e.op.Jobs().Count(e.ctx, inspect.Filter{States: []ojs.State{ojs.StateActive}}, 0)
	if err == nil && n.N > 0 {
		err = refusedError{fixError{fmt.Errorf("%s %s active", counted(n.N, "job"), isAre(n.N)), fixActive}}
	}
	return err
}

// decodes refuses an export while records are in the quarantine.
func (e *exporter) decodes() error {
	q, ok := storage.As[storage.Quarantiner](e.opened)
	if !ok {
		return nil
	}
	n, err := q.CountQuarantined(e.ctx)
	if err == nil && n > 0 {
		err = refusedError{fixError{fmt.Errorf("records in the quarantine: %d", n),
			"ojs quarantine, and release or delete each"}}
	}
	return err
}

// check refuses an export that would leave out jobs.
func (e *exporter) check() error {
	if err := e.decodes(); err != nil || e.v.SkipOpen {
		return err
	}
	n := 0
	f := inspect.Filter{States: []ojs.State{ojs.StatePending}}
	for rec, err := range e.op.Jobs().Records(e.ctx, f) {
		if err != nil {
			return err
		}
		if waitsForOthers(rec) {
			n++
		}
	}
	if n > 0 {
		return refusedError{fixError{fmt.Errorf(
			"jobs that wait for others: %d; a storage counts for how many jobs one waits, and does not list them",
			n), "let their workflows end, or leave them out: --skip-waiting"}}
	}
	return nil
}

// total has the bar show how many of the jobs are read.
func (e *exporter) total() error {
	counts, err := e.opened.Counts(e.ctx)
	n := 0
	for _, c := range counts {
		n += c.N
	}
	if n > 0 {
		e.shown.part = func() float64 { return float64(e.at.Jobs+e.at.Left) / float64(n) }
	}
	return err
}

// fence pauses each queue by its state.
func (e *exporter) fence() error {
	queues, err := e.op.Queues().List(e.ctx)
	if err != nil || e.v.Live {
		return err
	}
	for _, q := range queues {
		if _, err := e.opened.SetQueueState(e.ctx, q.Name, ojs.QueuePaused); err != nil {
			return err
		}
	}
	return e.idle()
}

// fenced refuses an export during which jobs may have run.
func (e *exporter) fenced() error {
	if err := e.decodes(); err != nil || e.v.Live {
		return err
	}
	now, err := e.newHead()
	if err != nil {
		return err
	}
	resumed := !now.Paused.Equal(e.head.Paused)
	queues, err := e.op.Queues().List(e.ctx)
	for _, q := range queues {
		resumed = resumed || q.Depth() > 0 && q.State != ojs.QueuePaused
	}
	if err == nil && resumed {
		err = refusedError{fixError{errors.New("jobs may have run during the export"),
			"stop programs that enqueue, and run the export again: it begins anew"}}
	}
	return err
}

// waitsForOthers reports whether a job waits for others to end: the contract of storages
// does not tell for which. The jobs before it in the line of its ordering key are known.
func waitsForOthers(rec *storage.Record) bool {
	d := rec.Dependencies
	if d == nil || rec.State != ojs.StatePending {
		return false
	}
	if d.InLine {
		return d.Unfinished > 1
	}
	return d.Unfinished > 0
}

// resumed is how far a file has come.
type resumed struct {
	at       exportCursor
	begun    bool // it has the lines before the jobs
	head     exportHead
	complete bool
}

// openExport opens a file to continue it after its last cursor. Later lines are cut off.
func openExport(path string, head exportHead) (*os.File, resumed, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, resumed{}, err
	}
	from, keep, err := resume(file)
	const fix = "name another file"
	switch {
	case err != nil:
	case from.complete:
		err = refusedError{fixError{fmt.Errorf("%s is a complete export", path), fix}}
	case from.begun && from.head.Source != head.Source:
		err = refusedError{fixError{fmt.Errorf("%s is an export of %s", path, clean(from.head.Source)), fix}}
	case from.begun && !from.head.Paused.Equal(head.Paused):
		err = refusedError{fixError{fmt.Errorf("jobs may have run since %s was begun", path), fix}}
	}
	if err == nil {
		err = file.Truncate(keep)
	}
	if err == nil {
		_, err = file.Seek(keep, io.SeekStart)
	}
	if err != nil {
		return nil, from, errors.Join(err, file.Close())
	}
	return file, from, nil
}

func resume(r io.Reader) (from resumed, keep int64, err error) {
	in := bufio.NewReaderSize(r, 1<<16)
	for at := int64(0); ; {
		line, err := in.ReadBytes('\n')
		if at += int64(len(line)); err != nil && (from.head.Version != 0 || at == 0) {
			return from, keep, nil // the rest is no whole line
		}
		var l exportLine
		if from.head.Version != 0 && bytes.HasPrefix(line, []byte(`{"job":`)) {
			continue
		}
		bad := json.Unmarshal(line, &l)
		if bad != nil || from.head.Version == 0 && (l.Head == nil || l.Head.Version == 0) {
			return from, 0, usageError{fixError{errors.New("the file is no export"), "name another file"}}
		}
		if l.Head != nil {
			from.head = *l.Head
		}
		if l.Cursor != nil {
			from.at, from.begun, keep = *l.Cursor, true, at
		}
		from.complete = l.End != nil
		if from.complete {
			keep = at
		}
	}
}

// exporter writes an export.
type exporter struct {
	*call
	op    *operate.Operator
	v     *exportVerb
	w     *bufio.Writer
	sync  func() error
	head  exportHead
	at    exportCursor
	begun bool
	shown progress
}

func (e *exporter) line(l exportLine) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = e.w.Write(append(b, '\n'))
	return err
}

func (e *exporter) run() error {
	if !e.begun {
		if err := e.begin(); err != nil {
			return err
		}
	} else if e.at.Cursor != "" {
		if err := e.fenced(); err != nil {
			return err
		}
	}
	if err := e.fence(); err != nil {
		return err
	}
	var q storage.Query
	for {
		q.Cursor = e.at.Cursor
		page, err := e.opened.List(e.ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Records {
			rec := &page.Records[i]
			if rec.State == ojs.StateActive && !e.v.Live {
				return refusedError{fixError{fmt.Errorf("job %s is active", rec.ID), fixActive}}
			}
			if waitsForOthers(rec) || rec.State == ojs.StateActive {
				e.at.Left++
				continue
			}
			b, err := codec.EncodeRecord(rec)
			if err == nil {
				err = e.line(exportLine{Job: b})
			}
			if err != nil {
				return fmt.Errorf("job %s: %w", rec.ID, err)
			}
			e.at.Jobs++
		}
		if page.Next == "" {
			break
		}
		e.at.Cursor = page.Next
		if err := e.mark(exportLine{Cursor: &e.at}); err != nil {
			return err
		}
		e.shown.show(e.at.Jobs, "exported")
	}
	if err := e.crons(); err != nil {
		return err
	}
	if err := e.fenced(); err != nil {
		return err
	}
	return e.mark(exportLine{End: &exportCursor{Jobs: e.at.Jobs, Left: e.at.Left}})
}

// mark writes a line, and sees to it that the file has all lines.
func (e *exporter) mark(l exportLine) error {
	if err := e.line(l); err != nil {
		return err
	}
	if err := e.w.Flush(); err != nil || e.sync == nil {
		return err
	}
	return e.sync()
}

// source is what the export is of.
func (e *exporter) source() string {
	source := withoutSecrets(e.flags.Storage)
	if e.flags.Schema != "" {
		source += " " + e.flags.Schema
	}
	return source
}

// begin writes what comes before the jobs.
func (e *exporter) begin() error {
	if err := e.line(exportLine{Head: &e.head}); err != nil {
		return err
	}
	queues, err := e.op.Queues().List(e.ctx)
	if err != nil {
		return err
	}
	for _, q := range queues {
		if err := e.line(exportLine{Queue: &exportQueue{q.Name, q.State}}); err != nil {
			return err
		}
	}
	for _, kind := range []storage.LimitKind{storage.LimitQueue, storage.LimitType, storage.LimitKey} {
		limits, err := e.limitsOf(e.op, kind)
		if err != nil {
			return err
		}
		for _, l := range limits {
			if s := l.Setting; s != nil {
				line := exportLimit{l.LimitName, s.Concurrency, s.Rate, s.Throttle, l.Until}
				if err := e.line(exportLine{Limit: &line}); err != nil {
					return err
				}
			}
		}
	}
	return e.mark(exportLine{Cursor: &exportCursor{}})
}

// crons writes the recurring jobs.
func (e *exporter) crons() error {
	q := storage.DocumentQuery{}
	for {
		list, err := e.opened.Documents(e.ctx, storage.KindCron, q)
		if err != nil {
			return err
		}
		for i := range list {
			if err := e.line(exportLine{Document: &list[i]}); err != nil {
				return err
			}
			q.After = list[i].Name
		}
		if len(list) < q.Most() {
			return nil
		}
	}
}
