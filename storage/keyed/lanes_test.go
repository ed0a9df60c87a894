package keyed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
	"github.com/ojsengine/ojs/storage/memory"
)

// metered counts what transactions read and write.
type metered struct {
	driver.DB
	reads, pairs, writes atomic.Int64 // calls of Get and Scan, what these returned, and writes
}

func (m *metered) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	tx, err := m.DB.Begin(ctx, write)
	if err != nil {
		return nil, err
	}
	return &meteredTx{tx, m}, nil
}

type meteredTx struct {
	driver.Tx
	m *metered
}

func (t *meteredTx) Get(keys, dst [][]byte) ([][]byte, error) {
	t.m.reads.Add(1)
	t.m.pairs.Add(int64(len(keys)))
	return t.Tx.Get(keys, dst)
}

func (t *meteredTx) Scan(from, to []byte, max int, reverse bool, dst []driver.Pair) ([]driver.Pair, error) {
	pairs, err := t.Tx.Scan(from, to, max, reverse, dst)
	t.m.reads.Add(1)
	t.m.pairs.Add(int64(len(pairs) - len(dst)))
	return pairs, err
}

func (t *meteredTx) Peek(from, to []byte, max int, dst []driver.Pair) ([]driver.Pair, error) {
	pairs, err := t.Tx.Peek(from, to, max, dst)
	t.m.reads.Add(1)
	t.m.pairs.Add(int64(len(pairs) - len(dst)))
	return pairs, err
}

func (t *meteredTx) Commit(writes []driver.Pair) error {
	t.m.writes.Add(int64(len(writes)))
	return t.Tx.Commit(writes)
}

// cost is what calls have read and written.
type cost struct{ reads, pairs, writes int64 }

func (m *metered) of(f func()) cost {
	before := cost{m.reads.Load(), m.pairs.Load(), m.writes.Load()}
	f()
	return cost{m.reads.Load() - before.reads, m.pairs.Load() - before.pairs, m.writes.Load() - before.writes}
}

// laneWorld is a storage over a store that counts.
type laneWorld struct {
	testing.TB
	*metered
	*keyed.Storage
	now time.Time
	n   int // jobs so far
}

func openLanes(tb testing.TB) *laneWorld {
	w := &laneWorld{TB: tb, metered: &metered{DB: drivertest.NewMemory(false, driver.Limits{})}, now: now}
	s, err := keyed.Open(w.metered, "keyed")
	if err != nil {
		tb.Fatal(err)
	}
	w.Storage = s
	return w
}

// job is a new available job, with a limit unless its key is empty.
func (w *laneWorld) job(limit ojs.RateLimit, change ...func(*storage.Record)) storage.Insert {
	w.n++
	var r storage.Record
	r.ID, r.Type, r.Queue = fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", w.n), "x", "q"
	r.State, r.CreatedAt, r.Lease, r.Timeout = ojs.StateAvailable, w.now, time.Hour, time.Hour
	if limit.Key != "" {
		r.RateLimit = &limit
	}
	for _, f := range change {
		f(&r)
	}
	return storage.Insert{Record: r}
}

func (w *laneWorld) insert(batch ...storage.Insert) (ids []string) {
	w.Helper()
	if _, err := w.Storage.Insert(w.Context(), w.now, batch, nil); err != nil {
		w.Fatal(err)
	}
	for i := range batch {
		ids = append(ids, batch[i].Record.ID)
	}
	return ids
}

func (w *laneWorld) claim(max int) ([]storage.Record, *storage.Limited) {
	w.Helper()
	done := new(storage.Limited)
	recs, err := w.Claim(w.Context(), w.now, storage.Claim{Max: max, Worker: "w", Limits: done}, nil)
	if err != nil {
		w.Fatal(err)
	}
	return recs, done
}

// wants claims up to max jobs and wants these.
func (w *laneWorld) wants(max int, want ...string) *storage.Limited {
	w.Helper()
	recs, done := w.claim(max)
	if got := idsOf(recs); !slices.Equal(got, want) {
		w.Fatalf("claimed %q, not %q", got, want)
	}
	return done
}

