package storagetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

// The coverage of the random operations counts occurrences: an operation, the state of a
// job before it, and a field that the operation has changed there, or has shown with a
// value that is not zero. Besides fields, an operation has outcomes: it refuses or skips
// jobs. The fields are found by reflection, so that a new one is missing until the
// operations reach it. The table never lists impossible occurrences with their reasons.

// met is an operation that has met a job in a state, and a field or an outcome.
type met struct {
	operation string
	state     ojs.State
	field     string
}

type coverage struct {
	times map[met]int
	seen  map[met]int // shown records, by operation and state
	hung  string      // the step in which the storage has hung; "": none
}

func newCoverage() *coverage { return &coverage{times: make(map[met]int), seen: make(map[met]int)} }

// The outcomes.
const (
	refusedFenced     = "(refused: fenced)"
	refusedTransition = "(refused: no such transition)"
	refusedTaken      = "(refused: the id is taken)"
	refusedDuplicate  = "(refused: a duplicate)"
	ignoredFor        = "(ignored for an equal job)"
	skippedJob        = "(skipped)"
	skippedDeadline   = "(skipped: deadline)"
	skippedLimit      = "(skipped: limit)"
	skippedPaused     = "(skipped: paused)"
	skippedType       = "(skipped: type)"
	deletedJob        = "(deleted)"
	setAsideJob       = "(set aside)"
	releasedJob       = "(released)"
	resumed           = "(resumed)"
)

// Lists that the tables below repeat.
const (
	settles  = "settle;settle, same job;settle and claim: settle"
	shows    = "get;list;reopen"
	terminal = "completed cancelled discarded"
)

// changing are the operations that change fields, showing those that show them, and
// outcomes the lists of operations that have outcomes.
var (
	changing = []string{
		"insert", "insert: replace", "insert: take over", "insert: drop", "claim",
		"settle", "settle, same job", "settle and claim: settle",
		"settle and claim: claim", "unclaim", "extend", "due: promote", "due: expire", "due: hand over",
	}
	showing  = strings.Split(shows, ";")
	outcomes = []struct {
		operations string
		outcomes   []string
	}{
		{"insert", []string{refusedTaken, refusedDuplicate, ignoredFor}},
		{"claim", []string{skippedDeadline, skippedLimit, skippedPaused, skippedType}},
		{settles, []string{refusedFenced, refusedTransition}},
		{"unclaim", []string{skippedJob}},
		{"extend", []string{refusedFenced}},
		{"delete", []string{deletedJob, refusedTransition}},
		{"prune", []string{deletedJob}},
		{"queue", []string{resumed}},
		{"plant", []string{setAsideJob}},
		{"quarantine", []string{deletedJob, releasedJob}},
	}
)

