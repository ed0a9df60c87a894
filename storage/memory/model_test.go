package memory_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// model is the contract of a storage at its plainest: a list that every call goes through from the start.
type model struct {
	jobs   []*modelJob // by insertion
	seq    int
	states map[string]ojs.QueueState // of queues that are not active
}

type modelJob struct {
	rec     storage.Record
	entered int // when it became available, or changed its place
	since   int // when it last began to wait for a time
	died    int
	ended   int
}

func (m *model) find(id string) *modelJob {
	for _, j := range m.jobs {
		if j.rec.ID == id {
			return j
		}
	}
	return nil
}

func (m *model) placed(j *modelJob, keepsPlace bool) {
	m.seq++
	j.since = m.seq
	if !keepsPlace {
		j.entered = m.seq
	}
	switch {
	case !j.rec.State.Terminal():
		j.ended = 0
	case j.ended == 0:
		j.ended = m.seq
	}
	switch {
	case !j.rec.DeadLettered():
		j.died = 0
	case j.died == 0:
		j.died = m.seq
	}
}

func (m *model) insert(now time.Time, batch []storage.Insert) ([]storage.Inserted, error) {
	for i, in := range batch {
		if j := m.find(in.Record.ID); j != nil {
			return nil, &ojs.DuplicateError{ID: in.Record.ID, State: j.rec.State}
		}
		for _, other := range batch[:i] {
			if other.Record.ID == in.Record.ID {
				return nil, &ojs.DuplicateError{ID: in.Record.ID, State: in.Record.State}
			}
		}
	}
	trial := &model{seq: m.seq, states: m.states}
	for _, j := range m.jobs {
		c := *j
		trial.jobs = append(trial.jobs, &c)
	}
	results, err := trial.insertAll(now, batch)
	if err != nil {
		return nil, err
	}
	*m = *trial
	return results, nil
}

// insertAll does a batch one by one, on a copy that an error throws away.
func (m *model) insertAll(now time.Time, batch []storage.Insert) ([]storage.Inserted, error) {
	results := make([]storage.Inserted, len(batch))
	mine := make(map[*modelJob]bool)
	at := make([]*modelJob, len(batch))
	for i, in := range batch {
		r := in.Record
		if r.Fingerprint != "" && r.Unique != nil {
			taken, err := m.unique(now, r, &results[i])
			if err != nil {
				return nil, err
			}
			if taken {
				continue
			}
		}
		j := &modelJob{rec: r.Copy()}
		j.rec.Version = 1
		m.jobs = append(m.jobs, j)
		m.placed(j, false)
		mine[j], at[i] = true, j
		results[i].Version = 1
	}
	for _, in := range batch {
		if m.states[in.Record.Queue] == ojs.QueueDraining {
			return nil, &ojs.QueueError{Queue: in.Record.Queue, Err: ojs.ErrQueueDraining}
		}
	}
	excess := make(map[string]int)
	var full []string
	last := make(map[string]int)
	for i, in := range batch {
		q := in.Record.Queue
		if at[i] == nil || at[i].rec.State.Terminal() || in.MaxDepth == 0 {
			continue
		}
		over := m.live(q) - in.MaxDepth
		for _, later := range at[i+1:] {
			if later != nil && later.rec.Queue == q && !later.rec.State.Terminal() {
				over--
			}
		}
		if over <= 0 {
			continue
		}
		if !in.DropOldest {
			return nil, &ojs.QueueError{Queue: q, MaxDepth: in.MaxDepth, Err: ojs.ErrQueueFull}
		}
		if excess[q] == 0 {
			full = append(full, q)
		}
		excess[q] = max(excess[q], over)
		last[q] = i
	}
	for _, q := range full {
		n := excess[q]
		var oldest []*modelJob
		for _, j := range m.jobs {
			if j.rec.Queue == q && j.rec.State == ojs.StateAvailable && !j.rec.Expired(now) && !mine[j] {
				oldest = append(oldest, j)
			}
		}
		if len(oldest) < n {
			return nil, &ojs.QueueError{Queue: q, MaxDepth: batch[0].MaxDepth, Err: ojs.ErrQueueFull}
		}
		sort.Slice(oldest, func(a, b int) bool { return oldest[a].entered < oldest[b].entered })
		for _, j := range oldest[:n] {
			j.rec.Drop(now)
			m.placed(j, false)
			results[last[q]].Dropped = append(results[last[q]].Dropped, j.rec.Copy())
		}
	}
	for i, in := range batch {
		if in.MaxDepth > 0 {
			results[i].Depth = m.live(in.Record.Queue)
		}
	}
	return results, nil
}

