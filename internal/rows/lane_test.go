package rows_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
)

// shelf has available jobs in order, and counts how many are looked at.
type shelf struct {
	jobs   []rows.Waiting
	types  []string
	paused []string
	now    int64
	looks  int
}

func order(a, b rows.Waiting) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Spot.Compare(b.Spot))
}

func (s *shelf) add(j rows.Waiting) {
	at, _ := slices.BinarySearchFunc(s.jobs, j, order)
	s.jobs = slices.Insert(s.jobs, at, j)
}

func (s *shelf) Behind(passed map[int]rows.Spot, n int) (found []rows.Waiting, err error) {
	for i := 0; i < len(s.jobs) && len(found) < n; i++ {
		j := &s.jobs[i]
		if spot, ok := passed[j.Priority]; ok && j.Spot.Compare(spot) <= 0 {
			continue // as an index would
		}
		s.looks++
		found = append(found, *j)
	}
	return found, nil
}

func (s *shelf) First(bounds []string) (found []rows.Waiting, err error) {
	for _, name := range bounds {
		s.looks++
		for i := range s.jobs {
			if j := &s.jobs[i]; j.Limit == name && s.may(j) {
				found = append(found, *j)
			}
		}
	}
	return found, nil
}

// doors are closed lanes whose jobs have these bounds.
type doors struct {
	*rows.ClosedLanes
	shut map[string]bool
}

func newDoors() doors { return doors{rows.NewClosedLanes(), make(map[string]bool)} }

func (d doors) close(bounds string) {
	d.Close(bounds, &ojs.RateLimit{Key: bounds}, rows.None)
	d.shut[bounds] = true
}

func (d doors) open(bounds string) {
	for _, l := range d.OfKey(bounds) {
		d.Open(l)
	}
	delete(d.shut, bounds)
}

func (s *shelf) may(j *rows.Waiting) bool {
	return (len(s.types) == 0 || slices.Contains(s.types, j.Type)) && !slices.Contains(s.paused, j.Queue) &&
		(j.Wake == rows.None || j.Wake > s.now)
}

// want is what a claim brings, found the long way.
func (s *shelf) want(d doors, n int) (seqs []int64) {
	for i := range s.jobs {
		j := &s.jobs[i]
		if len(seqs) == n {
			break
		}
		if s.may(j) && !d.shut[j.Limit] {
			seqs = append(seqs, j.Seq)
		}
	}
	return seqs
}

// A lane returns the same jobs as a check of every job would, with any changes between
// the claims.
func TestLane(t *testing.T) {
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var lanes rows.Lanes
		closed, s := newDoors(), &shelf{}
		var place int64
		for step := range 1500 {
			switch rng.IntN(6) {
			case 0, 1, 2:
				place++
				j := rows.Waiting{Seq: place, Queue: fmt.Sprint("q", rng.IntN(3)),
					Type: fmt.Sprint("t", rng.IntN(2)), Wake: rows.None}
				j.Priority, j.Place = rng.IntN(3)-1, place
				if rng.IntN(5) > 0 {
					j.Limit = fmt.Sprint("k", rng.IntN(12))
				}
				if rng.IntN(5) == 0 {
					j.Wake = s.now + int64(rng.IntN(20))
				}
				if rng.IntN(8) == 0 { // it joins a round
					j.Place, j.Own = 1+rng.Int64N(place), place
					lanes.Enter(j.Position)
				}
				s.add(j)
			case 3:
				bounds := fmt.Sprint("k", rng.IntN(12))
				if rng.IntN(3) == 0 {
					closed.open(bounds)
				} else {
					closed.close(bounds)
				}
				if rng.IntN(50) == 0 {
					for i := range 3000 { // more than is remembered
						closed.close(fmt.Sprint(i))
						closed.open(fmt.Sprint(i))
					}
				}
			case 4:
				s.now += int64(rng.IntN(4) - 1)
				if rng.IntN(10) == 0 {
					s.paused = nil
					if rng.IntN(2) == 0 {
						s.paused = []string{"q1"}
					}
				}
				if len(s.jobs) > 0 && rng.IntN(4) == 0 { // another claims or cancels one
					i := rng.IntN(len(s.jobs))
					s.jobs = slices.Delete(s.jobs, i, i+1)
				}
			case 5:
				s.types = nil
				if rng.IntN(3) == 0 {
					s.types = []string{"t1"}
				}
				n := 1 + rng.IntN(4)
				want := s.want(closed, n)
				lane := lanes.Of(closed.ClosedLanes, "", s.types, nil)
				picked, err := lane.Pick(s, rows.Wanted{Now: s.now, Types: s.types, Paused: s.paused, Max: n})
				if err != nil {
					t.Fatal(err)
				}
				var got []int64
				for i := range picked {
					got = append(got, picked[i].Seq)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d: %v and not %v", seed, step, got, want)
				}
				lost := int64(0) // to another process, that gives it back
				if len(got) > 0 && rng.IntN(4) == 0 {
					lost = got[rng.IntN(len(got))]
				}
				took := func(seq int64) bool { return seq != lost && slices.Contains(got, seq) }
				s.jobs = slices.DeleteFunc(s.jobs, func(j rows.Waiting) bool { return took(j.Seq) })
				lane.Took(took)
			}
		}
	}
}

