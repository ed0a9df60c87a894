package storagetest

import (
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// waitingSeams are faults of storages that move waiting jobs in a second step: jobs that
// move late, twice or never. They are caught too if the storage works job by job.
var waitingSeams = map[string]func(s *seam){
	"Settle ends the job, then counts its end": func(s *seam) {
		s.settle = func(now time.Time, changes []storage.Change) (out []storage.Settled) {
			for _, c := range changes {
				out = append(out, s.settleInTwo(now, &c, func(ended []*refJob) []storage.Record {
					s.open()
					s.ends = ended
					return s.countEnds(now)
				}))
			}
			return out
		}
	},
	"Settle reads the counts, then writes them": func(s *seam) {
		s.settle = func(now time.Time, changes []storage.Change) (out []storage.Settled) {
			for _, c := range changes {
				read := make(map[string]*ojs.Dependencies)
				for _, j := range s.jobs {
					read[j.rec.ID] = j.rec.Dependencies
				}
				out = append(out, s.settleInTwo(now, &c, func(ended []*refJob) []storage.Record {
					s.open()
					for _, e := range ended {
						for _, j := range s.jobs {
							if slices.Contains(j.waits, awaits(e)) && j.rec.State == ojs.StatePending {
								j.rec.Dependencies = read[j.rec.ID]
							}
						}
					}
					s.ends = ended
					return s.countEnds(now)
				}))
			}
			return out
		}
	},
	"Settle decides which jobs move, then moves them": func(s *seam) {
		s.settle = func(now time.Time, changes []storage.Change) (out []storage.Settled) {
			for _, c := range changes {
				trial := (&model{ref: s.Reference}).copy().ref
				moved := trial.settleThen(now, &storage.Change{Record: c.Record}).Moved
				out = append(out, s.settleInTwo(now, &c, func(ended []*refJob) []storage.Record {
					s.open()
					s.ends = ended
					s.countEnds(now)
					for _, r := range moved {
						if j := s.find(r.ID); j != nil {
							j.rec = r.Copy()
							s.moved(j, false)
						}
					}
					s.ends = nil
					return moved
				}))
			}
			return out
		}
	},
	"Due expires a job, then counts its end": func(s *seam) {
		s.due = func(now time.Time, max int) storage.Due {
			trial := (&model{ref: s.Reference}).copy().ref
			for _, j := range trial.jobs {
				j.waits = nil
			}
			d, _ := trial.Due(background, now, max, nil)
			for i, j := range trial.jobs {
				j.waits = s.jobs[i].waits
			}
			s.jobs, s.seq = trial.jobs, trial.seq
			s.open()
			for _, r := range d.Expired {
				if j := s.find(r.ID); j != nil {
					s.ends = append(s.ends, j)
				}
			}
			d.Moved = s.countEnds(now)
			return d
		}
	},
	"Insert looks at the jobs to wait for, then stores": func(s *seam) {
		s.insert = func(now time.Time, batch []storage.Insert) (out []storage.Inserted, err error) {
			read := make(map[string]ojs.State)
			for _, j := range s.jobs {
				read[j.rec.ID] = j.rec.State
			}
			s.open()
			if err := s.insertable(batch); err != nil {
				return nil, err
			}
			ended := make(map[string]ojs.State) // since they were read
			for _, j := range s.jobs {
				if was, ok := read[j.rec.ID]; ok && !was.Terminal() && j.rec.State.Terminal() {
					ended[j.rec.ID], j.rec.State = j.rec.State, was
				}
			}
			err = s.try(func(trial *Reference) (err error) {
				out, err = trial.insertAll(now, batch)
				return err
			})
			for id, state := range ended {
				s.find(id).rec.State = state
			}
			return out, err
		}
	},
}

// settleInTwo makes a change without counting the jobs that it has ended, and has count
// do that.
func (s *seam) settleInTwo(now time.Time, c *storage.Change,
	count func(ended []*refJob) (moved []storage.Record)) storage.Settled {
	if len(c.Then) > 0 {
		return s.settleThen(now, c)
	}
	settled := s.Reference.settle(&c.Record)
	ended := s.ends
	s.ends = nil
	if settled.Err == nil {
		settled.Moved = count(ended)
	}
	return settled
}
