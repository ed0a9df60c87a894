package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/racedetector"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

var planted = flag.Bool("planted", false, "run TestPlanted, which takes some minutes")

// searched is how many seeds may pass before a planted bug is found.
const searched = 500

// patch is a bug in the module's own code.
type patch struct {
	name     string
	file     string // in the module
	old, new string // old is in the file exactly once
}

var patches = []patch{
	{"a cancel is not told to the handler", "engine/internal/settle/changes.go",
		"c.TakenAway(storage.Held{ID: to.ID, Version: to.Version - 1}, ojs.ErrCancelled)",
		"_ = storage.Held{}"},
	{"a replaced job is not told to its handler", "engine/internal/enqueue/enqueue.go",
		"c.TakenAway(storage.Held{ID: r.ID, Version: r.Version - 1}, ojs.ErrReplaced)", "_ = r"},
	{"an attempt is told of the loss of an earlier one", "engine/internal/attempts/attempt.go",
		"if a.rec.Version == held.Version && a.rec.ID == held.ID {", "if a.rec.ID == held.ID {"},
	{"a limit that opens starts nobody", "engine/internal/admission/gate.go",
		"if opens {", "if opens && false {"},
	{"starts do not count in limits", "engine/internal/admission/limits.go",
		"	l.running++\n", ""},
	{"an ended attempt is not told", "engine/internal/settle/ends.go",
		"case settled[i].Err != nil:\n		case f",
		"case settled[i].Err != nil || f.Rec.State == ojs.StateDiscarded:\n		case f"},
	{"two events swap", "engine/internal/enqueue/enqueue.go",
		"{{Type: event.Enqueued, Duration: took}, {Type: event.Scheduled}}, 1",
		"{{Type: event.Scheduled}, {Type: event.Enqueued, Duration: took}}, 1"},
	{"a lost lease spends no attempt", "engine/internal/upkeep/due.go",
		"policy.Outcome{Kind: policy.LeaseExpired,", "policy.Outcome{Kind: policy.Interrupted,"},
	{"a stop spends the attempts that it gives back", "policy/decide.go",
		"return Decision{State: ojs.StateRetryable, Refunded: true, RunAt: now, Rule: RuleInterrupted}",
		"return Decision{State: ojs.StateRetryable, RunAt: now, Rule: RuleInterrupted}"},
	{"one attempt too many", "policy/decide.go",
		"if job.Attempt >= job.Retry.Runs() {", "if job.Attempt > job.Retry.Runs() {"},
	{"DeadLetter buries nothing", "policy/decide.go",
		"return end(RuleCode, s.code == ojs.CodeDeadLetter)", "return end(RuleCode, false)"},
	{"RetryAfter waits for half as long", "policy/decide.go",
		"asked = max(s.retryAfter.After, 0)", "asked = max(s.retryAfter.After/2, 0)"},
	{"promoted jobs start nobody", "engine/internal/upkeep/due.go",
		"			c.Available(len(d.Promoted))\n", ""},
	{"an earlier deadline does not move the timer", "engine/internal/alarm/alarm.go",
		"if a.at.Load() > nanos(t) {", "if !a.Armed() {"},
	{"a notice of everything is ignored", "engine/run.go",
		"if n.Available || n.Everything {", "if n.Available {"},
	{"a rescheduled job does not move the timer", "engine/internal/settle/changes.go",
		"	c.WakeAt(to.WakeAt())\n	if to.State == ojs.StateAvailable {",
		"	if to.State == ojs.StateAvailable {"},
	{"waits are not answered", "engine/parts.go",
		"	c.waits.Waiters.Ended(rec.ID, &rec.JobInfo)\n", ""},
	{"leases are not renewed", "engine/internal/attempts/attempt.go",
		"	a.r.renewals = append(a.r.renewals, a)\n", ""},
	{"a timeout does not end the context", "engine/internal/attempts/attempt.go",
		"a.end(ojs.ErrTimeout)", "_ = ojs.ErrTimeout"},
	{"a timeout begins with the claim", "engine/internal/attempts/step.go",
		"		a.late.Store(int64(late))\n", ""},
	{"a lease is not renewed while its outcome waits", "engine/internal/attempts/attempt.go",
		"	a.r.renewals = append(a.r.renewals, a)\n",
		"	if a.phase == running {\n		a.r.renewals = append(a.r.renewals, a)\n	}\n"},
	{"a panic keeps the slot of its type", "engine/internal/attempts/outcomes.go",
		"		if r.conclude(a) && a.reusable(f) {\n",
		"		if p := f.Decision.Failure; p != nil && p.Type == policy.ErrorTypePanic {\n" +
			"			a.rec = new(storage.Record) // which no limit knows\n		}\n" +
			"		if r.conclude(a) && a.reusable(f) {\n"},
	{"a worker's failure keeps the slot of its limit", "engine/internal/settle/settle.go",
		"			c.WorkerLost(storage.Held{ID: f.Rec.ID, Version: f.Rec.Version}, nil)\n",
		"			if f.Rec.State == ojs.StateCompleted {\n" +
			"				c.WorkerLost(storage.Held{ID: f.Rec.ID, Version: f.Rec.Version}, nil)\n			}\n"},
	{"half of a batch is told", "engine/internal/enqueue/enqueue.go",
		"	for i := range jobs {\n		r := &jobs[i].Record\n		for k",
		"	for i := range jobs[:(len(jobs)+1)/2] {\n		r := &jobs[i].Record\n" +
			"		for k"},
	{"an attempt has the log of an earlier one", "engine/internal/attempts/attempt.go",
		"		if a.lines = new(joblog.Lines); !a.returned {\n",
		"		if a.lines = a.r.attempts[0].lines; a.lines == nil {\n			a.lines = new(joblog.Lines)\n		}\n" +
			"		if !a.returned {\n"},
	{"results are not encoded", "engine/internal/attempts/attempt.go",
		"	v, err := a.r.c.EncodeValue(a.r.Base, \"result\", v, jsonvalue.MaxResult)\n",
		"	var err error\n"},
	{"a panic counts as two failures", "telemetry/telemetry.go",
		"		p.Failed++\n",
		"		p.Failed++\n		if e := a.Job.Error; e != nil && e.Reason == ojs.ReasonHandlerPanic {\n" +
			"			p.Failed++\n		}\n"},
	{"a late claim starts after the stop", "engine/internal/attempts/attempt.go",
		"	if r.closed() {\n		a.end(ojs.ErrShutdown)\n	}\n", ""},
	{"a worker's heartbeat renews the claim of another", "engine/fetch/delivery.go",
		"	lost, err := c.settle.Extend(ctx, now, &d.rec, x, typ)\n",
		"	if r, err := c.Store.Get(ctx, d.rec.ID); err == nil {\n		x.Version = r.Version\n	}\n" +
			"	lost, err := c.settle.Extend(ctx, now, &d.rec, x, typ)\n"},
	{"a failure stores what comes with a completion", "engine/internal/settle/ends.go",
		"	if l != nil && f.Rec.State == ojs.StateCompleted {",
		"	if l != nil && f.Rec.State.Terminal() {"},
	{"what comes with a completion is lost in a step", "engine/internal/settle/ends.go",
		"return f.Then != nil || f.Log != nil", "return f.Log != nil"},
	{"the log is lost in a step", "engine/internal/settle/ends.go",
		"return f.Then != nil || f.Log != nil", "return f.Then != nil"},
	{"no worker is told of a job", "engine/parts.go",
		"		r.Pipe.Available(n)\n	}\n	c.Offers.Ring()\n",
		"		r.Pipe.Available(n)\n	}\n"},
	{"a failure loses the checkpoint", "engine/internal/attempts/outcomes.go",
		"	f.Rec.Progress, f.Rec.Checkpoint = said.progress, said.checkpoint\n",
		"	f.Rec.Progress = said.progress\n"},
	{"claims name no handler after the first of a type", "engine/internal/jobtypes/types.go",
		"		set.claims = append(set.claims, t.patterns...)\n",
		"		set.claims = append(set.claims, t.patterns[:1]...)\n"},
	{"claims name no versions", "engine/internal/jobtypes/types.go",
		"		set.claims = append(set.claims, t.patterns...)\n",
		"		set.claims = append(set.claims, t.Handler.Type())\n"},
	{"a job loses its version", "engine/internal/jobtypes/drafts.go",
		"	r.TypeVersion = o.TypeVersion\n", ""},
	{"a share has no weight", "engine/internal/jobtypes/drafts.go",
		"	if r.Fairness = o.Fairness; o.FairnessBy",
		"	if r.Fairness.Key = o.Fairness.Key; o.FairnessBy"},
	{"the errors of a batch are those of its first job", "handler/batch.go",
		"			o.err = errs[i]\n", "			o.err = errs[min(i, 0)]\n"},
	{"a batch gets one job too many", "handler/batch.go",
		"	if len(b.members) >= min(g.most, slots) ||", "	if len(b.members) > min(g.most, slots-1) ||"},
	{"args are not encoded", "internal/draft/draft.go",
		"	if by != nil {\n		r.Args, r.Meta, err =",
		"	if by != nil && r.Attempt > 0 {\n		r.Args, r.Meta, err ="},
	{"jobs that were claimed ahead are kept", "engine/internal/settle/changes.go",
		"	n, err := stepper.Unclaim(ctx, c.Now(), held)\n", "	_, n, err := stepper, 0, error(nil)\n"},
	{"dropped jobs are not told", "engine/internal/admission/limits.go",
		"		for i := range l.Dropped {\n			r := &l.Dropped[i]\n			c.Transition(",
		"		for i := range l.Dropped[:0] {\n			r := &l.Dropped[i]\n" +
			"			c.Transition("},
}