// unique resolves the conflict of a record with what is there. It reports whether the record is not to be stored.
func (m *model) unique(now time.Time, r storage.Record, result *storage.Inserted) (bool, error) {
	var inWay []*modelJob // the newest last
	for _, j := range m.jobs {
		if j.rec.Fingerprint == r.Fingerprint && r.Unique.Counts(j.rec.State, j.rec.CreatedAt, now) {
			inWay = append(inWay, j)
		}
	}
	sort.SliceStable(inWay, func(a, b int) bool { return inWay[a].rec.CreatedAt.Before(inWay[b].rec.CreatedAt) })
	if len(inWay) == 0 {
		return false, nil
	}
	newest := inWay[len(inWay)-1]
	var takes *modelJob
	switch r.Unique.Strategy() {
	case ojs.ConflictReject:
		return false, &ojs.DuplicateError{ID: newest.rec.ID, State: newest.rec.State, Fingerprint: r.Fingerprint}
	case ojs.ConflictIgnore:
		c := newest.rec.Copy()
		result.Existing = &c
		return true, nil
	case ojs.ConflictReplaceExceptSchedule:
		for _, j := range inWay {
			if j.rec.State == ojs.StateScheduled {
				takes = j
			}
		}
	}
	for _, j := range inWay {
		if j != takes && !j.rec.State.Terminal() {
			j.rec.Cancel(now)
			m.placed(j, false)
			result.Replaced = append(result.Replaced, j.rec.Copy())
		}
	}
	if takes == nil {
		return false, nil
	}
	c := r.Copy()
	takes.rec.Update(&c)
	c = takes.rec.Copy()
	result.Existing, result.Updated = &c, true
	return true, nil
}

func (m *model) live(queue string) (n int) {
	for _, j := range m.jobs {
		if j.rec.Queue == queue && !j.rec.State.Terminal() {
			n++
		}
	}
	return n
}

func (m *model) prune(p storage.Prune) (out storage.Pruned) {
	for {
		var sel []*modelJob
		for _, j := range m.jobs {
			if j.rec.State.Terminal() && j.rec.DeadLettered() == p.DeadLetters && (len(p.States) == 0 || slices.Contains(p.States, j.rec.State)) {
				sel = append(sel, j)
			}
		}
		sort.Slice(sel, func(a, b int) bool { return sel[a].ended < sel[b].ended })
		out.Oldest = time.Time{}
		if len(sel) == 0 {
			return out
		}
		out.Oldest = sel[0].rec.FinishedAt
		old := sel[0].rec.FinishedAt.Before(p.Before)
		if out.N == p.Max || !old && (p.Beyond == 0 || len(sel) <= p.Beyond) {
			return out
		}
		m.remove([]string{sel[0].rec.ID})
		out.N++
	}
}

func (m *model) claim(now time.Time, c storage.Claim) (out []storage.Record) {
	queues := c.Queues
	if len(queues) == 0 {
		queues = []string{""}
	}
	for _, q := range queues {
		for len(out) < c.Max {
			var best *modelJob
			for _, j := range m.jobs {
				if j.rec.State != ojs.StateAvailable || j.rec.Expired(now) || q != "" && j.rec.Queue != q || m.states[j.rec.Queue] == ojs.QueuePaused ||
					j.rec.RateLimit != nil && slices.Contains(c.SkipKeys, j.rec.RateLimit.Key) ||
					len(c.Types) > 0 && !slices.Contains(c.Types, j.rec.Type) {
					continue
				}
				if best == nil || j.rec.Priority > best.rec.Priority || j.rec.Priority == best.rec.Priority && j.entered < best.entered {
					best = j
				}
			}
			if best == nil {
				break
			}
			best.rec.Claim(now, c.Worker)
			m.placed(best, false)
			out = append(out, best.rec.Copy())
		}
	}
	return out
}

func (m *model) settle(to storage.Record) storage.Settled {
	j := m.find(to.ID)
	if j == nil {
		return storage.Settled{Err: ojs.ErrNotFound}
	}
	if j.rec.Version != to.Version {
		return storage.Settled{Version: j.rec.Version, Err: storage.ErrFenced}
	}
	from := j.rec
	if !(from.State == to.State && from.State.Waiting()) && !from.State.CanBecome(to.State) {
		return storage.Settled{Version: from.Version, Err: &ojs.TransitionError{ID: to.ID, From: from.State, To: to.State}}
	}
	j.rec = to.Copy()
	j.rec.Version++
	m.placed(j, from.State == to.State && from.Queue == to.Queue && from.Priority == to.Priority)
	return storage.Settled{Version: j.rec.Version}
}