// never is what cannot occur. Lists are separated by spaces or, of operations, by
// semicolons; "!" is all but those that follow, and "*" at the end of a field any rest of
// it.
var never = []struct{ operations, states, fields, why string }{
	{
		"insert",
		"!available scheduled pending",
		"!" + refusedTaken + "|" + refusedDuplicate + "|" + ignoredFor,
		"Insert refuses records in other states.",
	},
	{
		"insert",
		"!",
		"LeaseUntil|NextRetryAt|FinishedAt|DeadLetteredAt",
		"A new job has no time of a later state.",
	},
	{"insert: replace", terminal, "!", "A job that has ended is not replaced."},
	{
		"insert: replace",
		"!",
		"!State|LeaseUntil|NextRetryAt|FinishedAt|Checkpoint|Version",
		"Record.Cancel changes no other field.",
	},
	{"insert: replace", "!active", "LeaseUntil", "Only an active job has a lease."},
	{"insert: replace", "!retryable", "NextRetryAt", "Only a retryable job has such a time."},
	{"insert: take over", "!scheduled", "!", "Only a scheduled job takes over."},
	{
		"insert: take over",
		"!",
		"!Args|Meta|ScheduledAt|ExpiresAt|Version",
		"Record.Update changes no other field.",
	},
	{"insert: drop", "!available", "!", "Only available jobs are dropped."},
	{
		"insert: drop",
		"!",
		"!State|FinishedAt|Error*|Checkpoint|Version",
		"Record.Drop changes no other field.",
	},
	{"insert: drop", "!", "Errors", "Record.Drop changes no other field."},
	{"claim;settle and claim: claim", "!available", "!", "Claim takes available jobs only."},
	{
		"claim;settle and claim: claim",
		"!",
		"!State|Attempt|StartedAt|Worker|LeaseUntil|Progress|Version|(*",
		"Record.Claim changes no other field.",
	},
	{settles, "!", "ID", "The id says which job it is."},
	{
		settles,
		"completed cancelled",
		"!" + refusedFenced + "|" + refusedTransition,
		"No transition leads out of these states.",
	},
	{
		settles,
		"!available active",
		"LeaseUntil",
		"No transition leads from these states to active or from it.",
	},
	{
		settles,
		"!active retryable",
		"NextRetryAt",
		"No transition leads from these states to retryable or from it.",
	},
	{"settle, same job;settle and claim: settle", "!",
		"!State|Attempt|Progress|Error|Error.*|Errors|History|Result|Checkpoint|Worker|LeaseUntil|EnqueuedAt|StartedAt|NextRetryAt|FinishedAt|DeadLetteredAt|Version|(*",
		"A change of the same job changes nothing else."},
	{"unclaim", "!active", "!" + skippedJob, "Only an active job has a claim."},
	{
		"unclaim",
		"!",
		"!State|Attempt|StartedAt|Worker|LeaseUntil|Version|(*",
		"Record.Unclaim changes no other field.",
	},
	{"extend", "!active", "!" + refusedFenced, "Only an active job has a lease."},
	{"extend", "!", "!LeaseUntil|Progress|Checkpoint|(*", "Record.Extend changes no other field."},
	{"due: promote", "!scheduled retryable", "!", "No other job waits to be promoted."},
	{"due: promote", "!", "!State|NextRetryAt|EnqueuedAt|Version", "Record.Promote changes no other field."},
	{"due: promote", "scheduled", "NextRetryAt", "Only a retryable job has such a time."},
	{"due: expire", "active completed cancelled discarded", "!", "Only waiting jobs have a deadline."},
	{
		"due: expire",
		"!",
		"!State|NextRetryAt|FinishedAt|Error|Error.*|Checkpoint|DeadLetteredAt|Version",
		"Record.Expire changes no other field.",
	},
	{"due: expire", "!retryable", "NextRetryAt", "Only a retryable job has such a time."},
	{"due: hand over", "!active", "!", "Only an active job has a lease."},
	{"due: hand over", "!", "!LeaseUntil|Version", "Record.TakeOver changes no other field."},
	{shows, "!active", "LeaseUntil", "Only an active job has a lease."},
	{shows, "!retryable", "NextRetryAt", "Only a retryable job has such a time."},
	{shows, "!" + terminal, "FinishedAt", "The job has not ended."},
	{shows, "!discarded", "DeadLetteredAt", "Only a discarded job is a dead letter."},
	{"delete", "!" + terminal, deletedJob, "Delete refuses jobs that have not ended."},
	{"delete", terminal, refusedTransition, "Delete takes jobs that have ended."},
	{"prune", "!" + terminal, deletedJob, "Prune takes jobs that have ended."},
	{"queue", "!available", resumed, "A pause holds back available jobs only."},
}

// among reports whether a list of the table never has a word.
func among(list, sep, word string) bool {
	rest, but := strings.CutPrefix(list, "!")
	found := slices.ContainsFunc(strings.Split(rest, sep), func(s string) bool {
		if prefix, ok := strings.CutSuffix(s, "*"); ok {
			return strings.HasPrefix(word, prefix)
		}
		return s == word
	})
	return found != but
}

// cannot says why something cannot occur, "" if it can.
func (m met) cannot() string {
	for _, n := range never {
		if among(n.operations, ";", m.operation) && among(n.states, " ", string(m.state)) &&
			among(n.fields, "|", m.field) {
			return n.why
		}
	}
	return ""
}

// lacks reports whether a storage of cfg cannot do an operation.
func (m met) lacks(cfg Config) bool {
	switch m.operation {
	case "settle and claim: settle", "settle and claim: claim", "unclaim":
		return !cfg.SettleClaims
	case "plant", "quarantine":
		return !cfg.Quarantine
	case "reopen":
		return cfg.Reopen == nil
	}
	return false
}