// root is the module's directory.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// apply returns the patched source.
func (p patch) apply(t *testing.T) (path string, src []byte) {
	t.Helper()
	path = filepath.Join(root(t), filepath.FromSlash(p.file))
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(src, []byte(p.old)); n != 1 {
		t.Fatalf("%s has %d times:\n%s\nGive the planted bug %q the code as it is now.",
			p.file, n, p.old, p.name)
	}
	return path, bytes.Replace(src, []byte(p.old), []byte(p.new), 1)
}

// Every planted bug can still be planted.
func TestPlantedPatchesApply(t *testing.T) {
	for _, p := range patches {
		t.Run(p.name, func(t *testing.T) { p.apply(t) })
	}
}

var foundBy = regexp.MustCompile(`seed (\d+): invariant (\d+) \(.*|seed \d+ hangs.*|deadlock: .*|panic: .*`)

// Every bug that is planted in the module's code is found. Each is built with go test
// -overlay.
func TestPlanted(t *testing.T) {
	if !*planted {
		t.Skip("takes some minutes; run it with -planted")
	}
	for _, p := range patches {
		t.Run(p.name, func(t *testing.T) {
			path, src := p.apply(t)
			dir := t.TempDir()
			file, overlay := filepath.Join(dir, "patched.go"), filepath.Join(dir, "overlay.json")
			bin := filepath.Join(dir, "simulation.test")
			if err := os.WriteFile(file, src, 0o600); err != nil {
				t.Fatal(err)
			}
			replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: file}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(overlay, replace, 0o600); err != nil {
				t.Fatal(err)
			}
			build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", bin, ".")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("the patched module does not build: %v\n%s", err, out)
			}
			for from, n := *firstSeed, *seeds; n > 0; from, n = from+uint64(n), searched-*seeds {
				search := exec.Command(bin, "-test.run", "^TestSimulation$", "-test.failfast",
					"-test.timeout", "10m", "-seed", fmt.Sprint(from), "-seeds", fmt.Sprint(n))
				out, err := search.CombinedOutput()
				if err == nil && from > *firstSeed {
					break
				} else if err == nil {
					continue
				}
				found := foundBy.Find(out)
				if found == nil {
					t.Fatalf("the search failed without finding it: %v\n%s", err, out)
				}
				t.Logf("found within the default seeds: %v: %s", from == *firstSeed, found)
				return
			}
			t.Fatalf("not found within %d seeds", searched)
		})
	}
}

