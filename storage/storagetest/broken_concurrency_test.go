package storagetest

import (
	"context"
	"flag"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Storages that are right as long as calls do not overlap: each makes one call in two
// steps. Between the steps other calls may come, as they may while a storage waits for a
// disk or a lock.

// stepFault settles and claims.
type stepFault func(
	now time.Time, to []*storage.Record, c storage.Claim, into []*storage.Record,
) ([]storage.Settled, int)

// seam is a Reference whose faults are the functions that are set.
type seam struct {
	Stepper
	insert       func(now time.Time, batch []storage.Insert) ([]storage.Inserted, error)
	claim        func(now time.Time, c storage.Claim) []storage.Record
	settle       func(now time.Time, changes []storage.Change) []storage.Settled
	extend       func(now time.Time, xs []storage.Extension) []string
	due          func(now time.Time, max int) storage.Due
	get          func(id string) (storage.Record, error)
	list         func(q storage.Query) (storage.Page, error)
	counts       func() []storage.Count
	remove       func(ids []string) (int, error)
	prune        func(p storage.Prune) storage.Pruned
	step         stepFault
	unclaim      func(held []storage.Held) int
	state        func(queue string, to ojs.QueueState) ojs.QueueState
	put          func(list []storage.Document) []uint64
	dueDocuments func(kind storage.Kind, now time.Time, max int) ([]storage.Document, time.Time)
	revive       func(now time.Time, batch []storage.Insert) ([]storage.Record, error)
	cancelAll    func(now time.Time, ids []string) (cancelled, moved []storage.Record, err error)
}

// open lets other calls come between two steps. The lock is held before and after.
func (s *seam) open() {
	s.mu.Unlock()
	for range 1 + rand.IntN(3) {
		runtime.Gosched()
	}
	s.mu.Lock()
}

func (s *seam) Insert(
	ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted,
) ([]storage.Inserted, error) {
	if s.insert == nil {
		return s.Reference.Insert(ctx, now, batch, dst)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out, err := s.insert(now, batch)
	return append(dst, out...), err
}

func (s *seam) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	if s.claim == nil {
		return s.Reference.Claim(ctx, now, c, dst)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(dst, s.claim(now, c)...), nil
}

func (s *seam) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	if s.settle == nil {
		return s.Reference.Settle(ctx, now, changes, dst)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(dst, s.settle(now, changes)...), nil
}

func (s *seam) Extend(ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error) {
	if s.extend == nil {
		return s.Reference.Extend(ctx, now, xs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.extend(now, xs), nil
}

func (s *seam) Due(ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
	if s.due == nil {
		return s.Reference.Due(ctx, now, max, buf)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.due(now, max), nil
}

func (s *seam) Get(ctx context.Context, id string) (storage.Record, error) {
	if s.get == nil {
		return s.Reference.Get(ctx, id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(id)
}

func (s *seam) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	if s.list == nil {
		return s.Reference.List(ctx, q)
	}
	return s.list(q)
}

func (s *seam) Counts(ctx context.Context) ([]storage.Count, error) {
	if s.counts == nil {
		return s.Reference.Counts(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts(), nil
}

func (s *seam) Delete(ctx context.Context, ids []string) (int, error) {
	if s.remove == nil {
		return s.Reference.Delete(ctx, ids)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(ids)
}

func (s *seam) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	if s.prune == nil {
		return s.Reference.Prune(ctx, p)
	}
	return s.prune(p), nil
}

func (s *seam) SettleAndClaim(
	ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim,
	into []*storage.Record,
) ([]storage.Settled, int, error) {
	if s.step == nil {
		return s.Stepper.SettleAndClaim(ctx, now, to, dst, c, into)
	}
	out, n := s.step(now, to, c, into)
	return append(dst, out...), n, nil
}

func (s *seam) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	if s.unclaim == nil {
		return s.Stepper.Unclaim(ctx, now, held)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unclaim(held), nil
}

func (s *seam) SetQueueState(ctx context.Context, queue string, to ojs.QueueState) (ojs.QueueState, error) {
	if s.state == nil {
		return s.Reference.SetQueueState(ctx, queue, to)
	}
	return s.state(queue, to), nil
}

func (s *seam) PutDocuments(ctx context.Context, kind storage.Kind,
	list []storage.Document) ([]uint64, error) {
	if s.put == nil || kind != storage.KindCron {
		return s.Reference.PutDocuments(ctx, kind, list)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(list), nil
}

func (s *seam) DueDocuments(
	ctx context.Context, kind storage.Kind, now time.Time, after *storage.Document, max int,
) ([]storage.Document, time.Time, error) {
	if s.dueDocuments == nil {
		return s.Reference.DueDocuments(ctx, kind, now, after, max)
	}
	due, next := s.dueDocuments(kind, now, max)
	return due, next, nil
}

func (s *seam) CancelAll(
	ctx context.Context, now time.Time, ids []string,
) (cancelled, moved []storage.Record, err error) {
	if s.cancelAll == nil {
		return s.Reference.CancelAll(ctx, now, ids)
	}
	return s.cancelAll(now, ids)
}

func (s *seam) Revive(ctx context.Context, now time.Time, batch []storage.Insert) ([]storage.Record, error) {
	if s.revive == nil {
		return s.Reference.Revive(ctx, now, batch)
	}
	return s.revive(now, batch)
}

// trial returns a copy to try a call on.
func (s *seam) trial() *Reference {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copy()
}

// alone makes a call of the Reference, which takes the lock, in a step that holds it.
func (s *seam) alone(f func()) {
	s.mu.Unlock()
	f()
	s.mu.Lock()
}

var background = context.Background()

// seams are the faults by what is done in two steps.
var seams = map[string]func(s *seam){
	"PutDocuments compares the version, then stores": func(s *seam) {
		s.put = func(list []storage.Document) []uint64 {
			crons := s.of(storage.KindCron)
			fits := make([]bool, len(list))
			for i, d := range list {
				fits[i] = crons[d.Name].Version == d.Version
			}
			s.open()
			versions := make([]uint64, len(list))
			for i, d := range list {
				switch {
				case len(d.Data) == 0:
					versions[i] = crons[d.Name].Version
					delete(crons, d.Name)
				case fits[i]:
					s.lastVersion++
					d.Version, versions[i] = s.lastVersion, s.lastVersion
					crons[d.Name] = d
				}
			}
			return versions
		}
	},
	"CancelAll answers, then cancels": func(s *seam) {
		s.cancelAll = func(now time.Time, ids []string) (cancelled, moved []storage.Record, err error) {
			cancelled, moved, err = s.trial().CancelAll(background, now, ids)
			runtime.Gosched()
			_, _, _ = s.Reference.CancelAll(background, now, ids)
			return cancelled, moved, err
		}
	},
	"Revive brings back job by job": func(s *seam) {
		s.revive = func(now time.Time, batch []storage.Insert) ([]storage.Record, error) {
			moved, err := s.trial().Revive(background, now, batch)
			if err != nil || storage.DependsOn(batch) {
				return s.Reference.Revive(background, now, batch)
			}
			for i := range batch {
				_, _ = s.Reference.Revive(background, now, batch[i:i+1])
				runtime.Gosched()
			}
			return moved, nil
		}
	},
	"Claim finds the round, then serves it": func(s *seam) {
		s.claim = func(now time.Time, c storage.Claim) []storage.Record {
			before := maps.Clone(s.served)
			recs := s.Reference.claim(now, c, false)
			after := s.served
			s.served = before
			s.open()
			maps.Copy(s.served, after)
			return recs
		}
	},
	"PutDocuments looks, then deletes": func(s *seam) {
		s.put = func(list []storage.Document) []uint64 {
			crons := s.of(storage.KindCron)
			if len(list) != 1 || len(list[0].Data) > 0 {
				var versions []uint64
				s.alone(func() {
					versions, _ = s.Reference.PutDocuments(background, storage.KindCron, list)
				})
				return versions
			}
			was := crons[list[0].Name].Version
			s.open()
			delete(crons, list[0].Name)
			return []uint64{was}
		}
	},
	"DueDocuments reads the documents, then the next time": func(s *seam) {
		s.dueDocuments = func(kind storage.Kind, now time.Time, max int) ([]storage.Document, time.Time) {
			due, next, _ := s.Reference.DueDocuments(background, kind, now, nil, max)
			runtime.Gosched()
			if len(due) > 0 {
				_, next, _ = s.Reference.DueDocuments(background, kind, time.Time{}, &due[len(due)-1], 1)
			}
			return due, next
		}
	},
	"Extend reads the job, then writes it back": func(s *seam) {
		s.extend = func(now time.Time, xs []storage.Extension) (lost []string) {
			var changed []storage.Record
			for _, x := range xs {
				j := s.find(x.ID)
				if j == nil || j.rec.State != ojs.StateActive || j.rec.Version != x.Version {
					lost = append(lost, x.ID)
					continue
				}
				r := j.rec.Copy()
				r.Extend(now, x)
				changed = append(changed, r)
			}
			s.open()
			for i := range changed {
				if j := s.find(changed[i].ID); j != nil {
					j.rec = changed[i]
					s.seq++
					j.since = s.seq
				}
			}
			return lost
		}
	},
	"Extend does not look at the version again": func(s *seam) {
		s.extend = func(now time.Time, xs []storage.Extension) (lost []string) {
			for _, x := range xs {
				j := s.find(x.ID)
				fits := j != nil && j.rec.State == ojs.StateActive && j.rec.Version == x.Version
				s.open()
				if j = s.find(x.ID); !fits || j == nil || j.rec.State != ojs.StateActive {
					lost = append(lost, x.ID)
					continue
				}
				j.rec.Extend(now, x)
				s.seq++
				j.since = s.seq
			}
			return lost
		}
	},
	"Settle compares the version, then changes": func(s *seam) {
		s.settle = func(now time.Time, changes []storage.Change) (out []storage.Settled) {
			for _, c := range changes {
				trial := (&model{ref: s.Reference}).copy().ref
				result := trial.settle(&c.Record)
				s.open()
				if j := s.find(c.Record.ID); result.Err == nil && j != nil {
					j.rec = c.Record.Copy()
					j.rec.Version++
					s.moved(j, false)
				}
				out = append(out, result)
			}
			return out
		}
	},
	"Settle changes the job, then stores what follows": func(s *seam) {
		s.settle = func(now time.Time, changes []storage.Change) (out []storage.Settled) {
			for _, c := range changes {
				trial := (&model{ref: s.Reference}).copy().ref
				result := trial.settleThen(now, &c)
				if result.Err == nil {
					s.Reference.settle(&c.Record)
					if len(c.Then) > 0 {
						s.open()
						result.Then, result.Err = s.insertAll(now, c.Then)
					}
				}
				out = append(out, result)
			}
			return out
		}
	},
	"Settle changes the state, then the rest": func(s *seam) {
		s.settle = func(now time.Time, changes []storage.Change) (out []storage.Settled) {
			for _, c := range changes {
				result := s.Reference.settle(&c.Record)
				if j := s.find(c.Record.ID); result.Err == nil && j != nil {
					rest := j.rec.FinishedAt
					j.rec.FinishedAt = time.Time{}
					s.open()
					j.rec.FinishedAt = rest
				}
				out = append(out, result)
			}
			return out
		}
	},
	"Delete looks at the state, then deletes": func(s *seam) {
		s.remove = func(ids []string) (n int, err error) {
			for _, id := range ids {
				if j := s.find(id); j != nil && !j.rec.State.Terminal() {
					return 0, &ojs.TransitionError{ID: id, From: j.rec.State, To: "deleted"}
				}
			}
			s.open()
			before := len(s.jobs)
			s.Reference.remove(func(j *refJob) bool { return slices.Contains(ids, j.rec.ID) })
			return before - len(s.jobs), nil
		}
	},
	"Delete deletes one job after the other": func(s *seam) {
		s.remove = func(ids []string) (n int, err error) {
			s.alone(func() {
				for _, id := range ids {
					var one int
					if one, err = s.Reference.Delete(background, []string{id}); err != nil {
						return
					}
					n += one
					runtime.Gosched()
				}
			})
			return n, err
		}
	},
	"Prune selects, then deletes": func(s *seam) {
		s.prune = func(p storage.Prune) storage.Pruned {
			s.mu.Lock()
			trial := (&model{ref: s.Reference}).copy().ref
			out, _ := trial.Prune(background, p)
			s.open()
			s.Reference.remove(func(j *refJob) bool { return slices.Contains(out.IDs, j.rec.ID) })
			s.mu.Unlock()
			return out
		}
	},
	"Insert looks for the id, then stores": func(s *seam) {
		s.insert = func(now time.Time, batch []storage.Insert) ([]storage.Inserted, error) {
			for i := range batch {
				if j := s.find(batch[i].Record.ID); j != nil {
					return nil, &ojs.DuplicateError{ID: j.rec.ID, State: j.rec.State}
				}
			}
			s.open()
			return s.insertAll(now, batch)
		}
	},
	"Insert looks for equal jobs, then stores": func(s *seam) {
		s.insert = func(now time.Time, batch []storage.Insert) (out []storage.Inserted, err error) {
			trial := (&model{ref: s.Reference}).copy().ref
			if _, err := trial.Insert(background, now, batch, nil); err != nil {
				return nil, err
			}
			var there []string // for which the result is known
			for _, j := range s.jobs {
				there = append(there, j.rec.ID)
			}
			s.open()
			hidden := s.jobs
			s.jobs = slices.DeleteFunc(slices.Clone(s.jobs), func(j *refJob) bool {
				return !slices.Contains(there, j.rec.ID)
			})
			out, err = s.insertAll(now, batch)
			for _, j := range hidden {
				if !slices.Contains(s.jobs, j) {
					s.jobs = append(s.jobs, j)
				}
			}
			slices.SortFunc(s.jobs, func(a, b *refJob) int { return a.inserted - b.inserted })
			return out, err
		}
	},
	"Insert counts the queue, then stores": func(s *seam) {
		s.insert = func(now time.Time, batch []storage.Insert) (out []storage.Inserted, err error) {
			trial := (&model{ref: s.Reference}).copy().ref
			if _, err := trial.Insert(background, now, batch, nil); err != nil {
				return nil, err
			}
			s.open()
			batch = slices.Clone(batch)
			for i := range batch {
				if !batch[i].DropOldest && batch[i].MaxDepth > 0 {
					batch[i].MaxDepth = 1000
				}
			}
			s.alone(func() { out, err = s.Reference.Insert(background, now, batch, nil) })
			return out, err
		}
	},
	"Insert stores one job after the other": func(s *seam) {
		s.insert = func(now time.Time, batch []storage.Insert) (out []storage.Inserted, err error) {
			trial := (&model{ref: s.Reference}).copy().ref
			if _, err := trial.Insert(background, now, batch, nil); err != nil {
				return nil, err
			}
			for i := range batch {
				s.alone(func() { out, err = s.Reference.Insert(background, now, batch[i:i+1], out) })
				if err != nil {
					return out, err
				}
				s.open()
			}
			return out, nil
		}
	},
	"Insert looks at the state of the queue, then stores": func(s *seam) {
		s.insert = func(now time.Time, batch []storage.Insert) (out []storage.Inserted, err error) {
			states := maps.Clone(s.states)
			s.open()
			changed := s.states
			s.states = states
			defer func() { s.states = changed }()
			trial := (&model{ref: s.Reference}).copy().ref
			if out, err = trial.Insert(background, now, batch, nil); err == nil {
				s.jobs, s.seq = trial.jobs, trial.seq
			}
			return out, err
		}
	},
	"Claim reads, then marks": func(s *seam) {
		s.claim = func(now time.Time, c storage.Claim) (out []storage.Record) {
			trial := (&model{ref: s.Reference}).copy().ref
			recs := trial.claim(now, c, false)
			s.open()
			for i := range recs {
				if j := s.find(recs[i].ID); j != nil {
					j.rec = recs[i].Copy()
					s.moved(j, false)
				}
			}
			return recs
		}
	},
	"Claim marks one job after the other": func(s *seam) {
		s.claim = func(now time.Time, c storage.Claim) (out []storage.Record) {
			left := c.Max
			for c.Max = 1; left > 0; left-- {
				out = append(out, s.Reference.claim(now, c, false)...)
				s.open()
			}
			return out
		}
	},
	"Claim looks for paused queues, then claims": func(s *seam) {
		s.claim = func(now time.Time, c storage.Claim) (out []storage.Record) {
			states := maps.Clone(s.states)
			s.open()
			changed := s.states
			s.states = states
			defer func() { s.states = changed }()
			return s.Reference.claim(now, c, false)
		}
	},
	"Due reads, then changes": func(s *seam) {
		s.due = func(now time.Time, max int) storage.Due {
			trial := (&model{ref: s.Reference}).copy().ref
			d, _ := trial.Due(background, now, max, nil)
			s.open()
			for _, r := range slices.Concat(d.Promoted, d.Expired, d.Stalled) {
				if j := s.find(r.ID); j != nil {
					j.rec = r.Copy()
					s.moved(j, false)
				}
			}
			return d
		}
	},
	"Get reads the header, then the rest": func(s *seam) {
		s.get = func(id string) (storage.Record, error) {
			j := s.find(id)
			if j == nil {
				return storage.Record{}, ojs.ErrNotFound
			}
			r := j.rec.Copy()
			s.open()
			if j = s.find(id); j != nil {
				r.Version, r.LeaseUntil = j.rec.Version, j.rec.LeaseUntil
			}
			return r, nil
		}
	},
	"List reads one half, then the other": func(s *seam) {
		s.list = func(q storage.Query) (storage.Page, error) {
			p, err := s.Reference.List(background, q)
			if len(p.Records) > 1 {
				runtime.Gosched()
				late, _ := s.Reference.List(background, q)
				half := len(p.Records) / 2
				if len(late.Records) >= half {
					p.Records = append(p.Records[:half], late.Records[half:]...)
					p.Next = late.Next
				}
			}
			return p, err
		}
	},
	"Counts counts one state after the other": func(s *seam) {
		s.counts = func() (out []storage.Count) {
			for _, state := range ojs.AllStates() {
				s.alone(func() {
					list, _ := s.Reference.Counts(background)
					for _, c := range list {
						if c.State == state {
							out = append(out, c)
						}
					}
				})
				s.open()
			}
			return out
		}
	},
	"SettleAndClaim settles, then claims": func(s *seam) {
		s.step = func(
			now time.Time, to []*storage.Record, c storage.Claim, into []*storage.Record,
		) ([]storage.Settled, int) {
			out, _, _ := s.settleAndClaim(background, now, to, nil, c, nil)
			runtime.Gosched()
			_, n, _ := s.settleAndClaim(background, now, nil, nil, c, into)
			return out, n
		}
	},
	"SettleAndClaim settles one after the other": func(s *seam) {
		s.step = func(
			now time.Time, to []*storage.Record, c storage.Claim, into []*storage.Record,
		) (out []storage.Settled, n int) {
			for i := range to {
				out, _, _ = s.settleAndClaim(background, now, to[i:i+1], out, c, nil)
				runtime.Gosched()
			}
			_, n, _ = s.settleAndClaim(background, now, nil, nil, c, into)
			return out, n
		}
	},
	"Unclaim looks, then undoes": func(s *seam) {
		s.unclaim = func(held []storage.Held) (n int) {
			for _, h := range held {
				j := s.find(h.ID)
				if j == nil || j.rec.State != ojs.StateActive || j.rec.Version != h.Version {
					continue
				}
				s.open()
				j.rec.Unclaim()
				s.moved(j, true)
				n++
			}
			return n
		}
	},
	"SetQueueState reads the state, then sets it": func(s *seam) {
		s.state = func(queue string, to ojs.QueueState) ojs.QueueState {
			states, _ := s.QueueStates(background)
			runtime.Gosched()
			_, _ = s.Reference.SetQueueState(background, queue, to)
			if was, ok := states[queue]; ok {
				return was
			}
			return ojs.QueueActive
		}
	},
}

// stale is a handle that answers Get from what it has read before.
type stale struct {
	storage.Storage
	mu   sync.Mutex
	kept map[string]storage.Record
}

func (s *stale) Unwrap() storage.Storage { return s.Storage }

func (s *stale) Get(ctx context.Context, id string) (storage.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.kept[id]; ok {
		return r.Copy(), nil
	}
	r, err := s.Storage.Get(ctx, id)
	if err == nil {
		s.kept[id] = r.Copy()
	}
	return r, err
}

func seamConfig(fault func(s *seam)) Config {
	return Config{
		Open: func(testing.TB) storage.Storage {
			s := &seam{Stepper: Stepper{NewReference()}}
			fault(s)
			return s
		},
		SettleClaims: true,
	}
}

// Each storage with a seam is caught by Histories in its default budget, with as many
// seeds as the flag -rounds asks for.
func TestSeamsAreCaught(t *testing.T) {
	SkipWatched(t)
	faults := make(map[string]Config)
	for name, fault := range seams {
		faults[name] = seamConfig(fault)
	}
	for name, fault := range waitingSeams {
		faults[name] = seamConfig(fault)
		byJob := faults[name]
		byJob.JobByJob = true
		faults[name+", job by job"] = byJob
	}
	faults["a second handle remembers"] = Config{
		Open: func(testing.TB) storage.Storage { return NewReference() },
		Another: func(_ testing.TB, s storage.Storage) storage.Storage {
			return &stale{Storage: s, kept: make(map[string]storage.Record)}
		},
	}
	rounds, err := strconv.ParseUint(flag.Lookup("rounds").Value.String(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range faults {
		t.Run(name, func(t *testing.T) {
			for seed := range rounds {
				b := defaultBudget
				b.histories, b.shorter, b.time = math.MaxInt, 0, time.Minute // most take seconds
				switch found, st, err := search(cfg, seed+1, b); {
				case err != nil:
					t.Fatal(err)
				case found == nil:
					t.Errorf("seed %d: not caught by %v", seed+1, st)
				case !strings.Contains(found.String(), "The longest order"):
					t.Errorf("seed %d: %s", seed+1, found)
				}
			}
		})
	}
}
