package storagetest

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// The storages of the files broken_random_*_test.go are the reference with one fault
// each, in what they decide or remember: no answer is altered afterwards.

// doctored is a reference with a fault: a nil function changes nothing.
type doctored struct {
	Stepper
	now    func(d *doctored, now time.Time) time.Time // what the storage takes for now
	insert func(d *doctored, now time.Time, batch []storage.Insert) ([]storage.Inserted, error)
	claim  *choice
	settle func(d *doctored, to *storage.Record, j *refJob) // after a change was applied
	due    *waits
	get    func(d *doctored, id string) error
	counts func(d *doctored, list []storage.Count) []storage.Count
	gone   func(d *doctored, floor uint64, deleted []*refJob) // after a deletion
	reopen func(d *doctored)

	index map[int]*refJob // by insertion: each job as it came into its state
	late  time.Time       // the latest now
	fresh map[string]bool // inserted by the latest call
}

// asked is what a claim asks about a job.
type asked struct {
	queue string
	c     storage.Claim
	now   time.Time
}

func (a asked) claimable(d *doctored, j *refJob) bool {
	return d.Reference.claimable(j, a.queue, a.c, a.now)
}

// choice is how a storage finds the job to claim. A nil function is the right one.
type choice struct {
	seen     func(d *doctored, j *refJob) storage.Record // the job as the claim sees it
	eligible func(d *doctored, j *refJob, a asked) bool
}

// waits is what a storage takes for the time that a job waits for, and in which order
// jobs that wait for one time come.
type waits struct {
	at     func(d *doctored, j *refJob) time.Time
	before func(a, b *refJob) int
	came   func(d *doctored, j *refJob, from ojs.State) // after a promotion
}

func (d *doctored) Capabilities() storage.Capabilities {
	c := d.Reference.Capabilities()
	c.Durable = true
	return c
}

func (d *doctored) at(now time.Time) time.Time {
	if d.now != nil {
		now = d.now(d, now)
	}
	return now
}

// reindex notes which jobs have come into a state.
func (d *doctored) reindex() {
	if d.index == nil {
		d.index = make(map[int]*refJob)
	}
	for _, j := range d.jobs {
		was := d.index[j.inserted]
		if was == nil || was.rec.State != j.rec.State || j.rec.Attempt != was.rec.Attempt {
			c := *j
			d.index[j.inserted] = &c
		}
	}
	if len(d.index) == len(d.jobs) {
		return
	}
	there := make(map[int]bool)
	for _, j := range d.jobs {
		there[j.inserted] = true
	}
	maps.DeleteFunc(d.index, func(n int, _ *refJob) bool { return !there[n] })
}

func (d *doctored) Insert(
	ctx context.Context,
	now time.Time,
	batch []storage.Insert,
	dst []storage.Inserted,
) ([]storage.Inserted, error) {
	defer d.reindex()
	now = d.at(now)
	clear(d.fresh)
	for _, in := range batch {
		d.fresh[in.Record.ID] = in.IDIsNew
	}
	if d.insert != nil {
		out, err := d.insert(d, now, batch)
		return append(dst, out...), err
	}
	return d.Reference.Insert(ctx, now, batch, dst)
}

func (d *doctored) Claim(
	ctx context.Context,
	now time.Time,
	c storage.Claim,
	dst []storage.Record,
) ([]storage.Record, error) {
	defer d.reindex()
	now = d.at(now)
	defer clear(d.fresh)
	if d.claim != nil {
		d.choose = d.best
	}
	return d.Reference.Claim(ctx, now, c, dst)
}

// best is the job that a doctored claim takes next from a queue.
func (d *doctored) best(q string, c storage.Claim, now time.Time) (best *refJob) {
	var bestSeen storage.Record
	for _, j := range d.jobs {
		seen := j.rec
		if d.claim.seen != nil {
			seen = d.claim.seen(d, j)
		}
		can := d.claimable
		if d.claim.eligible != nil {
			can = func(j *refJob, queue string, c storage.Claim, now time.Time) bool {
				return d.claim.eligible(d, j, asked{queue, c, now})
			}
		}
		as := *j
		if as.rec = seen; j.rec.State != ojs.StateAvailable || !can(&as, q, c, now) {
			continue
		}
		order := -1
		if best != nil {
			if order = cmp.Compare(bestSeen.Priority, seen.Priority); order == 0 {
				order = cmp.Or(cmp.Compare(j.stands(), best.stands()), cmp.Compare(j.entered, best.entered))
			}
		}
		if order < 0 {
			best, bestSeen = j, seen
		}
	}
	return best
}

func (d *doctored) Settle(
	ctx context.Context,
	now time.Time,
	changes []storage.Change,
	dst []storage.Settled,
) ([]storage.Settled, error) {
	defer d.reindex()
	n := len(dst)
	dst, err := d.Reference.Settle(ctx, d.at(now), changes, dst)
	for i, s := range dst[n:] {
		if j := d.find(changes[i].Record.ID); s.Err == nil && j != nil && d.settle != nil {
			d.settle(d, &changes[i].Record, j)
		}
	}
	return dst, err
}

func (d *doctored) SettleAndClaim(
	ctx context.Context,
	now time.Time,
	to []*storage.Record,
	dst []storage.Settled,
	c storage.Claim,
	into []*storage.Record,
) ([]storage.Settled, int, error) {
	defer d.reindex()
	return d.Stepper.SettleAndClaim(ctx, d.at(now), to, dst, c, into)
}

func (d *doctored) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	defer d.reindex()
	return d.Stepper.Unclaim(ctx, d.at(now), held)
}

