package storagetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
)

// historyCall is a call of a history.
type historyCall struct {
	client       int
	op           operation
	answer       answer
	parts        int   // that take effect each by itself
	began, ended int64 // as numbers of the beginnings and ends of calls

	// unsettled are the queues whose state another call changed meanwhile. A storage that
	// works job by job may have obeyed either state.
	unsettled []string
}

// operation is a call of a storage: what it is given.
type operation interface {
	do(ctx context.Context, h *handle) answer
	// parts is of how many parts the call is that take effect each by itself, and of
	// which the answer tells.
	parts(got *answer, byJob bool) int
	// step makes a part of the call in a model. It returns what was answered of this
	// part, and what should have been.
	step(m *model, got *answer, part int) (seen, want answer)
	reads() bool // and never changes anything
	String() string
}

// handle is one of the storages that were opened on the same jobs.
type handle struct {
	s     storage.Storage
	steps storage.SettleClaimer // nil: none
}

func newHandle(s storage.Storage) *handle {
	h := &handle{s: s}
	h.steps, _ = settleClaimer(s)
	return h
}

// answer is what a call returned. A call leaves all fields but its own zero.
type answer struct {
	Err      string
	N        int
	Version  uint64
	IDs      []string
	Versions []uint64
	Records  []storage.Record // of Due: promoted, then expired, then stalled ones
	Expired  int              // of Records
	Stalled  int              // likewise
	Moved    []storage.Record // by Due, CancelAll or Revive
	Next     time.Time
	More     bool
	Inserted []storage.Inserted
	Settled  []settled
	Counts   map[storage.Count]bool
	State    ojs.QueueState
	States   map[string]ojs.QueueState
	Crons    []storage.Cron
	Left     int
	Oldest   time.Time
}

type settled struct {
	Version uint64
	Err     string
	Then    []storage.Inserted
	Moved   []storage.Record
}

func (a *answer) equal(b *answer) bool {
	if a.Err != b.Err || a.N != b.N || a.Version != b.Version || len(a.Records) != len(b.Records) {
		return false
	}
	for i := range a.Records {
		if a.Records[i].ID != b.Records[i].ID || a.Records[i].Version != b.Records[i].Version {
			return false
		}
	}
	return reflect.DeepEqual(a, b)
}

// normal makes answers comparable.
func (a *answer) normal(cfg *Config) {
	records := func(list []storage.Record) []storage.Record {
		var out []storage.Record
		for i := range list {
			out = append(out, cfg.normal(list[i]))
		}
		return out
	}
	a.Records, a.Moved = records(a.Records), records(a.Moved)
	inserted := func(list []storage.Inserted) {
		for i := range list {
			in := &list[i]
			in.Replaced, in.Dropped = records(in.Replaced), records(in.Dropped)
			in.Moved = records(in.Moved)
			if in.Existing != nil {
				r := cfg.normal(*in.Existing)
				in.Existing = &r
			}
		}
	}
	inserted(a.Inserted)
	for i := range a.Settled {
		inserted(a.Settled[i].Then)
		a.Settled[i].Moved = records(a.Settled[i].Moved)
	}
	for i := range a.Crons {
		a.Crons[i] = normalCron(a.Crons[i])
	}
	a.Next, a.Oldest = plainTime(a.Next), plainTime(a.Oldest)
	if len(a.IDs) == 0 {
		a.IDs = nil
	}
	if len(a.Crons) == 0 {
		a.Crons = nil
	}
	if len(a.Inserted) == 0 {
		a.Inserted = nil
	}
}

func plainTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}

// normalCron is what histories compare of an entry: what they change.
func normalCron(c storage.Cron) storage.Cron {
	return storage.Cron{Name: c.Name, Runs: c.Runs, NextRun: plainTime(c.NextRun), Version: c.Version}
}