// Every broken storage is found.
func TestPlantedStorages(t *testing.T) {
	if racedetector.On {
		t.Skip("the race detector adds nothing to the search: .ci/run makes it without")
	}
	for name, plant := range brokenStorages {
		t.Run(name, func(t *testing.T) {
			for seed := *firstSeed; seed < *firstSeed+searched; seed++ {
				w := simulate(t, seed,
					Config{Open: func() storage.Storage { return plant(inside{memory.New()}) }})
				if len(w.violations) > 0 {
					v := w.violations[0]
					t.Logf("found: seed %d: invariant %d (%s): %s",
						seed, v.number, invariants[v.number], v.what)
					return
				}
			}
			t.Errorf("not found within %d seeds", searched)
		})
	}
}

// inside is the storage inside a broken one.
type inside struct{ *memory.Storage }

func (s inside) Unwrap() storage.Storage { return s.Storage }

// brokenStorages are storages with a bug.
var brokenStorages = map[string]func(inside) storage.Storage{
	"a stale change is applied":                func(s inside) storage.Storage { return &unfenced{s} },
	"jobs are promoted a nanosecond early":     func(s inside) storage.Storage { return &early{s} },
	"deadlines are looked at two seconds late": func(s inside) storage.Storage { return &late{s} },
	"a job is claimed twice":                   func(s inside) storage.Storage { return &twice{inside: s} },
	"retryable jobs block no duplicate":        func(s inside) storage.Storage { return &forgiving{s} },
	"a pause is ignored":                       func(s inside) storage.Storage { return &restless{s} },
	"jobs that count are pruned":               func(s inside) storage.Storage { return &tidy{s} },
	"a bounded queue takes one job more":       func(s inside) storage.Storage { return &roomy{s} },
	"every third notice is lost for good":      func(s inside) storage.Storage { return &silent{inside: s} },
	"the error history is not stored":          func(s inside) storage.Storage { return &forgetful{s} },
	"an undone claim forgets versions":         func(s inside) storage.Storage { return &lax{inside: s} },
	"half of the ends are not told":            func(s inside) storage.Storage { return &half{s} },
	"a shared limit lets one job more start":   generous,
	"the logs of later attempts are lost":      func(s inside) storage.Storage { return &silenced{s} },
}