func (m *model) extend(now time.Time, held []storage.Extension) (lost []string) {
	for _, h := range held {
		if j := m.find(h.ID); j != nil && j.rec.State == ojs.StateActive && j.rec.Version == h.Version {
			j.rec.Extend(now, h)
			m.seq++
			j.since = m.seq
			continue
		}
		lost = append(lost, h.ID)
	}
	return lost
}

func (m *model) waiting() []*modelJob {
	var ws []*modelJob
	for _, j := range m.jobs {
		if !j.rec.WakeAt().IsZero() {
			ws = append(ws, j)
		}
	}
	sort.Slice(ws, func(a, b int) bool {
		if at, bt := ws[a].rec.WakeAt(), ws[b].rec.WakeAt(); !at.Equal(bt) {
			return at.Before(bt)
		}
		return ws[a].since < ws[b].since
	})
	return ws
}

func (m *model) due(now time.Time, max int) (d storage.Due) {
	for range max {
		ws := m.waiting()
		if len(ws) == 0 || ws[0].rec.WakeAt().After(now) {
			break
		}
		j := ws[0]
		switch {
		case j.rec.Expired(now):
			j.rec.Expire(now)
			d.Expired = append(d.Expired, j.rec.Copy())
		case j.rec.State == ojs.StateActive:
			j.rec.Reclaim(now)
			d.Stalled = append(d.Stalled, j.rec.Copy())
		default:
			j.rec.Promote(now)
			d.Promoted = append(d.Promoted, j.rec.Copy())
		}
		m.placed(j, false)
	}
	if ws := m.waiting(); len(ws) > 0 {
		d.Next = ws[0].rec.WakeAt()
	}
	return d
}

func (m *model) list(q storage.Query) (out []storage.Record) {
	jobs := slices.Clone(m.jobs)
	if q.DeadLetters {
		jobs = slices.DeleteFunc(jobs, func(j *modelJob) bool { return j.died == 0 })
		sort.Slice(jobs, func(a, b int) bool { return jobs[a].died < jobs[b].died })
	}
	for _, j := range jobs {
		if q.Matches(&j.rec.JobInfo) {
			out = append(out, j.rec.Copy())
		}
	}
	return out
}

func (m *model) remove(ids []string) (int, error) {
	for _, id := range ids {
		if j := m.find(id); j != nil && !j.rec.State.Terminal() {
			return 0, &ojs.TransitionError{ID: id, From: j.rec.State, To: "deleted"}
		}
	}
	before := len(m.jobs)
	m.jobs = slices.DeleteFunc(m.jobs, func(j *modelJob) bool { return slices.Contains(ids, j.rec.ID) })
	return before - len(m.jobs), nil
}

// A storage does what the model does, whatever is asked of it.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{s: memory.New(), m: &model{states: make(map[string]ojs.QueueState)}, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		defer w.s.Close()
		t.Repeat(map[string]func(*rapid.T){
			"insert": w.insert,
			"claim":  w.claim,
			"settle": w.settle,
			"extend": w.extend,
			"due":    w.due,
			"delete": w.remove,
			"prune":  w.prune,
			"queue":  w.queue,
			"time":   func(t *rapid.T) { w.now = w.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "s")) * time.Second) },
			"":       w.check,
		})
	})
}

// world is a storage and its model, which the same things happen to.
type world struct {
	s   *memory.Storage
	m   *model
	now time.Time
	ids int
}