// outcome is what programs see of an error.
func outcome(err error) string {
	var dup *ojs.DuplicateError
	var full *ojs.QueueError
	var bad *ojs.TransitionError
	var unknown *ojs.DependencyError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &unknown):
		return fmt.Sprintf("%s waits for %s, which is not stored",
			jobName(unknown.ID), jobName(unknown.Dependency))
	case errors.As(err, &dup):
		return fmt.Sprintf("duplicate of %s, which is %s", jobName(dup.ID), dup.State)
	case errors.As(err, &full):
		return fmt.Sprintf("queue %s: %v", full.Queue, full.Err)
	case errors.As(err, &bad):
		return fmt.Sprintf("%s is %s and cannot become %s", jobName(bad.ID), bad.From, bad.To)
	case errors.Is(err, storage.ErrFenced):
		return "fenced"
	case errors.Is(err, ojs.ErrNotFound):
		return "not found"
	}
	return failedCall + err.Error()
}

// failedCall begins what programs see of an error of the storage itself.
const failedCall = "failed: "

// ambiguous reports whether the call may have been done, although it has failed.
func (a *answer) ambiguous() bool { return strings.HasPrefix(a.Err, failedCall) }

// tells reports whether the call has said which jobs it is about, or may have been about
// those that findOut has put into its answer.
func (a *answer) tells() bool { return a.Err == "" || a.ambiguous() }

func (c *historyCall) ambiguous() bool { return c.answer.ambiguous() }

// whole is an operation that takes effect as one.
type whole struct{}

func (whole) parts(*answer, bool) int { return 1 }
func (whole) reads() bool             { return false }

// look is an operation that changes nothing.
type look struct{ whole }

func (look) reads() bool { return true }

// The calls.

type insertCall struct {
	whole
	now   time.Time
	batch []storage.Insert
}

func (c *insertCall) do(ctx context.Context, h *handle) (a answer) {
	out, err := h.s.Insert(ctx, c.now, c.batch, nil)
	return answer{Inserted: out, Err: outcome(err)}
}

func (c *insertCall) step(m *model, got *answer, _ int) (answer, answer) {
	if m.byJob && c.bounded() {
		return c.stepUncounted(m, got)
	}
	out, err := m.ref.Insert(context.Background(), c.now, c.batch, nil)
	m.adopt(c.batch, got.Inserted, out, movedBy(out))
	return *got, answer{Inserted: out, Err: outcome(err)}
}

// movedBy are the jobs that waited for others and that an Insert has moved.
func movedBy(out []storage.Inserted) []storage.Record {
	if len(out) == 0 {
		return nil
	}
	return out[len(out)-1].Moved
}

// bounded reports whether the call counts the jobs of a queue.
func (c *insertCall) bounded() bool {
	return slices.ContainsFunc(c.batch, func(in storage.Insert) bool { return in.MaxDepth > 0 })
}

// stepUncounted is step for a storage that counts the jobs of a queue while other calls
// change it: the queue may be full, or have dropped any available jobs.
func (c *insertCall) stepUncounted(m *model, got *answer) (seen, want answer) {
	if strings.HasSuffix(got.Err, ojs.ErrQueueFull.Error()) {
		return *got, *got
	}
	batch := slices.Clone(c.batch)
	for i := range batch {
		batch[i].MaxDepth = 0
	}
	out, err := m.ref.Insert(context.Background(), c.now, batch, nil)
	m.adopt(batch, got.Inserted, out, movedBy(out))
	for i := range min(len(out), len(got.Inserted)) {
		out[i].Depth = got.Inserted[i].Depth
		for _, r := range got.Inserted[i].Dropped {
			j := m.ref.find(r.ID)
			if j == nil || j.rec.Queue != r.Queue {
				continue
			}
			if j.rec.State == ojs.StateAvailable && !j.rec.Expired(c.now) {
				j.rec.Drop(c.now)
				m.ref.moved(j, false)
				out[i].Dropped = append(out[i].Dropped, j.rec.Copy())
			}
		}
	}
	return *got, answer{Inserted: out, Err: outcome(err)}
}

func (c *insertCall) String() string {
	var parts []string
	for i := range c.batch {
		parts = append(parts, insertText(&c.batch[i]))
	}
	return "Insert " + strings.Join(parts, "; ") + " at " + at(c.now)
}

