package storagetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fields"
	"github.com/ojsengine/ojs/storage"
)

// Random does random operations on a storage and on Reference and compares what they answer and hold, step by step. A
// difference is reduced to the shortest way to it that can be found, and printed with the seed. The flags of
// pgregory.net/rapid set the number of runs (-rapid.checks) and repeat one (-rapid.seed, -rapid.failfile).
func Random(t *testing.T, cfg Config) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		tb := &quiet{outer: rt}
		defer tb.end()
		w := &world{
			cfg: cfg, s: scribble(cfg.Open(tb)), ref: NewReference(), now: epoch, skips: [3]*storage.KeySet{nil, storage.Keys(), storage.Keys()},
			ahead: make(map[string]uint64), gone: make(map[string][]tokenOfBoth),
		}
		defer w.s.Close()
		steps := map[string]func(*rapid.T){
			"insert": w.insert, "claim": w.claim, "settle": w.settle, "extend": w.extend, "due": w.due, "delete": w.remove, "prune": w.prune,
			"time": func(t *rapid.T) { w.now = w.now.Add(time.Duration(rapid.IntRange(-3, 7).Draw(t, "s")) * time.Second) },
			"":     w.compare,
		}
		if cfg.Queues {
			steps["queue"] = w.queue
		}
		if cfg.SettleClaims {
			steps["settle and claim"], steps["unclaim"] = w.settleAndClaim, w.unclaim
		}
		rt.Repeat(steps)
	})
}

// world is a storage and the reference, which the same things happen to.
type world struct {
	cfg Config
	s   storage.Storage
	ref *Reference
	now time.Time
	ids int

	skips [3]*storage.KeySet // as two engines have them, and none

	ahead map[string]uint64        // by id: how much later a job's version is in the storage than in the reference
	gone  map[string][]tokenOfBoth // of deleted jobs
}

// tokenOfBoth is a version of a job, in the reference and in the storage.
type tokenOfBoth struct{ ref, got uint64 }

// mine is what the storage says of jobs, with the versions that the reference has.
func (w *world) mine(recs ...storage.Record) []storage.Record {
	recs = slices.Clone(recs)
	for i := range recs {
		recs[i].Version -= w.ahead[recs[i].ID]
	}
	return recs
}

// token is the version of a job of the reference that a caller has, as the storage has it: the current one, the one before, or that of a
// deleted job with the same id.
func (w *world) token(t *rapid.T, r storage.Record) tokenOfBoth {
	v := tokenOfBoth{r.Version, r.Version + w.ahead[r.ID]}
	switch old := w.gone[r.ID]; {
	case len(old) > 0 && rapid.Bool().Draw(t, "of a deleted job"):
		return rapid.SampledFrom(old).Draw(t, "token")
	case rapid.IntRange(0, 5).Draw(t, "stale") == 0 && v.ref > 0:
		return tokenOfBoth{v.ref - 1, v.got - 1}
	}
	return v
}

// deleting keeps the tokens of jobs that f deletes.
func (w *world) deleting(f func()) {
	before := make(map[string]uint64)
	for _, j := range w.ref.jobs {
		before[j.rec.ID] = j.rec.Version
	}
	f()
	for _, j := range w.ref.jobs {
		delete(before, j.rec.ID)
	}
	for id, last := range before {
		for v := last; v > 0 && v+5 > last; v-- {
			w.gone[id] = append(w.gone[id], tokenOfBoth{v, v + w.ahead[id]})
		}
	}
}

var (
	queueNames = []string{"a", "b", "c"}
	typeNames  = []string{"x", "y"}
	limitKeys  = []string{"k", "l", "m"}
)

func some[E comparable](t *rapid.T, name string, of []E, least, most int) []E {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(of), least, most, rapid.ID[E]).Draw(t, name)
}

func (w *world) in(t *rapid.T, what string, least int) time.Time {
	return w.now.Add(time.Duration(rapid.IntRange(least, 10).Draw(t, what)) * time.Second)
}