var recordLeaves = fields.Leaves(reflect.TypeFor[storage.Record]())

// all is everything that there is to meet, whether it can occur or not.
func (c *coverage) all() (list []met) {
	for _, op := range slices.Concat(changing, showing) {
		for _, s := range ojs.AllStates() {
			for _, l := range recordLeaves {
				list = append(list, met{op, s, l.Path})
			}
		}
	}
	for _, o := range outcomes {
		for _, op := range strings.Split(o.operations, ";") {
			for _, s := range ojs.AllStates() {
				for _, what := range o.outcomes {
					list = append(list, met{op, s, what})
				}
			}
		}
	}
	return list
}

func (c *coverage) add(operation string, s ojs.State, field string) {
	if s != "" {
		c.times[met{operation, s, field}]++
	}
}

// shown notes which fields of a record are not zero. Of many records in a state it looks
// at some.
func (c *coverage) shown(operation string, r *storage.Record) {
	c.seen[met{operation, r.State, ""}]++
	if n := c.seen[met{operation, r.State, ""}]; n > 1000 && n%16 != 0 {
		return
	}
	v := reflect.ValueOf(r).Elem()
	for _, l := range recordLeaves {
		if f, ok := l.In(v); ok && !f.IsZero() {
			c.add(operation, r.State, l.Path)
		}
	}
}

// changed notes which fields an operation has changed.
func (c *coverage) changed(operation string, before, after *storage.Record) {
	a, b := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for _, l := range recordLeaves {
		f, inA := l.In(a)
		g, inB := l.In(b)
		differ := false
		switch {
		case inA && inB:
			differ = len(fields.Diff(f.Interface(), g.Interface())) > 0
		case inA:
			differ = !f.IsZero()
		case inB:
			differ = !g.IsZero()
		}
		if differ {
			c.add(operation, before.State, l.Path)
		}
	}
}

// missing is what can occur with a storage of cfg and has not, and wrong what has
// occurred although the table never has it.
func (c *coverage) missing(cfg Config) (missing, wrong []met) {
	for _, m := range c.all() {
		switch why := m.cannot(); {
		case why != "" && c.times[m] > 0:
			wrong = append(wrong, m)
		case why == "" && !m.lacks(cfg) && c.times[m] == 0:
			missing = append(missing, m)
		}
	}
	return missing, wrong
}

func (m met) String() string { return fmt.Sprintf("%s, %s, %s", m.operation, m.state, m.field) }