func insertText(in *storage.Insert) string {
	s := jobName(in.Record.ID)
	if in.Record.State != ojs.StateAvailable {
		s += " " + string(in.Record.State)
	}
	s += " in " + in.Record.Queue
	if in.Record.Priority != 0 {
		s += fmt.Sprintf(", priority %d", in.Record.Priority)
	}
	if in.Record.Unique != nil {
		s += fmt.Sprintf(", unique (%s)", in.Record.Unique.Strategy())
	}
	if in.Record.RateLimit != nil {
		s += ", key " + in.Record.RateLimit.Key
	}
	if !in.Record.ExpiresAt.IsZero() {
		s += ", until " + at(in.Record.ExpiresAt)
	}
	if in.Record.Fairness.Key != "" {
		s += fmt.Sprintf(", fairness %s by %d", in.Record.Fairness.Key, in.Record.Fairness.Weight)
	}
	if in.OrderingKey != "" {
		s += ", in line for " + in.OrderingKey
	}
	if d := in.Record.Dependencies; len(in.DependsOn) > 0 {
		s += fmt.Sprintf(", waits for %s (%s, join %v)", strings.Join(jobNames(in.DependsOn), ", "),
			d.Condition, d.Join)
	}
	if len(in.AwaitedBy) > 0 {
		s += ", awaited by " + strings.Join(jobNames(in.AwaitedBy), ", ")
	}
	if in.MaxDepth > 0 {
		s += fmt.Sprintf(", depth %d", in.MaxDepth)
		if in.DropOldest {
			s += " or drop"
		}
	}
	return s
}

type claimCall struct {
	now   time.Time
	claim storage.Claim
}

func (c *claimCall) reads() bool { return false }

func (c *claimCall) parts(got *answer, byJob bool) int {
	if byJob && got.tells() {
		return len(got.Records)
	}
	return 1
}

func (c *claimCall) do(ctx context.Context, h *handle) answer {
	recs, err := h.s.Claim(ctx, c.now, c.claim, nil)
	return answer{Records: recs, Err: outcome(err)}
}

func (c *claimCall) step(m *model, got *answer, part int) (seen, want answer) {
	q := c.claim
	if !m.byJob || !got.tells() {
		recs, err := m.ref.Claim(context.Background(), c.now, q, nil)
		return *got, answer{Records: recs, Err: outcome(err)}
	}
	seen = answer{Records: got.Records[part : part+1]}
	j := m.ref.find(got.Records[part].ID)
	if j == nil || len(q.Queues) > 0 && !slices.Contains(q.Queues, j.rec.Queue) {
		return seen, want
	}
	if m.ref.claimable(j, "", q, c.now) {
		j.rec.Claim(c.now, q.Worker, q.Lease)
		m.ref.moved(j, false)
		want.Records = []storage.Record{j.rec.Copy()}
	}
	return seen, want
}

func (c *claimCall) String() string { return "Claim " + claimText(c.claim) + " at " + at(c.now) }

func claimText(q storage.Claim) string {
	s := fmt.Sprintf("%d", q.Max)
	if len(q.Queues) > 0 {
		s += " of " + strings.Join(q.Queues, ", then ")
	}
	if len(q.Types) > 0 {
		s += fmt.Sprintf(" of types %v", q.Types)
	}
	return s
}

type settleCall struct {
	now     time.Time
	changes []storage.Change
}

func (c *settleCall) reads() bool { return false }

func (c *settleCall) parts(got *answer, _ bool) int {
	if got.tells() {
		return len(c.changes)
	}
	return 1
}

func (c *settleCall) do(ctx context.Context, h *handle) answer {
	out, err := h.s.Settle(ctx, c.now, c.changes, nil)
	return answer{Settled: settledOf(out), Err: outcome(err)}
}

func settledOf(list []storage.Settled) (out []settled) {
	for _, s := range list {
		out = append(out, settled{s.Version, outcome(s.Err), s.Then, s.Moved})
	}
	return out
}

func (c *settleCall) step(m *model, got *answer, part int) (seen, want answer) {
	change := &c.changes[part]
	if got.ambiguous() {
		settled := m.ref.settleThen(c.now, change)
		m.adopt(change.Then, got.Settled[part].Then, settled.Then, settled.Moved)
		return *got, want
	}
	if got.Err != "" || part >= len(got.Settled) {
		return *got, want
	}
	seen.Settled = got.Settled[part : part+1]
	settled := m.ref.settleThen(c.now, change)
	m.adopt(change.Then, seen.Settled[0].Then, settled.Then, settled.Moved)
	want.Settled = settledOf([]storage.Settled{settled})
	return seen, want
}