func (w *world) insert(t *rapid.T) {
	batch := make([]storage.Insert, rapid.IntRange(1, 4).Draw(t, "n"))
	depth, drop := 0, rapid.Bool().Draw(t, "drop oldest")
	if rapid.Bool().Draw(t, "bounded") {
		depth = rapid.IntRange(1, 6).Draw(t, "depth")
	}
	for i := range batch {
		w.ids++
		id := w.ids
		if rapid.IntRange(0, 15).Draw(t, "dup") == 0 {
			id = rapid.IntRange(1, w.ids).Draw(t, "id")
		} else if old := slices.Sorted(maps.Keys(w.gone)); len(old) > 0 && rapid.IntRange(0, 5).Draw(t, "again") == 0 {
			_, _ = fmt.Sscanf(rapid.SampledFrom(old).Draw(t, "deleted"), idFormat, &id)
		} else {
			batch[i].Fresh = rapid.Bool().Draw(t, "fresh")
		}
		batch[i].MaxDepth, batch[i].DropOldest = depth, drop
		batch[i].KeepActive = rapid.IntRange(0, 3).Draw(t, "keep active") == 0
		r := &batch[i].Record
		r.ID = fmt.Sprintf(idFormat, id)
		r.Queue, r.Type = rapid.SampledFrom(queueNames).Draw(t, "queue"), rapid.SampledFrom(typeNames).Draw(t, "type")
		r.Priority = rapid.IntRange(-1, 2).Draw(t, "priority")
		r.CreatedAt = w.now.Add(-time.Duration(rapid.IntRange(0, 2).Draw(t, "created")) * time.Second)
		r.Lease, r.Timeout = time.Duration(rapid.IntRange(1, 5).Draw(t, "lease"))*time.Second, time.Minute
		// Half of the jobs have nothing but what most jobs have, which storages may keep in a way of its own.
		usual := rapid.Bool().Draw(t, "usual")
		if !usual {
			r.Meta = map[string]any{"list": []any{1.0}}
		}
		if key := rapid.SampledFrom(append([]string{""}, limitKeys...)).Draw(t, "key"); key != "" && !usual {
			r.RateLimit = &ojs.RateLimit{Key: key}
		}
		if r.Fingerprint = rapid.SampledFrom([]string{"", "f", "g", "h"}).Draw(t, "fingerprint"); r.Fingerprint != "" && rapid.IntRange(0, 4).Draw(t, "no policy") > 0 {
			r.Unique = &ojs.UniquePolicy{
				OnConflict: rapid.SampledFrom([]ojs.Conflict{"", ojs.ConflictIgnore, ojs.ConflictReplace, ojs.ConflictReplaceExceptSchedule}).Draw(t, "conflict"),
				Period:     time.Duration(rapid.IntRange(0, 6).Draw(t, "period")) * time.Second,
			}
			if rapid.Bool().Draw(t, "states") {
				r.Unique.States = some(t, "in states", ojs.AllStates(), 1, 8)
			}
		}
		r.State = rapid.SampledFrom([]ojs.State{ojs.StateAvailable, ojs.StateScheduled, ojs.StatePending}).Draw(t, "state")
		if r.State == ojs.StateScheduled {
			r.ScheduledAt = w.in(t, "scheduled", 1)
		}
		if rapid.Bool().Draw(t, "expires") && !usual {
			r.ExpiresAt = w.in(t, "expires in", 0)
		}
		r.ResultTTL = time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 5}).Draw(t, "result ttl")) * time.Second
		if rapid.IntRange(0, 3).Draw(t, "total") == 0 {
			r.TotalTimeout = 7 * time.Second
			r.Retry.OnExhaustion = ojs.ExhaustionDeadLetter
		}
	}
	want, wantErr := w.ref.Insert(t.Context(), w.now, batch, nil)
	got, err := w.s.Insert(t.Context(), w.now, batch, nil)
	w.same(t, "insert", err, wantErr)
	for i := range min(len(got), len(want)) {
		if id := batch[i].Record.ID; want[i].Version > 0 && got[i].Version > 0 {
			w.ahead[id] = got[i].Version - want[i].Version
			got[i].Version -= w.ahead[id]
		}
	}
	for i := range got {
		got[i].Replaced, got[i].Dropped = w.mine(got[i].Replaced...), w.mine(got[i].Dropped...)
		if got[i].Existing != nil {
			got[i].Existing = &w.mine(*got[i].Existing)[0]
		}
	}
	w.same(t, "insert", got, want)
}