func idsOf(recs []storage.Record) (ids []string) {
	for i := range recs {
		ids = append(ids, recs[i].ID)
	}
	return ids
}

func (w *laneWorld) complete(recs ...storage.Record) {
	w.Helper()
	changes := make([]storage.Change, len(recs))
	for i, r := range recs {
		r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, w.now, time.Time{}
		changes[i] = storage.Change{Record: r, AttemptFieldsOnly: true}
	}
	out, err := w.Settle(w.Context(), w.now, changes, nil)
	if err != nil {
		w.Fatal(err)
	}
	for i := range out {
		if out[i].Err != nil {
			w.Fatal(out[i].Err)
		}
	}
}

func once(key string, n int) ojs.RateLimit { return ojs.RateLimit{Key: key, Concurrency: n} }

// TestClosedKeysCostAClaimNothing: however many keys are full, a claim reads no more than
// if they are open, and as much as behind a few.
func TestClosedKeysCostAClaimNothing(t *testing.T) {
	ask := func(keys, bound int) (costs []cost) {
		w := openLanes(t)
		for from := 0; from < keys; from += 500 {
			var batch []storage.Insert
			for i := from; i < min(keys, from+500); i++ {
				key := fmt.Sprint("key", i)
				batch = append(batch, w.job(once(key, bound)), w.job(once(key, bound),
					func(r *storage.Record) { r.Type = "other" }), w.job(once(key, bound)))
			}
			w.insert(batch...)
		}
		first, err := w.Claim(t.Context(), now, storage.Claim{Max: keys, Types: []string{"other"},
			Limits: new(storage.Limited)}, nil)
		if err != nil || len(first) != keys {
			t.Fatal(len(first), err)
		}
		for range 3 { // the first claim, and then others
			free := w.job(ojs.RateLimit{}, func(r *storage.Record) { r.Priority = -1 })
			w.insert(free)
			want := free.Record.ID
			if bound > 1 {
				want = ""
			}
			costs = append(costs, w.of(func() {
				recs, _ := w.claim(1)
				if len(recs) != 1 || want != "" && recs[0].ID != want {
					t.Fatalf("claimed %v", idsOf(recs))
				}
			}))
		}
		costs = append(costs, w.of(func() { // behind the last free one nothing is left
			if recs, done := w.claim(9); bound == 1 && (len(recs) != 0 || !done.Held) {
				t.Fatalf("claimed %v, held %v", idsOf(recs), done.Held)
			}
		}))
		return costs
	}
	few, many, open := ask(10, 1), ask(500, 1), ask(500, 3)
	for i := range few {
		if many[i] != few[i] {
			t.Errorf("claim %d behind 500 full keys costs %+v, and %+v behind 10", i, many[i], few[i])
		}
	}
	for i := range 3 {
		if many[i].pairs > open[i].pairs || many[i].reads > open[i].reads || many[i].writes > open[i].writes {
			t.Errorf("claim %d costs %+v behind full keys, and %+v if they are open", i, many[i], open[i])
		}
	}
}

// TestWritesOfALimitedJob: a job with a limit writes at most 1.3 times as much as one
// without, alone and in batches.
func TestWritesOfALimitedJob(t *testing.T) {
	for _, of := range []struct {
		name       string
		jobs, size int
		key        func(i int) string
	}{
		{"alone", 20, 1, func(int) string { return "k" }},
		{"alone, with keys of their own", 20, 1, func(i int) string { return fmt.Sprint("k", i%10) }},
		{"a batch of one key", 300, 100, func(int) string { return "k" }},
		{"a batch of many keys", 300, 100, func(i int) string { return fmt.Sprint("k", i%100) }},
	} {
		life := func(key func(i int) string) (sum cost) {
			w := openLanes(t)
			for from := 0; from < of.jobs; from += of.size {
				var batch []storage.Insert
				for i := range of.size {
					var limit ojs.RateLimit
					if key != nil {
						limit = once(key(from+i), 100)
					}
					batch = append(batch, w.job(limit))
				}
				sum = w.of(func() { // of the last round: the keys are known
					w.insert(batch...)
					recs, _ := w.claim(of.size)
					w.complete(recs...)
				})
			}
			return sum
		}
		plain, limited := life(nil), life(of.key)
		t.Logf("%s: %+v, with limits %+v", of.name, plain, limited)
		if float64(limited.writes) > 1.3*float64(plain.writes) {
			t.Errorf("%s: %d writes, and %d without limits", of.name, limited.writes, plain.writes)
		}
	}
}