func (c *settleCall) String() string {
	var parts []string
	for i := range c.changes {
		s := changeText(&c.changes[i].Record)
		for k := range c.changes[i].Then {
			s += ", then " + insertText(&c.changes[i].Then[k])
		}
		parts = append(parts, s)
	}
	return "Settle " + strings.Join(parts, "; ") + " at " + at(c.now)
}

func changeText(r *storage.Record) string {
	s := fmt.Sprintf("%s version %d to %s", jobName(r.ID), r.Version, r.State)
	if r.DeadLettered() {
		s += " (dead letter)"
	}
	return s
}

type extendCall struct {
	now time.Time
	xs  []storage.Extension
}

func (c *extendCall) reads() bool { return false }

func (c *extendCall) parts(got *answer, byJob bool) int {
	if byJob && got.tells() {
		return len(c.xs)
	}
	return 1
}

func (c *extendCall) do(ctx context.Context, h *handle) answer {
	lost, err := h.s.Extend(ctx, c.now, c.xs)
	return answer{IDs: lost, Err: outcome(err)}
}

func (c *extendCall) step(m *model, got *answer, part int) (seen, want answer) {
	seen, xs := *got, c.xs
	if m.byJob && got.tells() {
		xs = c.xs[part : part+1]
		seen.IDs = nil
		if slices.Contains(got.IDs, xs[0].ID) {
			seen.IDs = []string{xs[0].ID}
		}
	}
	lost, err := m.ref.Extend(context.Background(), c.now, xs)
	return seen, answer{IDs: lost, Err: outcome(err)}
}

func (c *extendCall) String() string {
	var parts []string
	for _, x := range c.xs {
		parts = append(parts, fmt.Sprintf("%s version %d", jobName(x.ID), x.Version))
	}
	return "Extend " + strings.Join(parts, ", ") + " at " + at(c.now)
}

type dueCall struct {
	now time.Time
	max int
}

func (c *dueCall) reads() bool { return false }

func (c *dueCall) parts(got *answer, byJob bool) int {
	if byJob && got.tells() {
		return len(got.Records)
	}
	return 1
}

func (c *dueCall) do(ctx context.Context, h *handle) answer {
	d, err := h.s.Due(ctx, c.now, c.max, nil)
	return dueAnswer(d, err)
}

func dueAnswer(d storage.Due, err error) answer {
	a := answer{Err: outcome(err), Expired: len(d.Expired), Stalled: len(d.Stalled), Next: d.Next}
	a.Moved = append(a.Moved, d.Moved...)
	a.Records = append(append(append(a.Records, d.Promoted...), d.Expired...), d.Stalled...)
	return a
}

func (c *dueCall) step(m *model, got *answer, part int) (seen, want answer) {
	if !m.byJob || !got.tells() {
		return *got, dueAnswer(m.ref.Due(context.Background(), c.now, c.max, nil))
	}
	r := got.Records[part]
	seen.Records = []storage.Record{r}
	j := m.ref.find(r.ID)
	if j == nil || j.rec.WakeAt().IsZero() || j.rec.WakeAt().After(c.now) {
		return seen, want
	}
	switch {
	case j.rec.Expired(c.now):
		j.rec.Expire(c.now)
	case j.rec.State == ojs.StateActive:
		j.rec.TakeOver(c.now)
	default:
		j.rec.Promote(c.now)
	}
	m.ref.moved(j, false)
	want.Records = []storage.Record{j.rec.Copy()}
	want.Moved = m.ref.countEnds(c.now)
	for i := range got.Moved {
		if slices.ContainsFunc(want.Moved, func(r storage.Record) bool { return r.ID == got.Moved[i].ID }) {
			seen.Moved = append(seen.Moved, got.Moved[i])
		}
	}
	return seen, want
}

func (c *dueCall) String() string { return fmt.Sprintf("Due %d at %s", c.max, at(c.now)) }

type getCall struct {
	look
	id string
}

func (c *getCall) do(ctx context.Context, h *handle) answer { return getAnswer(h.s.Get(ctx, c.id)) }

func getAnswer(r storage.Record, err error) answer {
	if err != nil {
		return answer{Err: outcome(err)}
	}
	return answer{Records: []storage.Record{r}}
}