type unfenced struct{ inside }

func (s *unfenced) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	from := len(dst)
	dst, err := s.Storage.Settle(ctx, now, changes, dst)
	for i := range dst[from:] {
		if !errors.Is(dst[from+i].Err, storage.ErrFenced) {
			continue
		}
		again := changes[i]
		again.Record.Version = dst[from+i].Version
		if r, err := s.Storage.Settle(ctx, now, []storage.Change{again}, nil); err == nil && r[0].Err == nil {
			dst[from+i] = r[0]
		}
	}
	return dst, err
}

type silenced struct{ inside }

func (s *silenced) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	changes = slices.Clone(changes)
	for i := range changes {
		if changes[i].Record.Attempt > 1 {
			changes[i].Log = nil
		}
	}
	return s.Storage.Settle(ctx, now, changes, dst)
}

type early struct{ inside }

func (s *early) Due(ctx context.Context, now time.Time, most int, buf []storage.Record) (storage.Due, error) {
	d, err := s.Storage.Due(ctx, now.Add(1), most, buf)
	if !d.Next.IsZero() {
		d.Next = d.Next.Add(-1)
	}
	return d, err
}

type late struct{ inside }

func (s *late) Due(ctx context.Context, now time.Time, most int, buf []storage.Record) (storage.Due, error) {
	d, err := s.Storage.Due(ctx, now.Add(-2*time.Second), most, buf)
	if !d.Next.IsZero() {
		d.Next = d.Next.Add(2 * time.Second)
	}
	return d, err
}