func (d *doctored) Extend(ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error) {
	return d.Reference.Extend(ctx, d.at(now), xs)
}

func (d *doctored) Due(
	ctx context.Context,
	now time.Time,
	most int,
	buf []storage.Record,
) (storage.Due, error) {
	defer d.reindex()
	now = d.at(now)
	if d.due == nil {
		return d.Reference.Due(ctx, now, most, buf)
	}
	var out storage.Due
	for {
		j, at := d.first()
		if out.Next = at; j == nil {
			return out, nil
		}
		if most == 0 || at.After(now) {
			return out, nil
		}
		most--
		switch {
		case j.rec.Expired(now):
			j.rec.Expire(now)
			out.Expired = append(out.Expired, j.rec.Copy())
		case j.rec.State == ojs.StateActive:
			j.rec.TakeOver(now)
			out.Stalled = append(out.Stalled, j.rec.Copy())
		case j.rec.State == ojs.StateScheduled || j.rec.State == ojs.StateRetryable:
			from := j.rec.State
			j.rec.Promote(now)
			out.Promoted = append(out.Promoted, j.rec.Copy())
			d.moved(j, false)
			if d.due.came != nil {
				d.due.came(d, j, from)
			}
			d.reindex()
			continue
		default: // it waits for nothing: a fault has taken it for due
			j.rec.Version++
		}
		d.moved(j, false)
		out.Moved = append(out.Moved, d.countEnds(now)...)
		d.reindex()
	}
}

// first is the job that a doctored Due comes to first, and when.
func (d *doctored) first() (first *refJob, when time.Time) {
	for _, j := range d.jobs {
		at := j.rec.WakeAt()
		if d.due.at != nil {
			at = d.due.at(d, j)
		}
		if at.IsZero() {
			continue
		}
		order := -1
		if first != nil {
			if order = at.Compare(when); order == 0 {
				if order = cmp.Compare(j.since, first.since); d.due.before != nil {
					order = d.due.before(j, first)
				}
			}
		}
		if order < 0 {
			first, when = j, at
		}
	}
	return first, when
}

func (d *doctored) Get(ctx context.Context, id string) (storage.Record, error) {
	if d.get != nil {
		if err := d.get(d, id); err != nil {
			return storage.Record{}, err
		}
	}
	return d.Reference.Get(ctx, id)
}

func (d *doctored) Counts(ctx context.Context) ([]storage.Count, error) {
	list, err := d.Reference.Counts(ctx)
	if d.counts != nil {
		list = d.counts(d, list)
	}
	return list, err
}

// deleting tells a fault of what a call deletes.
func (d *doctored) deleting(f func()) {
	floor, before := d.floor, slices.Clone(d.jobs)
	f()
	if d.gone != nil {
		deleted := slices.DeleteFunc(before, func(j *refJob) bool { return slices.Contains(d.jobs, j) })
		if len(deleted) > 0 {
			d.gone(d, floor, deleted)
		}
	}
}

func (d *doctored) Delete(ctx context.Context, ids []string) (n int, err error) {
	d.deleting(func() { n, err = d.Reference.Delete(ctx, ids) })
	return n, err
}

func (d *doctored) Prune(ctx context.Context, p storage.Prune) (out storage.Pruned, err error) {
	d.deleting(func() { out, err = d.Reference.Prune(ctx, p) })
	return out, err
}

// randomFault makes a storage wrong in one way.
type randomFault struct {
	name   string
	caught string // the case that notices
	wrong  func(d *doctored)
}

var randomFaults []randomFault

func registerRandom(of []randomFault) struct{} {
	randomFaults = append(randomFaults, of...)
	return struct{}{}
}

func doctoredConfig(wrong func(d *doctored)) Config {
	return Config{
		SettleClaims: true,

		Open: func(testing.TB) storage.Storage {
			d := &doctored{
				Stepper: Stepper{NewReference()},
				fresh:   make(map[string]bool),
			}
			wrong(d)
			return d
		},
		Reopen: func(_ testing.TB, s storage.Storage) storage.Storage {
			if d, ok := s.(*doctored); ok && d.reopen != nil {
				d.reopen(d)
			}
			return s
		},
	}
}

// withFlags sets flags while f runs.
func withFlags(values map[string]string, f func()) {
	for name, value := range values {
		fl := flag.Lookup(name)
		old := fl.Value.String()
		_ = fl.Value.Set(value)
		defer func() { _ = fl.Value.Set(old) }()
	}
	f()
}

// Every fault is noticed as often as -rounds says, each time with a seed of its own.
func TestRandomFaultsAreCaught(t *testing.T) {
	SkipWatched(t)
	rounds := 1
	_, _ = fmt.Sscan(flag.Lookup("rounds").Value.String(), &rounds)
	for _, f := range randomFaults {
		t.Run(f.name, func(t *testing.T) {
			cfg := doctoredConfig(f.wrong)
			for range rounds {
				if !provesWrong(cfg, f.caught) {
					t.Errorf("not noticed by %s", f.caught)
				}
			}
		})
	}
}

// provesWrong reports whether a case notices that a storage is wrong.
func provesWrong(cfg Config, id string) bool {
	i := slices.IndexFunc(Cases(), func(c Case) bool { return c.ID == id })
	return i >= 0 && len(Prove(cfg, Cases()[i])) > 0
}

// A doctored storage without a fault is sound: what is noticed is the fault.
func TestDoctoredStorageIsSound(t *testing.T) {
	withFlags(map[string]string{"rapid.checks": "10"}, func() {
		Random(t, doctoredConfig(func(d *doctored) { d.claim, d.due = new(choice), new(waits) }))
	})
}