func (c *getCall) step(m *model, got *answer, _ int) (answer, answer) {
	return *got, getAnswer(m.ref.Get(context.Background(), c.id))
}

func (c *getCall) String() string { return "Get " + jobName(c.id) }

type listCall struct {
	q storage.Query
}

func (c *listCall) reads() bool { return true }

func (c *listCall) parts(got *answer, byJob bool) int {
	if byJob && got.Err == "" {
		return len(got.Records)
	}
	return 1
}

func (c *listCall) do(ctx context.Context, h *handle) answer { return listAnswer(h.s.List(ctx, c.q)) }

func listAnswer(p storage.Page, err error) answer {
	return answer{Records: p.Records, More: p.Next != "", Err: outcome(err)}
}

func (c *listCall) step(m *model, got *answer, part int) (seen, want answer) {
	if m.byJob && got.Err == "" {
		r := got.Records[part]
		seen.Records = []storage.Record{r}
		if j := m.ref.find(r.ID); j != nil && c.q.Matches(&j.rec) {
			want.Records = []storage.Record{j.rec.Copy()}
		}
		return seen, want
	}
	want = listAnswer(m.ref.List(context.Background(), c.q))
	if n := len(got.Records); got.More && n < len(want.Records) { // a page may be short
		want.Records, want.More = want.Records[:n], true
	}
	if len(got.Records) == len(want.Records) { // or be followed by one without records
		want.More = want.More || got.More
	}
	return *got, want
}

func (c *listCall) String() string {
	s := "List"
	if c.q.DeadLetters {
		s += " dead letters"
	}
	for _, state := range c.q.States {
		s += " " + string(state)
	}
	for _, q := range c.q.Queues {
		s += " in " + q
	}
	if c.q.Limit > 0 {
		s += fmt.Sprintf(", at most %d", c.q.Limit)
	}
	return s
}

type countsCall struct{ look }

func (c *countsCall) do(ctx context.Context, h *handle) answer { return countsAnswer(h.s.Counts(ctx)) }

func countsAnswer(list []storage.Count, err error) answer {
	a := answer{Err: outcome(err), Counts: make(map[storage.Count]bool)}
	for _, c := range list {
		a.Counts[c] = true
	}
	return a
}

func (c *countsCall) step(m *model, got *answer, _ int) (answer, answer) {
	return *got, countsAnswer(m.ref.Counts(context.Background()))
}

func (c *countsCall) String() string { return "Counts" }

type deleteCall struct {
	whole
	ids []string
}

func (c *deleteCall) do(ctx context.Context, h *handle) answer {
	n, err := h.s.Delete(ctx, c.ids)
	return answer{N: n, Err: outcome(err)}
}

func (c *deleteCall) step(m *model, got *answer, _ int) (answer, answer) {
	var want answer
	m.deleting(func() {
		n, err := m.ref.Delete(context.Background(), c.ids)
		want = answer{N: n, Err: outcome(err)}
	})
	return *got, want
}

func (c *deleteCall) String() string { return "Delete " + strings.Join(jobNames(c.ids), ", ") }

type pruneCall struct{ p storage.Prune }

func (c *pruneCall) reads() bool { return false }

func (c *pruneCall) parts(got *answer, byJob bool) int {
	if byJob && got.tells() {
		return len(got.IDs)
	}
	return 1
}

func (c *pruneCall) do(ctx context.Context, h *handle) answer {
	return pruneAnswer(h.s.Prune(ctx, c.p))
}

func pruneAnswer(p storage.Pruned, err error) answer {
	return answer{IDs: p.IDs, Left: p.Left, Oldest: p.Oldest, Err: outcome(err)}
}

func (c *pruneCall) step(m *model, got *answer, part int) (seen, want answer) {
	m.deleting(func() {
		if !m.byJob || !got.tells() {
			seen, want = *got, pruneAnswer(m.ref.Prune(context.Background(), c.p))
			return
		}
		seen.IDs = got.IDs[part : part+1]
		if j := m.ref.find(seen.IDs[0]); j != nil && m.ref.prunable(j, &c.p) {
			m.ref.remove(func(other *refJob) bool { return other == j })
			want.IDs = seen.IDs
		}
	})
	return seen, want
}