type twice struct {
	inside
	mu   sync.Mutex // guards kept
	kept storage.Record
}

func (s *twice) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	from := len(dst)
	dst, err := s.Storage.Claim(ctx, now, c, dst)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && len(dst) > from:
		s.kept = dst[from].Copy()
	case err == nil && s.kept.ID != "":
		dst = append(dst, s.kept)
		s.kept = storage.Record{}
	}
	return dst, err
}

type forgiving struct{ inside }

func (s *forgiving) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	for i := range batch {
		r := &batch[i].Record
		if r.Unique != nil && r.Unique.States == nil {
			u := *r.Unique
			u.States = []ojs.State{ojs.StateAvailable, ojs.StateActive, ojs.StateScheduled, ojs.StatePending}
			own := r.Unique
			r.Unique = &u
			defer func() { r.Unique = own }()
		}
	}
	return s.Storage.Insert(ctx, now, batch, dst)
}

type restless struct{ inside }

func (s *restless) SetQueueState(ctx context.Context, queue string,
	to ojs.QueueState) (ojs.QueueState, error) {
	if to == ojs.QueuePaused {
		return ojs.QueueActive, nil
	}
	return s.Storage.SetQueueState(ctx, queue, to)
}

type tidy struct{ inside }

func (s *tidy) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	p.Now = p.Now.Add(time.Hour)
	return s.Storage.Prune(ctx, p)
}

type roomy struct{ inside }

func (s *roomy) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	wider := append([]storage.Insert{}, batch...)
	for i := range wider {
		if wider[i].MaxDepth > 0 {
			wider[i].MaxDepth++
		}
	}
	return s.Storage.Insert(ctx, now, wider, dst)
}

type silent struct {
	inside
	notices atomic.Int64
}

func (s *silent) Notify(self any, f func(storage.Notice)) func() {
	return s.Storage.Notify(self, func(n storage.Notice) {
		if s.notices.Add(1)%3 != 0 {
			f(n)
		}
	})
}

type forgetful struct{ inside }

func (s *forgetful) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	cut := append([]storage.Change{}, changes...)
	for i := range cut {
		cut[i].Record.Errors = nil
	}
	return s.Storage.Settle(ctx, now, cut, dst)
}

type lax struct {
	inside
	undone atomic.Bool
}

func (s *lax) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	n, err := s.Storage.Unclaim(ctx, now, held)
	if n > 0 {
		s.undone.Store(true)
	}
	return n, err
}

func (s *lax) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled,
	c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	if s.undone.Load() {
		types := make([]string, len(c.Types))
		for i := range types {
			types[i], _, _ = strings.Cut(c.Types[i], "@")
		}
		c.Types = types
	}
	return s.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
}

type half struct{ inside }

func (s *half) Notify(self any, f func(storage.Notice)) func() {
	return s.Storage.Notify(self, func(n storage.Notice) {
		n.Ended = n.Ended[:len(n.Ended)/2]
		f(n)
	})
}

// generous lets one job more run of each key that bounds how many do.
func generous(s inside) storage.Storage {
	for _, l := range rateLimits {
		if l.Concurrency++; l.Concurrency > 1 {
			name := storage.LimitName{Kind: storage.LimitKey, Name: l.Key}
			if err := s.SetLimit(context.Background(), time.Time{}, name, l, time.Time{}); err != nil {
				panic(err)
			}
		}
	}
	return s
}
