package storagetest

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// recorded makes a history of calls that end in the order given. Each begins when the one
// before has ended, or at the same time as that one if it overlaps.
func recorded(t *testing.T, s storage.Storage, calls ...*historyCall) *history {
	t.Helper()
	cfg := Config{}
	h := &history{theme: &theme{name: "by hand"}}
	for i, c := range calls {
		c.began, c.ended = int64(10*i), int64(10*i+5)
		if i > 0 && c.client != calls[i-1].client {
			c.began = calls[i-1].began + 1
		}
		if s != nil && c.answer.equal(&answer{}) {
			c.answer = c.op.do(t.Context(), newHandle(s))
		}
		c.answer.normal(&cfg)
		c.parts = c.op.parts(&c.answer, false)
		h.calls = append(h.calls, c)
	}
	return h
}

func historyJob(n int) storage.Record {
	var r storage.Record
	r.ID, r.Queue, r.Type, r.State = historyID(0, n), "a", "x", ojs.StateAvailable
	r.CreatedAt, r.Lease, r.Timeout = epoch, time.Second, time.Minute
	return (&Config{}).normal(r)
}

// The shortest history has the calls that show the violation, and says how far an order
// explains them.
func TestShortestHistory(t *testing.T) {
	ref := NewReference()
	insert := func(n int) operation {
		return &insertCall{now: epoch, batch: []storage.Insert{{Record: historyJob(n)}}}
	}
	claim := &claimCall{now: epoch, claim: storage.Claim{Max: 1, Worker: "w"}}
	inserted := &historyCall{op: insert(1)}
	first := &historyCall{op: claim}
	h := recorded(t, ref,
		inserted,
		&historyCall{op: &countsCall{}},
		&historyCall{op: insert(2)},
		first,
	)
	if got := h.check(h.effects()); got != porcupine.Ok {
		t.Fatalf("one call after the other: %v", got)
	}
	// Another client claims the same job meanwhile. A look comes after it.
	second := &historyCall{client: 1, op: claim, answer: first.answer}
	h = recorded(t, ref, append(h.calls, second, &historyCall{op: &getCall{id: historyID(0, 2)}})...)
	if got := h.check(h.effects()); got != porcupine.Illegal {
		t.Fatalf("two claims of one job: %v", got)
	}
	v := h.shorten()
	const want = `theme: by hand
 1. client 1    1-2   Insert job 1 in a at 0s -> job 1 version 1
 2. client 1    3-5   Claim 1 at 0s -> job 1 active version 2 until 1s
 3. client 2    4-6   Claim 1 at 0s -> job 1 active version 2 until 1s
The longest order that explains its calls is 1, 2. After it:
 3. Records: 1 elements, want 0
`
	if got := v.String(); got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
	var page strings.Builder
	if err := v.page(&page); err != nil || !strings.Contains(page.String(), "job 1 active version 2") {
		t.Errorf("the picture has %d bytes: %v", page.Len(), err)
	}
}

// A call under way when the history ends may have had any outcome.
func TestUnderWay(t *testing.T) {
	insert := &insertCall{now: epoch, batch: []storage.Insert{{Record: historyJob(1)}}}
	h := recorded(t, NewReference(),
		&historyCall{op: insert},
		&historyCall{client: 1, op: &getCall{id: historyID(0, 1)}},
	)
	list := h.effects()
	list[0].answer.Inserted = nil
	if got := h.check(list); got != porcupine.Illegal {
		t.Errorf("an insert that says nothing: %v", got)
	}
	list[0].free = true
	if got := h.check(list); got != porcupine.Ok {
		t.Errorf("an insert under way: %v", got)
	}
}

