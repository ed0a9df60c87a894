package crashtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// list returns all jobs that match, in the order of insertion.
func list(ctx context.Context, s storage.Storage, q storage.Query) (all []storage.Record, err error) {
	for {
		page, err := s.List(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Records...)
		if page.Next == "" {
			return all, nil
		}
		q.Cursor = page.Next
	}
}

var openStates = []ojs.State{ojs.StatePending, ojs.StateScheduled, ojs.StateAvailable, ojs.StateActive,
	ojs.StateRetryable}

func describeOpen(t *testing.T, s storage.Storage) (descriptions []string) {
	open, err := list(t.Context(), s, storage.Query{States: openStates})
	if err != nil {
		return []string{err.Error()}
	}
	for i := range open[:min(len(open), 10)] {
		r := &open[i]
		descriptions = append(descriptions, fmt.Sprintf("%s %s attempt %d lease until %v, wakes at %v", r.ID,
			r.State, r.Attempt, r.LeaseUntil, r.WakeAt()))
	}
	return append(descriptions, fmt.Sprintf("%d in all", len(open)))
}

// check compares what the storage says with what has happened. No process works on it.
func check(t *testing.T, cfg *Config, h *history) {
	s, release, err := cfg.Open(t.Context(), cfg.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer closeStorage(t, s, release)
	jobs, err := list(t.Context(), s, storage.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.enqueued) == 0 || len(h.started) == 0 || len(h.succeeded) == 0 {
		t.Errorf("nothing is proven by %d enqueues, %d attempts and %d successes", len(h.enqueued),
			len(h.started), len(h.succeeded))
	}
	byID := make(map[string]*storage.Record, len(jobs))
	for i := range jobs {
		if r := &jobs[i]; byID[r.ID] != nil {
			t.Errorf("job %s is listed twice", r.ID)
		} else {
			byID[r.ID] = r
		}
	}
	if cfg.Faults > 0 { // the clock may have jumped with the server
		h.setEnds(jobs)
	}
	checkEnqueued(t, s, h, byID)
	checkAttempts(t, h, byID)
	checkOutcomes(t, h, jobs)
	checkUnique(t, h, jobs)
	checkOrder(t, h, jobs)
	if cfg.Faults > 0 {
		checkFaults(t, cfg, h, jobs)
	}
	checkBatches(t, jobs)
	checkFollowed(t, jobs)
	checkWaited(t, h, jobs)
	checkWorkflows(t, h, jobs)
	checkCounts(t, s, jobs)
}

// setEnds sets the times at which jobs have ended to those that their handlers have
// written down.
func (h *history) setEnds(jobs []storage.Record) {
	for i := range jobs {
		var last time.Time
		for attempt := range jobs[i].Attempt {
			r := run{jobs[i].ID, attempt + 1}
			for _, a := range slices.Concat(h.started[r], h.succeeded[r]) {
				if a.at.After(last) {
					last = a.at
				}
			}
		}
		if !last.IsZero() {
			jobs[i].FinishedAt = last
		}
	}
}

// checkEnqueued: none is lost.
func checkEnqueued(t *testing.T, s storage.Storage, h *history, byID map[string]*storage.Record) {
	for id := range h.enqueued {
		switch r, listed := byID[id]; {
		case listed && !r.State.Terminal():
			t.Errorf("job %s, whose enqueue had returned, is %s", id, r.State)
		case !listed:
			_, err := s.Get(t.Context(), id)
			t.Errorf("job %s, whose enqueue had returned, is not listed; looking it up: %v", id, err)
		}
	}
}

// checkAttempts: none was started twice, nor one that the job does not know of.
func checkAttempts(t *testing.T, h *history, byID map[string]*storage.Record) {
	for r, starts := range h.started {
		if len(starts) > 1 {
			t.Errorf("attempt %d of job %s was started %d times: %v", r.attempt, r.id, len(starts), starts)
		}
		switch job := byID[r.id]; {
		case job == nil:
			t.Errorf("job %s, which was run, is not stored", r.id)
		case r.attempt < 1 || r.attempt > job.Attempt || r.attempt > maxAttempts:
			t.Errorf("job %s, which is %s after %d attempts, had attempt %d", r.id, job.State,
				job.Attempt, r.attempt)
		}
	}
}

// checkOutcomes: what is said to have succeeded has, and what is said to have failed has
// had all its chances.
func checkOutcomes(t *testing.T, h *history, jobs []storage.Record) {
	states, lost := make(map[ojs.State]int), 0
	for i := range jobs {
		r := &jobs[i]
		states[r.State]++
		last := run{r.ID, r.Attempt}
		switch r.State {
		case ojs.StateCompleted:
			join := r.Dependencies != nil && r.Dependencies.Join
			if !join && len(h.succeeded[last]) != 1 {
				t.Errorf("job %s is completed, but its attempt %d did not succeed", r.ID, r.Attempt)
			}
		case ojs.StateDiscarded:
			if r.Attempt != r.MaxAttempts || len(r.Errors) != r.MaxAttempts {
				t.Errorf("job %s is discarded after %d attempts of %d and %d errors", r.ID, r.Attempt,
					r.MaxAttempts, len(r.Errors))
			}
		default:
			if !ofWorkflow(r) || !waitedInVain(r) {
				t.Errorf("job %s is %s in the end", r.ID, r.State)
			}
		}
		for _, f := range r.Errors {
			if f.Type == policy.ErrorTypeLeaseExpired {
				lost++
			}
		}
	}
	t.Logf("%d jobs were acknowledged, %d attempts started, and %d lost by their workers; in the end %v",
		len(h.enqueued), len(h.started), lost, states)
}

// checkUnique: of equal jobs each began after the one before it had ended.
func checkUnique(t *testing.T, h *history, jobs []storage.Record) {
	before := make(map[string]*storage.Record) // by fingerprint
	for i := range jobs {
		r := &jobs[i]
		if r.Fingerprint == "" {
			continue
		}
		if b := before[r.Fingerprint]; b != nil {
			for attempt := 1; attempt <= r.Attempt; attempt++ {
				for _, a := range h.started[run{r.ID, attempt}] {
					if a.at.Before(b.FinishedAt) {
						t.Errorf("job %s ran at %v, and job %s, which is equal, had not ended before %v",
							r.ID, a.at, b.ID, b.FinishedAt)
					}
				}
			}
		}
		before[r.Fingerprint] = r
	}
}

// checkOrder: of the jobs of an ordering key each began after the one before it had
// ended.
func checkOrder(t *testing.T, h *history, jobs []storage.Record) {
	before := make(map[string]*storage.Record) // by key
	for i := range jobs {
		r := &jobs[i]
		if !ordered(r) {
			continue
		}
		key := r.Dependencies.OrderingKey
		if b := before[key]; b != nil {
			for _, a := range h.started[run{r.ID, 1}] {
				if a.at.Before(b.FinishedAt) {
					t.Errorf("job %s of the ordering key %s ran at %v, and job %s before it ended at %v",
						r.ID, key, a.at, b.ID, b.FinishedAt)
				}
			}
		}
		before[key] = r
	}
}

func ordered(r *storage.Record) bool {
	return r.Dependencies != nil && r.Dependencies.OrderingKey != ""
}

// checkFaults: a fault costs a job one attempt at most, and handlers of a limited key
// never ran beside more than its limit. No process died, so that what the handlers wrote
// down is the whole of it.
func checkFaults(t *testing.T, cfg *Config, h *history, jobs []storage.Record) {
	type bound struct {
		at time.Time
		by int
	}
	var bounds []bound
	for i := range jobs {
		r, lost := &jobs[i], 0
		for _, f := range r.Errors {
			if f.Type == policy.ErrorTypeLeaseExpired {
				lost++
			}
		}
		if lost > cfg.Faults {
			t.Errorf("job %s has lost %d attempts to %d faults", r.ID, lost, cfg.Faults)
		}
		if r.RateLimit == nil || r.RateLimit.Key != limited {
			continue
		}
		for attempt := range r.Attempt {
			this := run{r.ID, attempt + 1}
			for k, a := range h.succeeded[this] {
				bounds = append(bounds, bound{h.started[this][k].at, 1}, bound{a.at, -1})
			}
		}
	}
	slices.SortFunc(bounds, func(a, b bound) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) })
	running := 0
	for _, b := range bounds {
		if running += b.by; running > mostLimited {
			t.Errorf("at %v %d jobs of a key ran, and its limit is %d", b.at, running, mostLimited)
		}
	}
	var times []time.Time
	for _, a := range h.enqueued {
		times = append(times, a.at)
	}
	slices.SortFunc(times, time.Time.Compare)
	for i := 1; i < len(times); i++ {
		if gap := times[i].Sub(times[i-1]); gap > time.Second {
			t.Logf("%s: no enqueue returned for %v", times[i-1].Format("15:04:05.000"),
				gap.Round(time.Millisecond))
		}
	}
}