// A claim reads a bounded number of jobs, for any number of skipped jobs and closed
// lanes.
func TestLaneLooks(t *testing.T) {
	const number = 20_000
	var lanes rows.Lanes
	closed, s := newDoors(), &shelf{}
	var place int64
	add := func(bounds string) {
		place++
		j := rows.Waiting{Seq: place, Queue: "q", Type: "x", Limit: bounds, Wake: rows.None}
		j.Place = place
		s.jobs = append(s.jobs, j)
	}
	for i := range number {
		bounds := fmt.Sprint("k", i)
		closed.close(bounds)
		add(bounds)
		add(bounds)
	}
	claim := func() int64 {
		lane := lanes.Of(closed.ClosedLanes, "", nil, nil)
		picked, _ := lane.Pick(s, rows.Wanted{Max: 1})
		if len(picked) == 0 {
			lane.Took(nil)
			return 0
		}
		got := picked[0].Seq
		s.jobs = slices.DeleteFunc(s.jobs, func(j rows.Waiting) bool { return j.Seq == got })
		lane.Took(func(seq int64) bool { return seq == got })
		return got
	}
	claim() // which skips all
	s.looks = 0
	for i := range 100 {
		add("")
		if claim() != place {
			t.Fatal("the job that may run is not found")
		}
		if bounds := fmt.Sprint("k", i); claim() != 0 {
			t.Fatal("a job of a closed lane is found")
		} else {
			closed.open(bounds)
			if claim() != int64(2*i+1) {
				t.Fatal("the job of a lane that has opened is not found")
			}
			closed.close(bounds)
		}
	}
	if s.looks > 1000 {
		t.Errorf("300 claims have looked at %d jobs", s.looks)
	}
}

// A job that becomes available in a place before those that a claim has seen is found, if
// its transaction was under way then; and a skipped job is checked again only while such
// transactions are under way.
func TestLaneLate(t *testing.T) {
	for _, late := range []int64{0, 1, 2, 3} { // claims after which it comes
		var lanes rows.Lanes
		closed, s := newDoors(), &shelf{}
		closed.close("k")
		add := func(place int64, bounds string) {
			j := rows.Waiting{Seq: place, Queue: "q", Type: "x", Limit: bounds, Wake: rows.None}
			j.Place = place
			s.add(j)
		}
		for place := range int64(100) {
			if place != 50 {
				add(place+1000, "k")
			}
		}
		oldest, next := uint64(10), uint64(12) // 10 and 11 are under way
		for n := range int64(14) {
			if n == late {
				add(1050, "")
				oldest = next
			}
			next++
			lane := lanes.Of(closed.ClosedLanes, "", nil, nil)
			lane.Begin(oldest, next)
			s.looks = 0
			picked, err := lane.Pick(s, rows.Wanted{Max: 1})
			if err != nil || (len(picked) == 1) != (n == late) {
				t.Fatalf("late by %d claims, claim %d: %v, %v", late, n, picked, err)
			}
			if n == late {
				s.jobs = slices.DeleteFunc(s.jobs,
					func(j rows.Waiting) bool { return j.Seq == picked[0].Seq })
			}
			lane.Took(func(int64) bool { return n == late })
			lane.End()
			if n < late { // it is still to come
				continue
			}
			oldest = next
		}
		if s.looks > 10 {
			t.Errorf("late by %d claims: the last claim has looked at %d jobs", late, s.looks)
		}
	}
}