// ask is some claim.
func (w *world) ask(t *rapid.T) storage.Claim {
	skip := w.skips[rapid.IntRange(0, 2).Draw(t, "whose keys")]
	if skip != nil && rapid.Bool().Draw(t, "keys change") {
		now := some(t, "skip", limitKeys, 0, 3)
		for _, key := range limitKeys {
			if slices.Contains(now, key) {
				skip.Add(key)
			} else {
				skip.Remove(key)
			}
		}
	}
	return storage.Claim{
		Queues: some(t, "queues", queueNames, 0, 3), Types: some(t, "types", typeNames, 0, 2), SkipKeys: skip,
		Max: rapid.IntRange(0, 4).Draw(t, "max"), Worker: "w",
	}
}

func (w *world) claim(t *rapid.T) {
	c := w.ask(t)
	want, _ := w.ref.Claim(t.Context(), w.now, c, nil)
	got, err := w.s.Claim(t.Context(), w.now, c, nil)
	w.same(t, "claim", err, nil)
	w.same(t, "claim", w.mine(got...), want)
}

func (w *world) job(t *rapid.T) (storage.Record, bool) {
	if len(w.ref.jobs) == 0 {
		return storage.Record{}, false
	}
	return w.ref.jobs[rapid.IntRange(0, len(w.ref.jobs)-1).Draw(t, "job")].rec.Copy(), true
}

func (w *world) settle(t *rapid.T) {
	var changes, theirs []storage.Change
	for range rapid.IntRange(1, 3).Draw(t, "n") {
		if r, ok := w.job(t); ok {
			c := w.change(t, r, rapid.Bool().Draw(t, "same job"))
			v := w.token(t, r)
			c.Record.Version = v.ref
			changes = append(changes, c)
			c.Record = c.Record.Copy()
			c.Record.Version = v.got
			theirs = append(theirs, c)
		}
	}
	want, _ := w.ref.Settle(t.Context(), w.now, changes, nil)
	got, err := w.s.Settle(t.Context(), w.now, theirs, nil)
	w.same(t, "settle", err, nil)
	w.same(t, "settle", w.settled(got, changes), want)
}

// settled are results of the storage with the versions of the reference.
func (w *world) settled(got []storage.Settled, changes []storage.Change) []storage.Settled {
	for i := range min(len(got), len(changes)) {
		if got[i].Version != 0 {
			got[i].Version -= w.ahead[changes[i].Record.ID]
		}
	}
	return got
}

func (w *world) stepper() storage.SettleClaimer {
	s, _ := settleClaimer(w.s)
	return s
}

func (w *world) settleAndClaim(t *rapid.T) {
	var to, theirs []*storage.Record
	var changes []storage.Change
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		if r, ok := w.job(t); ok {
			c := w.change(t, r, true)
			v := w.token(t, r)
			c.Record.Version = v.ref
			changes = append(changes, c)
			their := c.Record.Copy()
			their.Version = v.got
			to, theirs = append(to, &c.Record), append(theirs, &their)
		}
	}
	c, room := w.ask(t), rapid.IntRange(0, 4).Draw(t, "into")
	into, wanted := used(room), used(room)
	want, most, _ := w.ref.settleAndClaim(t.Context(), w.now, to, nil, c, wanted)
	got, n, err := w.stepper().SettleAndClaim(t.Context(), w.now, theirs, nil, c, into)
	w.same(t, "settle and claim", err, nil)
	w.same(t, "settle and claim: settled", w.settled(got, changes), want)
	w.same(t, "settle and claim: claimed", n, most)
	for i := range n {
		w.same(t, "settle and claim: claimed", w.mine(*into[i])[0], *wanted[i])
	}
}