// A storage that works job by job may take the jobs of one call at moments of their own,
// and no storage may take one that is not there.
func TestJobByJob(t *testing.T) {
	ref := NewReference()
	both := []storage.Insert{{Record: historyJob(1)}, {Record: historyJob(2)}}
	h := recorded(t, ref,
		&historyCall{op: &insertCall{now: epoch, batch: both}},
		&historyCall{op: &claimCall{now: epoch, claim: storage.Claim{Max: 2, Worker: "w"}}},
	)
	claimed := h.calls[1]
	claimed.answer.Records = claimed.answer.Records[1:] // it has skipped the first
	for byJob, want := range map[bool]porcupine.CheckResult{false: porcupine.Illegal, true: porcupine.Ok} {
		h.byJob = byJob
		claimed.parts = claimed.op.parts(&claimed.answer, byJob)
		if got := h.check(h.effects()); got != want {
			t.Errorf("job by job %v: %v", byJob, got)
		}
	}
	claimed.answer.Records[0].ID = historyID(0, 3)
	if got := h.check(h.effects()); got != porcupine.Illegal {
		t.Errorf("a claim of a job that is not there: %v", got)
	}
}

// A storage that works job by job may refuse a change before the others of the call take
// effect, by a version that the job had during the call, and by no other.
func TestRefusedJobByJob(t *testing.T) {
	jobs := []storage.Insert{{Record: historyJob(1)}, {Record: historyJob(2)}}
	insert := &historyCall{op: &insertCall{now: epoch, batch: jobs}}
	claim := &historyCall{op: &claimCall{now: epoch, claim: storage.Claim{Max: 2, Worker: "w"}}}
	recorded(t, NewReference(), insert, claim)
	completed := func(n int, version uint64) storage.Record {
		r := claim.answer.Records[n-1].Copy()
		r.Version, r.State, r.FinishedAt, r.LeaseUntil = version, ojs.StateCompleted, epoch, time.Time{}
		return r
	}
	second := &settleCall{now: epoch, changes: []storage.Change{{Record: completed(2, 2)}}}
	first := &getCall{id: historyID(0, 1)}
	for _, test := range []struct {
		version uint64 // for which the second change of a call is refused
		byJob   bool
		want    porcupine.CheckResult
	}{
		{2, true, porcupine.Ok}, {2, false, porcupine.Illegal}, {9, true, porcupine.Illegal},
	} {
		results := []settled{{Version: 3}, {Version: test.version, Err: "fenced"}}
		for what, op := range map[string]operation{
			"Settle": &settleCall{now: epoch,
				changes: []storage.Change{{Record: completed(1, 2)}, {Record: completed(2, 1)}}},
			"step": &stepCall{now: epoch, to: []storage.Record{completed(1, 2), completed(2, 1)}},
		} {
			call := &historyCall{client: 1, op: op, answer: answer{Settled: results}}
			// Meanwhile another client settles the job of the second change, and then
			// finds that of the first unchanged.
			h := recorded(t, nil, insert, claim, call,
				&historyCall{op: second, answer: answer{Settled: []settled{{Version: 3}}}},
				&historyCall{op: first, answer: answer{Records: claim.answer.Records[:1]}},
			)
			h.calls[2].ended = h.calls[4].ended + 1
			h.calls[4].began = h.calls[3].ended + 1
			h.byJob = test.byJob
			for _, c := range h.calls {
				c.parts = c.op.parts(&c.answer, test.byJob)
			}
			if got := h.check(h.effects()); got != test.want {
				t.Errorf("%s, refused for version %d, job by job %v: %v, want %v", what, test.version,
					test.byJob, got, test.want)
			}
		}
	}
}