func (c *pruneCall) String() string {
	s := fmt.Sprintf("Prune %d", c.p.Max)
	if c.p.DeadLetters {
		s += " dead letters"
	}
	for _, state := range c.p.States {
		s += " " + string(state)
	}
	if !c.p.Before.IsZero() {
		s += " before " + at(c.p.Before)
	}
	if c.p.Beyond > 0 {
		s += fmt.Sprintf(" beyond %d", c.p.Beyond)
	}
	return s + " at " + at(c.p.Now)
}

type queueStateCall struct {
	whole
	queue string
	to    ojs.QueueState
}

func (c *queueStateCall) do(ctx context.Context, h *handle) answer {
	was, err := h.s.SetQueueState(ctx, c.queue, c.to)
	return answer{State: was, Err: outcome(err)}
}

func (c *queueStateCall) step(m *model, got *answer, _ int) (answer, answer) {
	was, err := m.ref.SetQueueState(context.Background(), c.queue, c.to)
	return *got, answer{State: was, Err: outcome(err)}
}

func (c *queueStateCall) String() string {
	return "SetQueueState " + c.queue + " " + string(c.to)
}

type queueStatesCall struct{ look }

func (c *queueStatesCall) do(ctx context.Context, h *handle) answer {
	states, err := h.s.QueueStates(ctx)
	return answer{States: states, Err: outcome(err)}
}

func (c *queueStatesCall) step(m *model, got *answer, _ int) (answer, answer) {
	states, err := m.ref.QueueStates(context.Background())
	return *got, answer{States: states, Err: outcome(err)}
}

func (c *queueStatesCall) String() string { return "QueueStates" }

type setCronsCall struct {
	whole
	entries []storage.Cron
}

func (c *setCronsCall) do(ctx context.Context, h *handle) answer {
	versions, err := document.Of(h.s).SetCrons(ctx, c.entries)
	return answer{Versions: versions, Err: outcome(err)}
}

func (c *setCronsCall) step(m *model, got *answer, _ int) (seen, want answer) {
	if got.Err != "" {
		return *got, want
	}
	want.Versions, _ = document.Of(m.ref).SetCrons(context.Background(), c.entries)
	for i, version := range want.Versions {
		if version == 0 || i >= len(got.Versions) {
			continue
		}
		name, v := c.entries[i].Name, got.Versions[i]
		if v > m.lastCron[name] {
			want.Versions[i] = v
		}
		e := m.ref.of(storage.KindCron)[name]
		e.Version = want.Versions[i]
		m.ref.of(storage.KindCron)[name] = e
		m.lastCron = put(m.lastCron, name, e.Version)
	}
	return *got, want
}

func (c *setCronsCall) String() string {
	var parts []string
	for i := range c.entries {
		parts = append(parts, cronText(&c.entries[i]))
	}
	return "SetCrons " + strings.Join(parts, "; ")
}

type deleteCronCall struct {
	whole
	name string
}

func (c *deleteCronCall) do(ctx context.Context, h *handle) answer {
	ok, err := document.Of(h.s).DeleteCron(ctx, c.name)
	return found(ok, err)
}

func found(ok bool, err error) answer {
	a := answer{Err: outcome(err)}
	if ok {
		a.N = 1
	}
	return a
}

func (c *deleteCronCall) step(m *model, got *answer, _ int) (answer, answer) {
	ok, err := document.Of(m.ref).DeleteCron(context.Background(), c.name)
	return *got, found(ok, err)
}

func (c *deleteCronCall) String() string { return "DeleteCron " + c.name }

type cronsCall struct {
	look
	q storage.DocumentQuery
}

func (c *cronsCall) do(ctx context.Context, h *handle) answer {
	list, err := document.Of(h.s).Crons(ctx, c.q)
	return answer{Crons: list, Err: outcome(err)}
}

func (c *cronsCall) step(m *model, got *answer, _ int) (answer, answer) {
	list, err := document.Of(m.ref).Crons(context.Background(), c.q)
	return *got, cronsAnswer(list, time.Time{}, err)
}

// cronsAnswer is an answer of the model.
func cronsAnswer(list []storage.Cron, next time.Time, err error) answer {
	a := answer{Next: plainTime(next), Err: outcome(err)}
	for _, e := range list {
		a.Crons = append(a.Crons, normalCron(e))
	}
	return a
}

