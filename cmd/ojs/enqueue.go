package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ojsengine/ojs"
)

type enqueueVerb struct {
	Type string `arg:"" help:"The type of the job, or - for jobs from the standard input."`
	Args string `arg:"" optional:"" help:"The args in JSON; nothing is null."`

	Queue    string   `short:"q" placeholder:"NAME" help:"The queue."`
	Priority int      `placeholder:"N" help:"Higher runs first."`
	At       string   `placeholder:"TIME" help:"When to start: RFC 3339, a date, or from now on such as 90s, 2h or 3d."`
	ID       string   `placeholder:"UUID" help:"The id, so that the call is safe to repeat."`
	Tag      []string `placeholder:"TAG" help:"Tags."`
	Meta     []string `placeholder:"KEY=VALUE" help:"Entries of the meta, as JSON or text."`
	Batch    int      `default:"500" help:"How many lines of the standard input are enqueued at once."`
	From     int      `default:"1" placeholder:"LINE" help:"The line of the standard input to begin with, to continue after an error."`
}

func (enqueueVerb) Help() string {
	return `The defaults of the programs that run the jobs do not hold here: name the queue.

A line of the standard input is a job in its wire form, such as

  {"type": "email.send", "args": ["ada@example.com"], "queue": "mail"}

with the attributes that a client may set. Batches are stored whole or not at all. After an
error the command names the line to continue from (--from). A job with an id that is
stored is skipped, so that lines with ids can be enqueued again.`
}

// enqueued is the receipt of a job in JSON.
type enqueued struct {
	ID        string    `json:"id"`
	State     ojs.State `json:"state"`
	Duplicate bool      `json:"duplicate,omitempty"`
}

// Run enqueues a job or many.
func (v *enqueueVerb) Run(c *call) error {
	eng, err := c.enqueuer()
	if err != nil {
		return err
	}
	if v.Type == "-" {
		return v.lines(c, eng)
	}
	opts, err := v.options(c)
	if err != nil {
		return err
	}
	args := v.Args
	if args == "" {
		args = "null"
	}
	if !json.Valid([]byte(args)) {
		return usageError{fmt.Errorf("the args are no JSON: %s", clean(args))}
	}
	id := cmp.Or(v.ID, c.newID()) // a repeat with it enqueues no second job
	opts = append(opts, ojs.WithID(id))
	tickets, err := eng.EnqueueMany(c.acting(), ojs.NewDraft(v.Type, json.RawMessage(args), opts...))
	if err != nil && !refused(err) && codeOf(err) == exitFailed && fixOf(err) == "" {
		err = fixError{err, "the job may be stored: run it again with --id " + id}
	}
	if err != nil {
		return err
	}
	ticket := tickets[0]
	receipt := enqueued{ticket.ID, ticket.State, ticket.Deduplicated}
	return c.page(receipt.ID, receipt, func() []string {
		line := "job " + ticket.ID + " is " + string(ticket.State)
		if ticket.Deduplicated {
			line += ": an equal job was there"
		}
		return []string{line}
	})
}

// enqueuer is a server, or an engine on the storage.
func (c *call) enqueuer() (ojs.Enqueuer, error) {
	cl, err := c.server()
	if cl != nil || err != nil {
		return cl, err
	}
	return c.engine()
}

func (v *enqueueVerb) options(c *call) (opts []ojs.Option, err error) {
	if v.Queue != "" {
		opts = append(opts, ojs.WithQueue(v.Queue))
	}
	if v.Priority != 0 {
		opts = append(opts, ojs.WithPriority(v.Priority))
	}
	if len(v.Tag) > 0 {
		opts = append(opts, ojs.WithTags(v.Tag...))
	}
	for _, entry := range v.Meta {
		key, text, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, usageError{fmt.Errorf("--meta %s is not KEY=VALUE", clean(entry))}
		}
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			value = text
		}
		opts = append(opts, ojs.WithMeta(key, value))
	}
	if v.At != "" {
		at, err := parseTime(v.At, c.now())
		if err != nil {
			return nil, err
		}
		opts = append(opts, ojs.WithScheduledAt(at))
	}
	return opts, nil
}