// table shows how often each field was met, in columns of states. A dash cannot occur.
func (c *coverage) table(cfg Config) string {
	var b strings.Builder
	missing, _ := c.missing(cfg)
	can := 0
	var op string
	rows := make(map[string][]met)
	var order []string
	for _, m := range c.all() {
		if m.lacks(cfg) {
			continue
		}
		if m.cannot() == "" {
			can++
		}
		row := m.operation + "\x00" + m.field
		if rows[row] == nil {
			order = append(order, row)
		}
		rows[row] = append(rows[row], m)
	}
	slices.SortStableFunc(order, func(a, b string) int {
		a, _, _ = strings.Cut(a, "\x00")
		b, _, _ = strings.Cut(b, "\x00")
		return strings.Compare(a, b)
	})
	fmt.Fprintf(
		&b,
		"%d of %d (operation, state before, field) that can occur have occurred\n",
		can-len(missing),
		can,
	)
	for _, row := range order {
		name, field, _ := strings.Cut(row, "\x00")
		if slices.IndexFunc(rows[row], func(m met) bool { return m.cannot() == "" }) < 0 {
			continue
		}
		if name != op {
			op = name
			fmt.Fprintf(&b, "\n%-36s", op)
			for _, s := range ojs.AllStates() {
				fmt.Fprintf(&b, "%10s", s)
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "  %-34s", field)
		for _, m := range rows[row] {
			if m.cannot() != "" {
				fmt.Fprintf(&b, "%10s", "-")
			} else {
				fmt.Fprintf(&b, "%10d", c.times[m])
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// snapshot is the jobs of the reference, in the order of their insertion. It is valid
// until the next one.
func (w *world) snapshot() []refJob {
	w.before = w.before[:0]
	for _, j := range w.ref.jobs {
		w.before = append(w.before, *j)
	}
	return w.before
}

// states are the states of all jobs.
func (w *world) states() map[string]ojs.State {
	m := make(map[string]ojs.State, len(w.ref.jobs))
	for _, j := range w.ref.jobs {
		m[j.rec.ID] = j.rec.State
	}
	return m
}

// note counts what an operation has done, and what listeners have to hear of it.
func (w *world) note(name string, before []refJob, heard []int) {
	var moves []move
	for _, j := range w.ref.jobs {
		for len(before) > 0 && before[0].inserted < j.inserted {
			before = before[1:]
		}
		var was storage.Record
		there := len(before) > 0 && before[0].inserted == j.inserted
		if there {
			was = before[0].rec
		}
		r := &j.rec
		switch {
		case !there && r.State.Terminal(): // replaced by the batch itself, or released
			moves = append(moves, move{after: *r, steps: 2})
		case !there:
			moves = append(moves, move{after: *r, steps: 1})
			if name == "insert" {
				w.cov.shown("insert", r)
			}
		case was.Version != r.Version || !was.LeaseUntil.Equal(r.LeaseUntil) ||
			was.Progress != r.Progress || string(was.Checkpoint) != string(r.Checkpoint):
			steps := r.Version - was.Version
			moves = append(moves, move{was, *r, steps})
			if j.counted { // by another operation, or by another job of this one
				was.Dependencies = r.Dependencies
			}
			if steps < 2 {
				w.cov.changed(w.moveName(name, &was, r), &was, r)
			}
		}
	}
	w.expect(name, moves, heard)
}

// moveName says what an operation was to a job.
func (w *world) moveName(name string, before, after *storage.Record) string {
	if as := w.as[before.ID]; as != "" {
		return as
	}
	switch name {
	case "plant":
		return "claim"
	case "insert":
		switch after.State {
		case ojs.StateCancelled:
			return "insert: replace"
		case ojs.StateDiscarded:
			return "insert: drop"
		}
		return "insert: take over"
	case "due":
		switch after.State {
		case ojs.StateAvailable:
			return "due: promote"
		case ojs.StateDiscarded:
			return "due: expire"
		}
		return "due: hand over"
	}
	return name
}

// insertOutcome counts what an insert was refused or ignored for.
func (w *world) insertOutcome(
	before map[string]ojs.State,
	batch []storage.Insert,
	results []storage.Inserted,
	err error,
) {
	var dup *ojs.DuplicateError
	if errors.As(err, &dup) {
		if s := before[dup.ID]; dup.Fingerprint != "" {
			w.cov.add("insert", s, refusedDuplicate)
		} else {
			w.cov.add("insert", s, refusedTaken)
		}
	}
	for i := range min(len(results), len(batch)) {
		if e := results[i].Existing; e != nil && !results[i].Updated {
			w.cov.add("insert", before[e.ID], ignoredFor)
		}
	}
}

// claimOutcome counts the jobs that a claim is going to skip.
func (w *world) claimOutcome(name string, c storage.Claim) {
	if c.Max == 0 {
		return
	}
	for _, j := range w.ref.jobs {
		r := &j.rec
		if r.State != ojs.StateAvailable || len(c.Queues) > 0 && !slices.Contains(c.Queues, r.Queue) {
			continue
		}
		switch {
		case r.Expired(w.now):
			w.cov.add(name, r.State, skippedDeadline)
		case w.ref.states[r.Queue] == ojs.QueuePaused:
			w.cov.add(name, r.State, skippedPaused)
		case len(c.Types) > 0 && !slices.Contains(c.Types, r.Type):
			w.cov.add(name, r.State, skippedType)
		case w.ref.waits(r, w.now):
			w.cov.add(name, r.State, skippedLimit)
		}
	}
}

// settleOutcome counts what a change was refused for.
func (w *world) settleOutcome(
	name string,
	before map[string]ojs.State,
	c storage.Change,
	got storage.Settled,
) {
	var bad *ojs.TransitionError
	switch s := before[c.Record.ID]; {
	case errors.Is(got.Err, storage.ErrFenced):
		w.cov.add(name, s, refusedFenced)
	case errors.As(got.Err, &bad):
		w.cov.add(name, s, refusedTransition)
	}
}