func (c *cronsCall) String() string {
	s := "Crons"
	for _, name := range c.q.Names {
		s += " " + name
	}
	return s
}

type dueCronsCall struct {
	look
	now time.Time
	max int
}

func (c *dueCronsCall) do(ctx context.Context, h *handle) answer {
	due, next, err := document.Of(h.s).DueCrons(ctx, c.now, nil, c.max)
	return answer{Crons: due, Next: next, Err: outcome(err)}
}

func (c *dueCronsCall) step(m *model, got *answer, _ int) (answer, answer) {
	want := cronsAnswer(document.Of(m.ref).DueCrons(context.Background(), c.now, nil, c.max))
	if m.byJob {
		want.Next = got.Next
	}
	return *got, want
}

func (c *dueCronsCall) String() string { return fmt.Sprintf("DueCrons %d at %s", c.max, at(c.now)) }

type stepCall struct {
	now   time.Time
	to    []storage.Record
	claim storage.Claim
	room  int
}

func (c *stepCall) reads() bool { return false }

func (c *stepCall) parts(got *answer, byJob bool) int {
	if byJob && got.tells() {
		return len(c.to) + len(got.Records)
	}
	return 1
}

func (c *stepCall) records() (to []*storage.Record) {
	for i := range c.to {
		r := c.to[i].Copy()
		to = append(to, &r)
	}
	return to
}

func (c *stepCall) do(ctx context.Context, h *handle) answer {
	into := used(c.room)
	out, n, err := h.steps.SettleAndClaim(ctx, c.now, c.records(), nil, c.claim, into)
	return stepAnswer(out, n, into, err)
}

func stepAnswer(out []storage.Settled, n int, into []*storage.Record, err error) answer {
	a := answer{Settled: settledOf(out), Err: outcome(err)}
	for _, r := range into[:min(n, len(into))] {
		a.Records = append(a.Records, *r)
	}
	return a
}

func (c *stepCall) asked() storage.Claim {
	q := c.claim
	q.Max = c.room
	return q
}

func (c *stepCall) step(m *model, got *answer, part int) (answer, answer) {
	if m.byJob && got.tells() {
		return c.stepPart(m, got, part)
	}
	into := used(c.room)
	out, n, err := m.ref.settleAndClaim(context.Background(), c.now, c.records(), nil, c.asked(), into)
	return *got, stepAnswer(out, n, into, err)
}

// stepPart is step for a storage that works job by job: Settle and then Claim, which
// takes no job that SettleAndClaim leaves out.
func (c *stepCall) stepPart(m *model, got *answer, part int) (seen, want answer) {
	if part < len(c.to) {
		s := settleCall{now: c.now}
		for _, r := range c.to {
			s.changes = append(s.changes, storage.Change{Record: r})
		}
		return s.step(m, got, part)
	}
	part -= len(c.to)
	if got.Records[part].EnqueueTTL > 0 {
		return answer{Records: got.Records[part : part+1]}, want
	}
	claim := claimCall{now: c.now, claim: c.asked()}
	return claim.step(m, got, part)
}

func (c *stepCall) String() string {
	var parts []string
	for i := range c.to {
		parts = append(parts, changeText(&c.to[i]))
	}
	s := "SettleAndClaim " + strings.Join(parts, "; ")
	return s + ", claim " + claimText(c.asked()) + " at " + at(c.now)
}

type unclaimCall struct {
	whole
	now  time.Time
	held []storage.Held
}

func (c *unclaimCall) do(ctx context.Context, h *handle) answer {
	n, err := h.steps.Unclaim(ctx, c.now, c.held)
	return answer{N: n, Err: outcome(err)}
}

func (c *unclaimCall) step(m *model, got *answer, _ int) (answer, answer) {
	n, err := m.ref.unclaim(context.Background(), c.held)
	return *got, answer{N: n, Err: outcome(err)}
}

func (c *unclaimCall) String() string {
	var parts []string
	for _, h := range c.held {
		parts = append(parts, fmt.Sprintf("%s version %d", jobName(h.ID), h.Version))
	}
	return "Unclaim " + strings.Join(parts, ", ")
}