var (
	queueNames = []string{"a", "b", "c"}
	typeNames  = []string{"x", "y"}
)

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
		}
		r := &batch[i].Record
		r.ID = fmt.Sprint("job", id)
		r.Queue, r.Type = rapid.SampledFrom(queueNames).Draw(t, "queue"), rapid.SampledFrom(typeNames).Draw(t, "type")
		r.Priority = rapid.IntRange(-1, 2).Draw(t, "priority")
		r.CreatedAt, r.Lease = w.now, time.Duration(rapid.IntRange(1, 5).Draw(t, "lease"))*time.Second
		r.Meta = map[string]any{"list": []any{1.0}}
		if r.Fingerprint = rapid.SampledFrom([]string{"", "f", "g", "h"}).Draw(t, "fingerprint"); r.Fingerprint != "" && rapid.IntRange(0, 4).Draw(t, "no policy") > 0 {
			r.Unique = &ojs.UniquePolicy{
				OnConflict: rapid.SampledFrom([]ojs.Conflict{"", ojs.ConflictIgnore, ojs.ConflictReplace, ojs.ConflictReplaceExceptSchedule}).Draw(t, "conflict"),
				Period:     time.Duration(rapid.IntRange(0, 6).Draw(t, "period")) * time.Second,
			}
			if rapid.Bool().Draw(t, "states") {
				r.Unique.States = rapid.SliceOfNDistinct(rapid.SampledFrom(ojs.AllStates()), 1, 8, rapid.ID[ojs.State]).Draw(t, "in states")
			}
		}
		batch[i].MaxDepth, batch[i].DropOldest = depth, drop
		if key := rapid.SampledFrom([]string{"", "k", "l", "m"}).Draw(t, "key"); key != "" {
			r.RateLimit = &ojs.RateLimit{Key: key}
		}
		r.State = rapid.SampledFrom([]ojs.State{ojs.StateAvailable, ojs.StateScheduled, ojs.StatePending}).Draw(t, "state")
		if r.State == ojs.StateScheduled {
			r.ScheduledAt = w.in(t, "scheduled", 1)
		}
		if rapid.Bool().Draw(t, "expires") {
			r.ExpiresAt = w.in(t, "expires in", 0)
		}
		if rapid.IntRange(0, 3).Draw(t, "total") == 0 {
			r.TotalTimeout = 7 * time.Second
			r.Retry.OnExhaustion = ojs.ExhaustionDeadLetter
		}
	}
	got, err := w.s.Insert(t.Context(), w.now, batch, nil)
	want, wantErr := w.m.insert(w.now, batch)
	same(t, "insert", err, wantErr)
	same(t, "insert", got, want)
	for i := range batch { // the storage keeps a copy
		batch[i].Record.Meta["list"].([]any)[0] = "changed"
	}
}

func (w *world) claim(t *rapid.T) {
	c := storage.Claim{
		Queues:   rapid.SliceOfNDistinct(rapid.SampledFrom(queueNames), 0, 3, rapid.ID[string]).Draw(t, "queues"),
		Types:    rapid.SliceOfNDistinct(rapid.SampledFrom(typeNames), 0, 2, rapid.ID[string]).Draw(t, "types"),
		SkipKeys: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"k", "l", "m"}), 0, 3, rapid.ID[string]).Draw(t, "skip"),
		Max:      rapid.IntRange(0, 4).Draw(t, "max"), Worker: "w",
	}
	got, err := w.s.Claim(t.Context(), w.now, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "claim", got, w.m.claim(w.now, c))
	for i := range got { // what it hands out is a copy
		got[i].Meta["list"].([]any)[0] = "changed"
	}
}

func (w *world) job(t *rapid.T) (storage.Record, bool) {
	if len(w.m.jobs) == 0 {
		return storage.Record{}, false
	}
	return rapid.SampledFrom(w.m.jobs).Draw(t, "job").rec.Copy(), true
}

func (w *world) settle(t *rapid.T) {
	r, ok := w.job(t)
	if !ok {
		return
	}
	r.State = rapid.SampledFrom(ojs.AllStates()).Draw(t, "to")
	r.Priority = rapid.IntRange(-1, 2).Draw(t, "priority")
	if rapid.IntRange(0, 5).Draw(t, "queue changes") == 0 {
		r.Queue = rapid.SampledFrom(queueNames).Draw(t, "queue")
	}
	if rapid.IntRange(0, 5).Draw(t, "stale") == 0 {
		r.Version -= min(1, r.Version)
	}
	r.NextRetryAt, r.FinishedAt, r.DeadLetteredAt = time.Time{}, time.Time{}, time.Time{}
	if r.State.Terminal() {
		r.FinishedAt = w.now
	}
	switch r.State {
	case ojs.StateRetryable:
		r.NextRetryAt = w.in(t, "next retry", 0)
	case ojs.StateScheduled:
		r.ScheduledAt = w.in(t, "scheduled", 0)
	case ojs.StateDiscarded:
		if rapid.Bool().Draw(t, "dead") {
			r.DeadLetteredAt = w.now
		}
	}
	got, err := w.s.Settle(t.Context(), w.now, []storage.Change{{Record: r}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "settle", got[0], w.m.settle(r))
}

func (w *world) extend(t *rapid.T) {
	var held []storage.Extension
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		if r, ok := w.job(t); ok {
			x := storage.Extension{Held: storage.Held{ID: r.ID, Version: r.Version - uint64(min(rapid.IntRange(0, 1).Draw(t, "stale"), int(r.Version)))}}
			x.Progress = rapid.SampledFrom([]float64{0, 0.25, 0.5, 1}).Draw(t, "progress")
			if rapid.Bool().Draw(t, "checkpoint") {
				x.Checkpoint = fmt.Appendf(nil, "%d", w.ids)
			}
			held = append(held, x)
		}
	}
	got, err := w.s.Extend(t.Context(), w.now, held)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "extend", got, w.m.extend(w.now, held))
}