// lines enqueues the lines of the standard input, batch by batch.
func (v *enqueueVerb) lines(c *call, eng ojs.Enqueuer) error {
	if v.Batch < 1 || v.Batch > 10000 {
		return usageError{fmt.Errorf("--batch is %d: it is from 1 to 10000", v.Batch)}
	}
	shown := c.progress()
	in := bufio.NewReaderSize(shown.reads(c.input(), c.in), 1<<20)
	b := batch{v: v, c: c, eng: eng, out: jsonArray{w: c.out}, from: v.From, progress: shown}
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return b.stopped(err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && n >= v.From {
			draft, bad := ojs.ParseDraft(line)
			if bad != nil {
				if err := b.flush(); err != nil {
					return b.stopped(err)
				}
				b.from = n
				return b.stopped(usageError{fmt.Errorf("line %d: %w", n, bad)})
			}
			b.add(n, line, draft)
			if len(b.drafts) == v.Batch {
				if err := b.flush(); err != nil {
					return b.stopped(err)
				}
			}
		}
		if err != nil {
			break
		}
	}
	if err := b.flush(); err != nil {
		return b.stopped(err)
	}
	return b.end()
}

// batch is the lines that are enqueued next.
type batch struct {
	v      *enqueueVerb
	c      *call
	eng    ojs.Enqueuer
	out    jsonArray
	from   int // the line of the first draft, or behind the last that is stored
	drafts []ojs.Draft
	lines  []int    // of the drafts
	ids    []string // of the drafts

	unknown int // the last line of a batch that may be stored; 0: none

	done, skipped int
	progress      progress
}

// add gives a draft an id, unless its line has one: after an error that does not tell
// whether the batch is stored, its first id does.
func (b *batch) add(line int, text []byte, d ojs.Draft) {
	if len(b.drafts) == 0 {
		b.from = line
	}
	var own struct{ ID string }
	if _ = json.Unmarshal(text, &own); own.ID == "" { // ParseDraft has decoded it
		own.ID = b.c.newID()
		d = d.With(ojs.WithID(own.ID))
	}
	b.drafts, b.lines, b.ids = append(b.drafts, d), append(b.lines, line), append(b.ids, own.ID)
}

// flush enqueues the batch. If a job of it is refused, the jobs are enqueued one by one,
// up to one that is refused for another reason than that its id is stored.
func (b *batch) flush() error {
	if len(b.drafts) == 0 {
		return nil
	}
	ctx := b.c.acting()
	tickets, err := b.eng.EnqueueMany(ctx, b.drafts...)
	if refused(err) {
		tickets, err = b.oneByOne(ctx)
	} else if err != nil {
		b.unknown = b.lines[len(b.lines)-1]
	}
	if failed := b.receipts(tickets); err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	b.from = b.lines[len(b.lines)-1] + 1
	b.drafts, b.lines, b.ids = b.drafts[:0], b.lines[:0], b.ids[:0]
	b.progress.show(b.done, "enqueued")
	return nil
}

// refused reports whether an error says that nothing is stored.
func refused(err error) bool { return isRefusal(err) || errors.Is(err, ojs.ErrInvalid) }

func (b *batch) oneByOne(ctx context.Context) (tickets []ojs.Ticket, err error) {
	for i, d := range b.drafts {
		b.from = b.lines[i]
		one, err := b.eng.EnqueueMany(ctx, d)
		var duplicate *ojs.DuplicateError
		switch {
		case errors.As(err, &duplicate) && duplicate.Fingerprint == "":
			b.skipped++
		case err != nil:
			if !refused(err) {
				b.unknown, b.ids[0] = b.from, b.ids[i]
			}
			return tickets, fmt.Errorf("line %d: %w", b.from, err)
		}
		tickets = append(tickets, one...)
	}
	return tickets, nil
}

// receipts writes what is stored.
func (b *batch) receipts(tickets []ojs.Ticket) error {
	for _, t := range tickets {
		b.done++
		if err := b.tell(enqueued{t.ID, t.State, t.Deduplicated}); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) tell(e enqueued) error {
	switch b.c.style.form {
	case "json":
		return b.out.add(e)
	case "ndjson":
		return b.c.json(e, "")
	case "id":
		return write(b.c.out, e.ID)
	}
	return nil
}

// stopped says how far the lines were enqueued.
func (b *batch) stopped(err error) error {
	b.progress.clear()
	if b.c.style.form == "json" {
		if err := b.out.end(); err != nil {
			return err
		}
	}
	fix := fmt.Sprintf("continue with --from %d; stored before it: %s", b.from,
		counted(b.done+b.skipped, "job"))
	if b.unknown > 0 {
		fix = fmt.Sprintf("lines %d to %d may be stored: if ojs job %s finds one, continue with --from %d, else "+
			"with --from %d", b.from, b.unknown, b.ids[0], b.unknown+1, b.from)
	}
	return fixError{err, fix}
}

func (b *batch) end() error {
	b.progress.clear()
	if b.c.style.form == "json" {
		return b.out.end()
	}
	if !b.c.style.isTable() {
		return nil
	}
	line := counted(b.done, "job") + " enqueued"
	if b.skipped > 0 {
		line += ", " + number(b.skipped) + " skipped: their ids are stored"
	}
	return write(b.c.out, line)
}