// TestExpiredHeads: the first job of a lane holds up none behind it after its deadline. A
// clock that goes back to before the deadline finds the job in its place.
func TestExpiredHeads(t *testing.T) {
	w := openLanes(t)
	soon := func(r *storage.Record) { r.ExpiresAt = w.now.Add(time.Second) }
	ids := w.insert(w.job(once("k", 2), soon), w.job(once("k", 2), soon), w.job(once("k", 2)),
		w.job(once("k", 2)), w.job(once("k", 2)))
	w.now = w.now.Add(time.Minute)
	w.wants(1, ids[2])
	w.now = w.now.Add(-time.Minute)
	w.wants(9, ids[0])
	w.now = w.now.Add(time.Minute)
	w.wants(9)
	keyed.CheckLanes(t, w.Storage)
	if d, err := w.Due(t.Context(), w.now, 9, nil); err != nil || len(d.Expired) != 1 {
		t.Fatal(d.Expired, err)
	}
	w.wants(9)
	keyed.CheckLanes(t, w.Storage)
}

// TestClockBackBeforeTheEndOfASetting: a job may start under a setting that a later call
// has found ended.
func TestClockBackBeforeTheEndOfASetting(t *testing.T) {
	w := openLanes(t)
	k := storage.LimitName{Kind: storage.LimitKey, Name: "k"}
	if err := w.SetLimit(t.Context(), w.now, k, once("", 3), w.now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	ids := w.insert(w.job(once("k", 1)), w.job(once("k", 1)), w.job(once("k", 1)))
	w.wants(1, ids[0])
	w.now = w.now.Add(time.Minute)
	if done := w.wants(9); !done.Held {
		t.Error("no limit holds a job back, and one does")
	}
	w.now = w.now.Add(-time.Second)
	w.wants(1, ids[1])
	w.now = w.now.Add(30 * 24 * time.Hour)
	w.wants(9)
	ready := w.of(func() { w.wants(9) })
	w.insert(w.job(once("k", 1)))
	if again := w.of(func() { w.wants(9) }); again != ready {
		t.Errorf("a claim long after the setting has ended costs %+v, not %+v", again, ready)
	}
}

// TestOpensBeforeTheEndOfASetting: a claim whose clock is before the end of a setting
// tells of that end, though a later call has found the lane closed without it [limit-15].
func TestOpensBeforeTheEndOfASetting(t *testing.T) {
	w := openLanes(t)
	k := storage.LimitName{Kind: storage.LimitKey, Name: "k"}
	ends := w.now.Add(time.Minute)
	if err := w.SetLimit(t.Context(), w.now, k, once("", ojs.NoneAtOnce), ends); err != nil {
		t.Fatal(err)
	}
	ids := w.insert(w.job(once("k", 1)), w.job(once("k", 1)))
	opens := func(at time.Time, want time.Time, ids ...string) {
		t.Helper()
		w.now = at
		if done := w.wants(9, ids...); !done.Opens.Equal(want) {
			t.Errorf("at %v the limit opens at %v, not %v", at, done.Opens, want)
		}
		keyed.CheckLanes(t, w.Storage)
	}
	opens(w.now, ends)
	opens(ends, time.Time{}, ids[0])
	opens(ends.Add(-time.Second), ends)
	opens(ends.Add(-time.Minute), ends)
	opens(ends, time.Time{})
	opens(ends.Add(-30*24*time.Hour), ends)
}

// TestClosedIsToldOnce: a claim tells of a key and bounds once each time that they close,
// however many lanes they have and whichever call has closed them.
func TestClosedIsToldOnce(t *testing.T) {
	w := openLanes(t)
	k := storage.LimitName{Kind: storage.LimitKey, Name: "k"}
	tells := func(want int) {
		t.Helper()
		if _, done := w.claim(9); len(done.Closed) != want {
			t.Fatalf("the claim tells of %v, not of %d", done.Closed, want)
		}
	}
	other := func(r *storage.Record) { r.Queue = "other" }
	w.insert(w.job(once("k", 1)), w.job(once("k", 1)), w.job(once("k", 1), other))
	recs, done := w.claim(1)
	if len(done.Closed) != 1 {
		t.Fatalf("the claim that closes two lanes tells of %v", done.Closed)
	}
	tells(0)
	w.insert(w.job(once("k", 1), func(r *storage.Record) { r.Queue = "third" }))
	tells(0)
	w.insert(w.job(once("k", 2)), w.job(once("k", 2)), w.job(once("k", 2), other))
	tells(1) // one starts, and these bounds close, too
	w.complete(recs...)
	tells(1) // another one starts
	tells(0)
	w.insert(w.job(once("k", 9), func(r *storage.Record) { r.Priority = -1 }))
	if err := w.BlockLimit(t.Context(), w.now, k, w.now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	tells(1) // of the bounds that were open
	tells(0)
	w.now = w.now.Add(time.Hour)
	w.claim(9)
	keyed.CheckLanes(t, w.Storage)
}

// TestBoundsOfEachJob: a key may have as many lanes as jobs.
func TestBoundsOfEachJob(t *testing.T) {
	w := openLanes(t)
	var batch []storage.Insert
	for i := range 50 {
		batch = append(batch, w.job(once("k", 1+i)))
	}
	ids := w.insert(batch...)
	w.wants(99, ids...)
	for _, id := range ids[:49] {
		r, err := w.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		w.complete(r)
	}
	keyed.CheckLanes(t, w.Storage)
	more := w.insert(w.job(once("k", 1)), w.job(once("k", 2)), w.job(once("k", 3)))
	w.wants(9, more[1], more[2])
	keyed.CheckLanes(t, w.Storage)
}

// TestLanesClaimWhatMemoryClaims compares random histories with storage/memory, which
// counts limits in a way of its own.
func TestLanesClaimWhatMemoryClaims(t *testing.T) {
	const histories = 100
	claims, jobs := 0, 0
	for seed := range uint64(histories) {
		h := &laneHistory{TB: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), now: now,
			memory: memory.New(), keyed: openLanes(t).Storage}
		keyed.KeepFronts(h.keyed, []int{0, 4, 16}[seed%3])
		h.play()
		claims, jobs = claims+h.claims, jobs+h.jobs
	}
	t.Logf("%d histories, %d claims of %d jobs", histories, claims, jobs)
}

// laneHistory is the same calls of two storages.
type laneHistory struct {
	testing.TB
	seed   uint64
	step   int
	rnd    *rand.Rand
	now    time.Time
	memory *memory.Storage
	keyed  *keyed.Storage

	bounds       []ojs.RateLimit
	known        []string // ids
	claims, jobs int
}

func (h *laneHistory) one(n int) bool { return h.rnd.IntN(n) == 0 }

func (h *laneHistory) name(prefix string, n int) string { return fmt.Sprint(prefix, h.rnd.IntN(n)) }

// same wants both storages to answer the same.
func (h *laneHistory) same(what string, f func(s storage.Storage) any) {
	h.Helper()
	m, k := fmt.Sprint(f(h.memory)), fmt.Sprint(f(h.keyed))
	if m != k {
		h.Fatalf("seed %d, step %d: %s: memory %s, keyed %s", h.seed, h.step, what, m, k)
	}
}

func (h *laneHistory) play() {
	hour := ojs.RateLimit{Rate: ojs.Rate{Limit: 1000, Per: time.Hour}}
	for i := range 3 { // both know all starts
		name := storage.LimitName{Kind: storage.LimitKey, Name: fmt.Sprint("k", i)}
		h.same("set", func(s storage.Storage) any {
			return s.SetLimit(h.Context(), now, name, hour, now.AddDate(-40, 0, 0))
		})
	}
	for i := range 5 {
		b := ojs.RateLimit{Key: fmt.Sprint("k", i%3)}
		if h.one(2) {
			b.Concurrency = 1 + h.rnd.IntN(3)
		}
		if h.one(3) {
			b.Rate = ojs.Rate{Limit: 1 + h.rnd.IntN(3), Per: time.Duration(1+h.rnd.IntN(5)) * time.Second}
		}
		if b.Concurrency == 0 && b.Rate.Limit == 0 {
			b.Throttle = ojs.Rate{Limit: 1, Per: time.Duration(1+h.rnd.IntN(3)) * time.Second}
		}
		if h.one(5) {
			b.OnLimit = []ojs.OnLimit{ojs.OnLimitDrop, ojs.OnLimitReschedule}[h.rnd.IntN(2)]
		}
		h.bounds = append(h.bounds, b)
	}
	for h.step = range 120 {
		switch p := h.rnd.IntN(20); {
		case p < 6:
			h.insert()
		case p < 12:
			h.claim()
		case p < 15:
			h.settle()
		case p < 17:
			h.now = h.now.Add(time.Duration(h.rnd.IntN(2000)-400) * time.Millisecond)
		case p < 18:
			h.same("due", func(s storage.Storage) any {
				d, err := s.Due(h.Context(), h.now, 100, nil)
				return []any{idsOf(d.Promoted), idsOf(d.Expired), idsOf(d.Stalled), err}
			})
		case p < 19:
			h.set()
		default:
			queue, state := h.name("q", 3), []ojs.QueueState{ojs.QueuePaused, ojs.QueueActive}[h.rnd.IntN(2)]
			h.same("state", func(s storage.Storage) any {
				_, err := s.SetQueueState(h.Context(), queue, state)
				return err
			})
		}
		if h.one(10) {
			keyed.CheckLanes(h, h.keyed)
			keyed.CheckFronts(h, h.keyed)
		}
	}
	for i := range 3 {
		name := storage.LimitName{Kind: storage.LimitKey, Name: fmt.Sprint("k", i)}
		h.same("limit", func(s storage.Storage) any {
			l, err := s.GetLimit(h.Context(), h.now, name)
			return []any{l.Active, l.Waiting, err}
		})
	}
}

// change draws what decides where a job waits.
func (h *laneHistory) change(r *storage.Record) {
	r.Queue, r.Type, r.Priority = h.name("q", 3), h.name("t", 2), h.rnd.IntN(3)
	r.TypeVersion, r.RateLimit, r.ExpiresAt = "", nil, time.Time{}
	if h.one(4) {
		r.TypeVersion = []string{"1.0", "2.0"}[h.rnd.IntN(2)]
	}
	if !h.one(4) {
		b := h.bounds[h.rnd.IntN(len(h.bounds))]
		r.RateLimit = &b
	}
	if h.one(8) {
		r.ExpiresAt = h.now.Add(time.Duration(1+h.rnd.IntN(3)) * time.Second)
	}
	if h.one(6) {
		r.Fairness = ojs.Fairness{Key: h.name("f", 2)}
	}
}

func (h *laneHistory) insert() {
	batch := make([]storage.Insert, 1+h.rnd.IntN(5))
	for i := range batch {
		r := &batch[i].Record
		r.ID = fmt.Sprint("job", len(h.known))
		h.known = append(h.known, r.ID)
		r.State, r.CreatedAt, r.Lease, r.Timeout = ojs.StateAvailable, h.now, time.Hour, time.Hour
		h.change(r)
		if h.one(10) {
			batch[i].MaxDepth, batch[i].DropOldest = 6, true
		}
	}
	h.same("insert", func(s storage.Storage) any {
		out, err := s.Insert(h.Context(), h.now, batch, nil)
		var dropped [][]string
		for i := range out {
			dropped = append(dropped, idsOf(out[i].Dropped))
		}
		return []any{dropped, err != nil}
	})
}

func (h *laneHistory) claim() {
	q := storage.Claim{Max: 1 + h.rnd.IntN(4), Worker: "w"}
	for i := range 3 {
		if h.one(3) {
			q.Queues = append(q.Queues, fmt.Sprint("q", i))
		}
	}
	if h.one(3) {
		q.Types = []string{[]string{"t0", "t1", "t0@", "t1@>=2.0"}[h.rnd.IntN(4)]}
	}
	ends := 0
	if h.one(5) {
		ends = 1
	}
	var done [2]storage.Limited
	n := 0
	h.same(fmt.Sprintf("claim %+v", q), func(s storage.Storage) any {
		l := &done[n]
		n++
		l.Now, q.Limits = ends, l
		recs, err := s.Claim(h.Context(), h.now, q, nil)
		h.jobs += len(recs)
		return []any{idsOf(recs), idsOf(l.Dropped), idsOf(l.Postponed), err}
	})
	h.claims++
	if opens := done[1].Opens; !opens.IsZero() && !opens.After(h.now) {
		h.Fatalf("seed %d, step %d: at %v limits open at %v", h.seed, h.step, h.now, opens)
	}
}

// settle changes some job to one of the states that it can have.
func (h *laneHistory) settle() {
	if len(h.known) == 0 {
		return
	}
	r, err := h.memory.Get(h.Context(), h.known[h.rnd.IntN(len(h.known))])
	switch p := h.rnd.IntN(6); {
	case err != nil || r.State.Terminal(): // it was refused, or has ended
		return
	case p == 0:
		r.State, r.FinishedAt = ojs.StateCancelled, h.now
	case r.State == ojs.StateActive && p == 1:
		r.State, r.NextRetryAt = ojs.StateRetryable, h.now.Add(300*time.Millisecond)
	case r.State == ojs.StateActive && p == 2:
		h.same("unclaim", func(s storage.Storage) any {
			held := []storage.Held{{ID: r.ID, Version: r.Version}}
			n, err := s.(storage.SettleClaimer).Unclaim(h.Context(), h.now, held)
			return []any{n, err}
		})
		return
	case r.State == ojs.StateActive:
		r.State, r.FinishedAt = ojs.StateCompleted, h.now
	default:
		h.change(&r)
	}
	h.same("settle", func(s storage.Storage) any {
		out, err := s.Settle(h.Context(), h.now, []storage.Change{{Record: r}}, nil)
		return []any{out[0].Err, err}
	})
}

// set sets the bounds of a limit, or blocks it.
func (h *laneHistory) set() {
	name := storage.LimitName{Kind: storage.LimitKey, Name: h.name("k", 3)}
	if h.one(3) {
		name = storage.LimitName{Kind: storage.LimitQueue, Name: h.name("q", 3)}
	}
	if h.one(4) {
		name = storage.LimitName{Kind: storage.LimitType, Name: h.name("t", 2)}
	}
	var until time.Time
	if h.one(2) {
		until = h.now.Add(time.Duration(h.rnd.IntN(3000)) * time.Millisecond)
	}
	bounds := ojs.RateLimit{Concurrency: h.rnd.IntN(5) - 1}
	block := h.one(2)
	h.same("set", func(s storage.Storage) any {
		l := s
		if block {
			return l.BlockLimit(h.Context(), h.now, name, until)
		}
		return l.SetLimit(h.Context(), h.now, name, bounds, until)
	})
}

// TestOpenRefusesOtherLayouts: the tables of version 1 had no lanes, and those of a newer
// version have something that this one does not know.
func TestOpenRefusesOtherLayouts(t *testing.T) {
	for version, says := range map[byte]string{
		1: "copy the jobs with the program that wrote them", 99: "update this program",
	} {
		db := drivertest.NewMemory(false, driver.Limits{})
		tx, err := db.Begin(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		value := []byte{128, 0, 0, 0, 0, 0, 0, version}
		if err := tx.Commit([]driver.Pair{{Key: []byte("\x01layout"), Value: value}}); err != nil {
			t.Fatal(err)
		}
		_, err = keyed.Open(db, "keyed")
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint("version ", version)) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("Open returned %v", err)
		}
	}
}