// In a step a storage that works job by job settles in order, and then claims as Claim
// does there, but none that a step leaves out.
func TestStepJobByJob(t *testing.T) {
	late := historyJob(3)
	late.EnqueueTTL = time.Hour
	jobs := []storage.Insert{{Record: historyJob(1)}, {Record: historyJob(2)}, {Record: late},
		{Record: historyJob(4)}}
	made := func() *history {
		ref := Stepper{NewReference()}
		h := recorded(t, ref,
			&historyCall{op: &insertCall{now: epoch, batch: jobs}},
			&historyCall{op: &claimCall{now: epoch, claim: storage.Claim{Max: 1, Worker: "w"}}},
		)
		done := h.calls[1].answer.Records[0].Copy()
		done.State, done.FinishedAt, done.LeaseUntil = ojs.StateCompleted, epoch, time.Time{}
		step := &stepCall{now: epoch, to: []storage.Record{done}, claim: storage.Claim{Worker: "w"}, room: 2}
		return recorded(t, ref, append(h.calls, &historyCall{op: step})...)
	}
	check := func(what string, h *history, byJob bool, want porcupine.CheckResult) {
		t.Helper()
		step := h.calls[2]
		h.byJob, step.parts = byJob, step.op.parts(&step.answer, byJob)
		if got := h.check(h.effects()); got != want {
			t.Errorf("%s, job by job %v: %v, want %v", what, byJob, got, want)
		}
	}
	check("as one", made(), false, porcupine.Ok)
	check("as one", made(), true, porcupine.Ok)

	other := made() // it has skipped the second
	r := historyJob(4)
	r.Version = 1
	r.Claim(epoch, "w", 0)
	other.calls[2].answer.Records = []storage.Record{r}
	check("a job skipped", other, false, porcupine.Illegal)
	check("a job skipped", other, true, porcupine.Ok)

	r = late.Copy()
	r.Version = 1
	r.Claim(epoch, "w", 0)
	other.calls[2].answer.Records = []storage.Record{r}
	check("a job with an enqueue TTL", other, true, porcupine.Illegal)

	refused := made()
	refused.calls[2].answer.Settled[0].Err = "fenced"
	check("an outcome refused", refused, true, porcupine.Illegal)
}

// A storage that works job by job may obey the state that a queue had when a call began,
// and no storage may obey one that the queue had before.
func TestStateChangesDuringACall(t *testing.T) {
	for _, test := range []struct {
		state ojs.QueueState
		call  operation
		looks int // for the job that tells that the call takes effect after the look
	}{
		{ojs.QueueDraining, &insertCall{now: epoch, batch: []storage.Insert{{Record: historyJob(2)}}}, 2},
		{ojs.QueuePaused, &claimCall{now: epoch, claim: storage.Claim{Max: 1, Worker: "w"}}, 1},
	} {
		h := recorded(t, NewReference(),
			&historyCall{op: &insertCall{now: epoch, batch: []storage.Insert{{Record: historyJob(1)}}}},
			&historyCall{op: &getCall{id: historyID(0, test.looks)}},
			&historyCall{op: test.call},
			&historyCall{op: &queueStateCall{queue: "a", to: test.state}},
		)
		look, call, change := h.calls[1], h.calls[2], h.calls[3]
		change.began, change.ended = 20, 25
		look.began, look.ended = 30, 35
		call.client, call.ended = 1, 40
		check := func(began int64, byJob bool, want porcupine.CheckResult) {
			t.Helper()
			call.began, call.unsettled, h.byJob = began, nil, byJob
			h.findUnsettled()
			if got := h.check(h.effects()); got != want {
				t.Errorf("%s, job by job %v, begun at %d: %v, want %v", test.state, byJob, began, got, want)
			}
		}
		check(19, true, porcupine.Ok)
		check(19, false, porcupine.Illegal)
		check(26, true, porcupine.Illegal)
	}
}

// A storage that cannot be opened, or emptied, fails the search.
func TestHistoriesNeedAStorage(t *testing.T) {
	cfg := Config{Open: func(tb testing.TB) storage.Storage { tb.Fatal("no disk"); return nil }}
	if _, _, err := search(cfg, 1, defaultBudget); err == nil || !strings.Contains(err.Error(), "no disk") {
		t.Error(err)
	}
	cfg.Open = func(testing.TB) storage.Storage {
		s := &seam{Stepper: Stepper{NewReference()}}
		s.remove = func([]string) (int, error) { return 0, nil }
		return s
	}
	if _, _, err := search(cfg, 1, defaultBudget); err == nil || !strings.Contains(err.Error(), "Delete") {
		t.Error(err)
	}
}