// checkOrphans: nothing is active that was claimed before a time, since no handler takes
// so long.
func checkOrphans(t *testing.T, s storage.Storage, since time.Time) {
	active, err := list(t.Context(), s, storage.Query{States: []ojs.State{ojs.StateActive}})
	if err != nil {
		t.Error(err)
	}
	for i := range active {
		if r := &active[i]; r.StartedAt.Before(since) {
			t.Errorf("job %s is active without a holder since %v, until %v", r.ID, r.StartedAt, r.LeaseUntil)
		}
	}
}

// checkBatches: of each batch all is there or nothing.
func checkBatches(t *testing.T, jobs []storage.Record) {
	size, there := make(map[string]int), make(map[string]int)
	for i := range jobs {
		var args task
		if err := jobs[i].Args.Decode(&args); err != nil {
			t.Errorf("job %s: %v", jobs[i].ID, err)
		}
		if args.Batch != "" {
			size[args.Batch] = args.Size
			there[args.Batch]++
		}
	}
	if !maps.Equal(size, there) {
		for batch, n := range size {
			if there[batch] != n {
				t.Errorf("of batch %s of %d jobs %d are stored", batch, n, there[batch])
			}
		}
	}
}

// checkFollowed: jobs follow each parent that has completed, from its last attempt, and
// no other parent.
func checkFollowed(t *testing.T, jobs []storage.Record) {
	followed := make(map[run]int)
	for i := range jobs {
		var args task
		if err := jobs[i].Args.Decode(&args); err == nil && args.Parent != "" {
			followed[run{args.Parent, args.Attempt}]++
		}
	}
	for i := range jobs {
		r := &jobs[i]
		last := run{r.ID, r.Attempt}
		if r.Type == parent && r.State == ojs.StateCompleted {
			if followed[last] != children {
				t.Errorf("%d jobs follow job %s, which is completed, not %d", followed[last], r.ID, children)
			}
			delete(followed, last)
		}
	}
	for r, n := range followed {
		t.Errorf("%d jobs follow attempt %d of job %s, which did not complete it", n, r.attempt, r.id)
	}
}