func (w *world) prune(t *rapid.T) {
	p := storage.Prune{
		DeadLetters: rapid.Bool().Draw(t, "dead"),
		States:      rapid.SliceOfNDistinct(rapid.SampledFrom([]ojs.State{ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded}), 0, 3, rapid.ID[ojs.State]).Draw(t, "states"),
		Beyond:      rapid.IntRange(0, 3).Draw(t, "beyond"),
		Max:         rapid.IntRange(0, 4).Draw(t, "max"),
	}
	if rapid.Bool().Draw(t, "by age") {
		p.Before = w.in(t, "before", -10)
	}
	got, err := w.s.Prune(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	same(t, fmt.Sprintf("prune %+v", p), got, w.m.prune(p))
}

func (w *world) queue(t *rapid.T) {
	name := rapid.SampledFrom(queueNames).Draw(t, "queue")
	to := rapid.SampledFrom([]ojs.QueueState{ojs.QueueActive, ojs.QueuePaused, ojs.QueueDraining}).Draw(t, "state")
	was, err := w.s.SetQueueState(t.Context(), name, to)
	if err != nil {
		t.Fatal(err)
	}
	want := w.m.states[name]
	if want == "" {
		want = ojs.QueueActive
	}
	same(t, "state before", was, want)
	if w.m.states[name] = to; to == ojs.QueueActive {
		delete(w.m.states, name)
	}
	got, err := w.s.QueueStates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "states", got, w.m.states)
}

func (w *world) due(t *rapid.T) {
	n := rapid.IntRange(0, 5).Draw(t, "max")
	got, err := w.s.Due(t.Context(), w.now, n)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "due", got, w.m.due(w.now, n))
}

func (w *world) remove(t *rapid.T) {
	var ids []string
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		if r, ok := w.job(t); ok && !slices.Contains(ids, r.ID) && (r.State.Terminal() || rapid.IntRange(0, 9).Draw(t, "wrong") == 0) {
			ids = append(ids, r.ID)
		}
	}
	got, gotErr := w.s.Delete(t.Context(), append(ids, "unknown"))
	want, wantErr := w.m.remove(ids)
	same(t, "delete", got, want)
	same(t, "delete", gotErr, wantErr)
}

// check compares everything that can be looked at.
func (w *world) check(t *rapid.T) {
	ctx := t.Context()
	counts := make(map[storage.Count]bool)
	for _, j := range w.m.jobs {
		got, err := w.s.Get(ctx, j.rec.ID)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "get", got, j.rec)
		c := storage.Count{Queue: j.rec.Queue, State: j.rec.State}
		for _, k := range w.m.jobs {
			if k.rec.Queue == c.Queue && k.rec.State == c.State {
				c.N++
			}
		}
		counts[c] = true
	}
	got, err := w.s.Counts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range got {
		if !counts[c] {
			t.Fatalf("counts %v, want %v", got, counts)
		}
		delete(counts, c)
	}
	if len(counts) > 0 {
		t.Fatalf("counts %v lack %v", got, counts)
	}
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, q := range []storage.Query{
		{CreatedFrom: start.Add(3 * time.Second), Limit: 2}, {CreatedBefore: start.Add(3 * time.Second)},
		{FinishedFrom: start.Add(2 * time.Second), FinishedBefore: start.Add(9 * time.Second), Limit: 1},
		{ErrorTypes: []string{"total*"}}, {Types: []string{"*"}, ErrorTypes: []string{"queue_overflow", "expired"}},
		{Limit: 3}, {DeadLetters: true, Limit: 2}, {Queues: []string{"a"}, Types: []string{"y"}}, {States: []ojs.State{ojs.StateAvailable}, Limit: 1},
	} {
		same(t, fmt.Sprintf("list %+v", q), pages(t, w.s, q), w.m.list(q))
	}
	if _, err := w.s.Get(ctx, "unknown"); !errors.Is(err, ojs.ErrNotFound) {
		t.Fatalf("get of nothing: %v", err)
	}
}

func pages(t *rapid.T, s storage.Storage, q storage.Query) (out []storage.Record) {
	for {
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if q.Limit > 0 && len(page.Records) > q.Limit {
			t.Fatalf("a page of %d, limit %d", len(page.Records), q.Limit)
		}
		out = append(out, page.Records...)
		if page.Next == "" {
			return out
		}
		q.Cursor = page.Next
	}
}

func same(t *rapid.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}