func (w *world) unclaim(t *rapid.T) {
	var held, theirs []storage.Held
	for _, j := range w.ref.jobs { // an active job that has no attempt was never claimed, but changed
		if j.rec.State == ojs.StateActive && j.rec.Attempt > 0 && rapid.Bool().Draw(t, "undo") {
			held = append(held, heldOf(j.rec))
		}
	}
	if r, ok := w.job(t); ok && (r.State != ojs.StateActive || r.Attempt > 0) {
		r.Version -= uint64(min(rapid.IntRange(0, 1).Draw(t, "stale"), int(r.Version)))
		held = append(held, heldOf(r))
	}
	if r, ok := w.job(t); ok && len(w.gone[r.ID]) > 0 {
		v := rapid.SampledFrom(w.gone[r.ID]).Draw(t, "of a deleted job")
		held = append(held, storage.Held{ID: r.ID, Version: v.got - w.ahead[r.ID]})
	}
	held = rapid.Permutation(append(held, storage.Held{ID: "unknown"})).Draw(t, "order")
	for _, h := range held {
		theirs = append(theirs, storage.Held{ID: h.ID, Version: h.Version + w.ahead[h.ID]})
	}
	want, _ := w.ref.unclaim(t.Context(), held)
	got, err := w.stepper().Unclaim(t.Context(), w.now, theirs)
	w.same(t, "unclaim", err, nil)
	w.same(t, "unclaim", got, want)
}

// change makes some change of a job.
func (w *world) change(t *rapid.T, r storage.Record, sameJob bool) storage.Change {
	r.State = rapid.SampledFrom(ojs.AllStates()).Draw(t, "to")
	if !sameJob {
		r.Priority = rapid.IntRange(-1, 2).Draw(t, "priority")
		if rapid.IntRange(0, 5).Draw(t, "queue changes") == 0 {
			r.Queue = rapid.SampledFrom(queueNames).Draw(t, "queue")
		}
		switch rapid.IntRange(0, 9).Draw(t, "what else changes") {
		case 0:
			r.Type = rapid.SampledFrom(typeNames).Draw(t, "type")
		case 1:
			r.RateLimit = nil
			if key := rapid.SampledFrom(append([]string{""}, limitKeys...)).Draw(t, "key"); key != "" {
				r.RateLimit = &ojs.RateLimit{Key: key}
			}
		case 2:
			r.Fingerprint = rapid.SampledFrom([]string{"", "f", "g", "h"}).Draw(t, "fingerprint")
		case 3:
			r.ExpiresAt = time.Time{}
			if rapid.Bool().Draw(t, "expires") {
				r.ExpiresAt = w.in(t, "expires in", -3)
			}
		case 4:
			r.CreatedAt = w.in(t, "created", -3)
		case 5:
			r.TotalTimeout = time.Duration(rapid.IntRange(0, 9).Draw(t, "total")) * time.Second
		case 6:
			r.Lease = time.Duration(rapid.IntRange(1, 5).Draw(t, "lease")) * time.Second
		case 7:
			r.Unique = &ojs.UniquePolicy{States: ojs.AllStates(), Period: time.Duration(rapid.IntRange(0, 6).Draw(t, "period")) * time.Second}
		}
	}
	r.Progress = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "progress")
	r.NextRetryAt, r.FinishedAt, r.DeadLetteredAt = time.Time{}, time.Time{}, time.Time{}
	if r.State.Terminal() {
		r.FinishedAt = w.now
		if rapid.IntRange(0, 3).Draw(t, "another clock") == 0 {
			r.FinishedAt = w.in(t, "finished", -10)
		}
	}
	switch r.State {
	case ojs.StateRetryable:
		r.NextRetryAt = w.in(t, "next retry", 0)
	case ojs.StateScheduled:
		if !sameJob {
			r.ScheduledAt = w.in(t, "scheduled", 0)
		}
	case ojs.StateDiscarded:
		if rapid.Bool().Draw(t, "dead") {
			r.DeadLetteredAt = w.now
		}
	}
	return storage.Change{Record: r, SameJob: sameJob}
}

