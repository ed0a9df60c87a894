package keyed

import (
	"bytes"
	"testing"

	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Waiting returns how many calls wait for a transaction.
func (s *Storage) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// Tables whose values the tests damage.
const (
	JobTable      = byte(jobTable)
	QueueTable    = byte(queueTable)
	DocumentTable = byte(documentTable)
	AsideTable    = byte(asideTable)
	ReadyTable    = byte(readyTable)
	HeldTable     = byte(heldTable)
)

// StoredCron is the value of a recurring entry.
func StoredCron(c *storage.Cron) []byte {
	return append(key{}.time(c.NextRun).uint(c.Version), fail.Must(rows.EncodeCron(c))...)
}

// KeepFronts has a storage keep fronts for more than n backlogs.
func KeepFronts(s *Storage, n int) { s.manyBacklogs = int64(n) }

// CheckFronts holds that fronts are kept if there are many backlogs, and are not behind
// the first entry of a backlog.
func CheckFronts(tb testing.TB, s *Storage) {
	tb.Helper()
	_, err := view(tb.Context(), s, func(t *tx) struct{} {
		b, list := t.backlogState(), t.backlogs("")
		if int(b.n) != len(list) || !b.fronts && b.n > s.manyBacklogs {
			tb.Errorf("%d backlogs are counted as %+v", len(list), b)
		}
		fronts := 0
		for _, of := range list {
			front := t.get(availableKey(of.key))[numberLen:]
			if len(front) > 0 {
				fronts += 3
			}
			first, _ := t.first(readyKey(of.key))
			if b.fronts && first != nil && (len(front) == 0 || bytes.Compare(front, first) > 0) {
				tb.Errorf("the front of %s in %s is %x, behind its first job %x",
					of.jobType, of.queue, front, first)
			}
			for _, scope := range []key{
				scopeKey(everywhere, ""), scopeKey(inQueue, of.queue), scopeKey(ofType, of.jobType),
			} {
				if len(front) > 0 && t.get(append(append(scope, front...), of.key...)) == nil {
					tb.Errorf("the front of %s in %s is not where it is", of.jobType, of.queue)
				}
			}
		}
		for range t.scan(newKey(frontTable), nil) {
			fronts--
		}
		if fronts != 0 {
			tb.Errorf("%d fronts are missing", fronts)
		}
		return struct{}{}
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// CheckLanes holds that each available job is in one of the tables ready and held, that a
// head is the first of its lane, and that counters and lanes count the jobs.
func CheckLanes(tb testing.TB, s *Storage) {
	tb.Helper()
	_, err := view(tb.Context(), s, func(t *tx) struct{} {
		active := make(map[string]int)
		jobs := make(map[*lane]int)
		first := make(map[*lane]string)
		entries := 0
		for seq := range t.scan(newKey(jobTable), nil) {
			j := t.load(seq)
			name := limitOf(&j.Record)
			switch {
			case name != "" && j.State == rows.State(rows.Active):
				active[name]++
			case j.inLane():
				c, l := t.laneOf(j)
				rank := string(j.rank(nil))
				jobs[l]++
				if at := first[l]; at == "" || rank < at {
					first[l] = rank
				}
				if t.get(l.entry(c, rank)) == nil {
					tb.Errorf("job %s is not where its lane has it", j.ID)
				}
				entries++
			case j.State == rows.State(rows.Available):
				entries++
			}
		}
		for range t.scan(newKey(readyTable), nil) {
			entries--
		}
		for range t.scan(newKey(heldTable), nil) {
			entries--
		}
		if entries != 0 {
			tb.Errorf("%d available jobs more than entries of them", entries)
		}
		for name := range t.scan(newKey(limitTable).byte(kinds[storage.LimitKey]), nil) {
			c := t.key(string(name))
			if c.Active != active[c.Name] {
				tb.Errorf("key %s counts %d active jobs, not %d", c.Name, c.Active, active[c.Name])
			}
			for _, l := range t.all(c) {
				if l.n != jobs[l] || l.head != "" && l.head != first[l] {
					tb.Errorf("lane %+v has %d jobs", l, jobs[l])
				}
				delete(jobs, l)
			}
		}
		for l, n := range jobs {
			if n > 0 {
				tb.Errorf("lane %+v is not known", l)
			}
		}
		return struct{}{}
	})
	if err != nil {
		tb.Fatal(err)
	}
}