// checkWaited: jobs that waited for others began when these had ended, and waited for no
// more. There is a proof only if the storage knows such jobs.
func checkWaited(t *testing.T, h *history, jobs []storage.Record) {
	ended := make(map[string]time.Time) // by batch, of the jobs that wait for none
	for i := range jobs {
		r := &jobs[i]
		var args task
		waits := r.Dependencies != nil && !ordered(r)
		if err := r.Args.Decode(&args); err == nil && args.Batch != "" && !waits &&
			r.FinishedAt.After(ended[args.Batch]) {
			ended[args.Batch] = r.FinishedAt
		}
	}
	for i := range jobs {
		r := &jobs[i]
		var args task
		if d := r.Dependencies; d == nil || ordered(r) {
			continue
		} else if d.Unfinished != 0 && !waitedInVain(r) {
			t.Errorf("job %s is %s, and waits for %d jobs", r.ID, r.State, d.Unfinished)
		}
		if err := r.Args.Decode(&args); err != nil {
			t.Errorf("job %s: %v", r.ID, err)
		}
		for _, a := range h.started[run{r.ID, 1}] {
			if a.at.Before(ended[args.Batch]) {
				t.Errorf("job %s ran at %v, and jobs that it waited for ended until %v", r.ID, a.at,
					ended[args.Batch])
			}
		}
	}
}

// checkCounts: they are those of the listing.
func checkCounts(t *testing.T, s storage.Storage, jobs []storage.Record) {
	type kind struct {
		queue, jobType string
		state          ojs.State
	}
	listed, counted := make(map[kind]int), make(map[kind]int)
	for i := range jobs {
		listed[kind{jobs[i].Queue, jobs[i].Type, jobs[i].State}]++
	}
	counts, err := s.Counts(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, c := range counts {
		counted[kind{c.Queue, c.Type, c.State}] = c.N
	}
	if !maps.Equal(listed, counted) {
		t.Errorf("the counts are %v, of the jobs %v", counted, listed)
	}
}

// watch looks now and then, until ctx ends, that no two equal jobs are open at once, and
// that no more jobs of a key are active than its limit allows.
func watch(ctx context.Context, t *testing.T, cfg *Config) {
	look := wall.Ticker(10 * lookEvery)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		if err := watchOnce(ctx, t, cfg); err != nil && ctx.Err() == nil && cfg.Disturb == nil {
			t.Errorf("looking at the jobs: %v", err)
		}
	}
}

func watchOnce(ctx context.Context, t *testing.T, cfg *Config) error {
	s, release, err := cfg.Open(ctx, cfg.Direct)
	if err != nil {
		return err
	}
	defer release()
	defer s.Close()
	if err := watchLimit(ctx, t, s); err != nil {
		return err
	}
	open, err := list(ctx, s, storage.Query{States: openStates})
	if err != nil {
		return err
	}
	equal := make(map[string][]string)
	for i := range open {
		if f := open[i].Fingerprint; f != "" {
			equal[f] = append(equal[f], open[i].ID)
		}
	}
	for _, ids := range equal {
		// A listing takes time: one job may have ended when the next was seen. A place
		// that is still open was open then.
		if len(ids) > 1 {
			ids = slices.DeleteFunc(ids, func(id string) bool {
				r, err := s.Get(ctx, id)
				return err != nil || r.State.Terminal()
			})
		}
		if len(ids) > 1 && ctx.Err() == nil {
			t.Errorf("equal jobs are open at once: %v", ids)
		}
	}
	return nil
}

// watchLimit looks several times, since each look is quick.
func watchLimit(ctx context.Context, t *testing.T, s storage.Storage) error {
	for range 10 {
		l, err := s.GetLimit(ctx, wall.Now(), storage.LimitName{Kind: storage.LimitKey, Name: limited})
		switch {
		case errors.Is(err, ojs.ErrNotFound):
		case err != nil:
			return err
		case l.Active > mostLimited:
			t.Errorf("%d jobs of a key are active at once, and its limit is %d", l.Active, mostLimited)
		}
	}
	return nil
}