func (w *world) extend(t *rapid.T) {
	var xs, theirs []storage.Extension
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		if r, ok := w.job(t); ok {
			v := w.token(t, r)
			x := storage.Extension{Held: storage.Held{ID: r.ID, Version: v.ref}}
			x.Progress = rapid.SampledFrom([]float64{0, 0.25, 0.5, 1}).Draw(t, "progress")
			if rapid.Bool().Draw(t, "checkpoint") {
				x.Checkpoint = fmt.Appendf(nil, "%d", w.ids)
			}
			xs = append(xs, x)
			x.Version = v.got
			theirs = append(theirs, x)
		}
	}
	want, _ := w.ref.Extend(t.Context(), w.now, xs)
	got, err := w.s.Extend(t.Context(), w.now, theirs)
	w.same(t, "extend", err, nil)
	w.same(t, "extend", got, want)
}

func (w *world) due(t *rapid.T) {
	n := rapid.IntRange(0, 5).Draw(t, "max")
	want, _ := w.ref.Due(t.Context(), w.now, n, nil)
	got, err := w.s.Due(t.Context(), w.now, n, make([]storage.Record, 3))
	w.same(t, "due", err, nil)
	w.same(t, "due: promoted", w.mine(got.Promoted...), want.Promoted)
	w.same(t, "due: expired", w.mine(got.Expired...), want.Expired)
	w.same(t, "due: stalled", w.mine(got.Stalled...), want.Stalled)
	if !got.Next.Equal(want.Next) {
		t.Fatalf("due: next %v, want %v", got.Next, want.Next)
	}
}

func (w *world) remove(t *rapid.T) {
	list := []string{"unknown"}
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		if r, ok := w.job(t); ok && !slices.Contains(list, r.ID) && (r.State.Terminal() || rapid.IntRange(0, 9).Draw(t, "wrong") == 0) {
			list = append(list, r.ID)
		}
	}
	var want int
	var wantErr error
	w.deleting(func() { want, wantErr = w.ref.Delete(t.Context(), list) })
	got, err := w.s.Delete(t.Context(), list)
	w.same(t, "delete", got, want)
	w.same(t, "delete", err, wantErr)
}

func (w *world) prune(t *rapid.T) {
	p := storage.Prune{
		Now:         w.now,
		DeadLetters: rapid.Bool().Draw(t, "dead"),
		States:      some(t, "states", []ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded}, 0, 3),
		Beyond:      rapid.IntRange(0, 3).Draw(t, "beyond"),
		Max:         rapid.IntRange(0, 4).Draw(t, "max"),
	}
	if rapid.Bool().Draw(t, "by age") {
		p.Before = w.in(t, "before", -10)
	}
	if rapid.Bool().Draw(t, "spares") {
		p.Spare = w.in(t, "spare", -10)
	}
	var want storage.Pruned
	w.deleting(func() { want, _ = w.ref.Prune(t.Context(), p) })
	got, err := w.s.Prune(t.Context(), p)
	w.same(t, "prune", err, nil)
	w.same(t, "pruned", got.IDs, want.IDs)
	if got.Left != want.Left || !got.Oldest.Equal(want.Oldest) {
		t.Fatalf("prune %+v: %+v, want %+v", p, got, want)
	}
}

func (w *world) queue(t *rapid.T) {
	qs, _ := queueStore(w.s)
	name := rapid.SampledFrom(queueNames).Draw(t, "queue")
	to := rapid.SampledFrom([]ojs.QueueState{ojs.QueueActive, ojs.QueuePaused, ojs.QueueDraining}).Draw(t, "state")
	want, _ := w.ref.SetQueueState(t.Context(), name, to)
	got, err := qs.SetQueueState(t.Context(), name, to)
	w.same(t, "queue state", err, nil)
	w.same(t, "queue state before", got, want)
}

// compare looks at everything that can be looked at.
func (w *world) compare(t *rapid.T) {
	ctx := t.Context()
	for _, j := range w.ref.jobs {
		got, err := w.s.Get(ctx, j.rec.ID)
		w.same(t, "get", err, nil)
		w.same(t, "get", w.mine(got)[0], j.rec)
	}
	counts := func(s storage.Storage) map[storage.Count]bool {
		list, err := s.Counts(ctx)
		w.same(t, "counts", err, nil)
		set := make(map[storage.Count]bool)
		for _, c := range list {
			set[c] = true
		}
		return set
	}
	w.same(t, "counts", counts(w.s), counts(w.ref))
	for _, q := range []storage.Query{
		{Limit: 3}, {DeadLetters: true, Limit: 2}, {Queues: []string{"a"}, Types: []string{"y"}}, {States: []ojs.State{ojs.StateAvailable}, Limit: 1},
		{CreatedFrom: epoch.Add(3 * time.Second), Limit: 2}, {CreatedBefore: epoch.Add(3 * time.Second)},
		{FinishedFrom: epoch.Add(2 * time.Second), FinishedBefore: epoch.Add(9 * time.Second), Limit: 1},
		{ErrorTypes: []string{"total*"}}, {Types: []string{"*"}, ErrorTypes: []string{"queue_overflow", "expired"}},
	} {
		w.same(t, fmt.Sprintf("list %+v", q), w.mine(w.list(t, w.s, q)...), w.list(t, w.ref, q))
	}
	_, err := w.s.Get(ctx, "unknown")
	w.same(t, "get of nothing", errors.Is(err, ojs.ErrNotFound), true)
}

func (w *world) list(t *rapid.T, s storage.Storage, q storage.Query) (out []storage.Record) {
	for pages := 0; ; pages++ {
		page, err := s.List(t.Context(), q)
		w.same(t, "list", err, nil)
		if q.Limit > 0 && len(page.Records) > q.Limit || pages > 10_000 {
			t.Fatalf("page %d of %d jobs, limit %d", pages, len(page.Records), q.Limit)
		}
		out = append(out, page.Records...)
		if page.Next == "" {
			return out
		}
		q.Cursor = page.Next
	}
}

// same compares what a storage answers with what the reference does. Errors are compared by what programs see of them.
func (w *world) same(t *rapid.T, what string, got, want any) {
	t.Helper()
	if d := fields.Diff(w.normal(got), w.normal(want)); len(d) > 0 {
		t.Fatalf("%s:\n%s", what, strings.Join(d, "\n"))
	}
}

func (w *world) normal(v any) any {
	records := func(list []storage.Record) (out []storage.Record) {
		for _, r := range list {
			out = append(out, w.cfg.normal(r))
		}
		return out
	}
	switch v := v.(type) {
	case storage.Record:
		return w.cfg.normal(v)
	case []storage.Record:
		return records(v)
	case []string:
		return append([]string(nil), v...)
	case []storage.Inserted:
		var out []storage.Inserted
		for _, in := range v {
			in.Replaced, in.Dropped = records(in.Replaced), records(in.Dropped)
			if in.Existing != nil {
				r := w.cfg.normal(*in.Existing)
				in.Existing = &r
			}
			out = append(out, in)
		}
		return out
	case []storage.Settled:
		var out []any
		for _, s := range v {
			out = append(out, s.Version, w.normal(s.Err))
		}
		return out
	case error:
		var dup *ojs.DuplicateError
		var full *ojs.QueueError
		var bad *ojs.TransitionError
		switch {
		case errors.As(v, &dup):
			return *dup
		case errors.As(v, &full):
			return *full
		case errors.As(v, &bad):
			return *bad
		}
		for _, known := range []error{storage.ErrFenced, ojs.ErrNotFound, ojs.ErrInvalid} {
			if errors.Is(v, known) {
				return known
			}
		}
		return v.Error()
	}
	return v
}
