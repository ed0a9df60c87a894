package rows

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"

	"github.com/ojsengine/ojs/internal/versions"
)

// A claim skips jobs that it may not take: those whose rate limits admit nothing, above
// all, of which there may be a hundred thousand at the head of a queue. A Lane remembers
// the jobs that it has skipped, so that the next claim begins behind them. The cost of a
// claim then depends neither on their number, nor on that of the closed lanes.
//
// Invariants, for the jobs of the lane's queue and types that are available:
//
//  1. A job whose spot is at most behind[its priority] has been skipped: it has expired
//     by the time expired, or another lane is for it, or its bounds are in passed.
//  2. passed[bounds].first is not after the first passed job of these bounds.
//  3. Bounds that are in passed and not closed, as of the moment at, are in the heap open
//     under their first job.
//
// They hold as long as jobs become available in places behind all others, and keep their
// types, bounds and deadlines while they are available. Where something else happens, the
// lane is to be forgotten (Lanes.Forget, Lanes.Enter).

// Position is where an available job stands.
type Position struct {
	Priority int
	Spot
}

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(q.Priority, p.Priority), p.Spot.Compare(q.Spot))
}

// Spot is where a job stands among those of its priority. Jobs with a fairness key have
// the Place of their round, and are in the order of Own there.
type Spot struct{ Place, Own int64 }

// Compare is the order of claims.
func (s Spot) Compare(t Spot) int {
	return cmp.Or(cmp.Compare(s.Place, t.Place), cmp.Compare(s.Own, t.Own))
}

// Waiting is an available job, as a claim looks at it.
type Waiting struct {
	Seq int64
	Position
	Queue, Type, Key string
	Limit            string // its bounds, "" if it has no rate limit
	Wake             int64  // when it expires, or None
}

// Looker looks at the available jobs of a lane.
type Looker interface {
	// Behind returns the first n whose spots are behind those given, by priority, in
	// order. A priority that is not given has all of its jobs behind. The map is not to
	// be kept.
	Behind(passed map[int]Spot, n int) ([]Waiting, error)
	// First returns the first of each of the bounds that have any of the types, have not
	// expired and are in no paused queue. Of each it may return several, in order.
	First(bounds []string) ([]Waiting, error)
}

// Lane is for the claims from one queue or from all, of the same types.
type Lane struct {
	closed  *ClosedLanes
	at      uint64 // a moment of closed
	behind  map[int]Spot
	passed  map[string]*passedBounds
	open    openBounds
	expired int64  // the latest time of a claim that has skipped expired jobs
	around  string // the paused queues
	visited []visit

	// For Begin and End.
	safe map[int]Spot // what behind may begin with
	// what safe becomes when the transactions before the number until have ended; nil:
	// nothing
	pending map[int]Spot
	until   uint64 // 0: not known yet
	oldest  uint64
}

type passedBounds struct {
	first  Position
	queued bool // in open under first
}

// visit is a job that a claim has looked at after the first that it may have.
type visit struct {
	Position
	seq int64 // that it may have; 0: skipped
}

type openEntry struct {
	Position
	bounds string
}

// openBounds is a heap. An entry whose position is not that of the first job of its
// bounds does not count.
type openBounds []openEntry

func (h openBounds) Len() int           { return len(h) }
func (h openBounds) Less(i, j int) bool { return h[i].compare(h[j].Position) < 0 }
func (h openBounds) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *openBounds) Push(k any)        { *h = append(*h, k.(openEntry)) }
func (h *openBounds) Pop() any {
	old := *h
	k := old[len(old)-1]
	*h = old[:len(old)-1]
	return k
}

func (l *Lane) forget() {
	*l = Lane{closed: l.closed, at: l.closed.now(), behind: make(map[int]Spot),
		passed: make(map[string]*passedBounds), expired: None, around: l.around}
}

// Wanted is what a claim wants of a lane.
type Wanted struct {
	Now    int64
	Types  []string // empty: all; always the same for a lane
	Paused []string // queues, sorted, if the lane is for all
	Max    int

	// Leave reports that a limit of its queue or type keeps the job. The lane is for
	// claims that leave the same queues and types. nil: none.
	Leave func(j *Waiting) bool
}

func (w *Wanted) may(j *Waiting) bool {
	return Takes(w.Types, j.Type) && (w.Leave == nil || !w.Leave(j))
}

// TypeName is the name of a type, of the column of the type.
func TypeName(column string) string {
	name, _, _ := strings.Cut(column, "@")
	return name
}

// Takes reports whether a claim of some types, or of all if there are none, takes a job
// by the column of its type.
func Takes(types []string, column string) bool {
	name, version, _ := strings.Cut(column, "@")
	return len(types) == 0 || slices.ContainsFunc(types, func(pattern string) bool {
		return pattern == name || versions.Takes(pattern, name, version)
	})
}

// Pick returns the first jobs that a claim may have, in order.
func (l *Lane) Pick(look Looker, w Wanted) ([]Waiting, error) {
	if around := strings.Join(w.Paused, "\n"); around != l.around || w.Now < l.expired {
		l.around = around
		l.forget()
	}
	l.follow()
	l.visited = l.visited[:0]
	found, err := l.heads(look, &w)
	if err != nil {
		return nil, err
	}
	n, window := 0, w.Max+8
	passed := l.behind
	for n < w.Max {
		some, err := look.Behind(passed, window)
		if err != nil {
			return nil, err
		}
		for i := range some {
			j := &some[i]
			v := visit{Position: j.Position}
			_, paused := slices.BinarySearch(w.Paused, j.Queue)
			switch {
			case !w.may(j) || paused:
			case j.Wake != None && j.Wake <= w.Now:
				l.expired = max(l.expired, w.Now)
			case l.closed.has(j.Limit):
				l.pass(j)
			default:
				v.seq = j.Seq
				if n == 0 {
					passed = maps.Clone(l.behind) // the jobs behind it are skipped only if it is taken
				}
				found = append(found, *j)
				n++
			}
			passed[j.Priority] = j.Spot
			if n > 0 {
				l.visited = append(l.visited, v)
			}
			if n == w.Max {
				break
			}
		}
		if len(some) < window {
			break
		}
		window = min(2*window, 2000)
	}
	slices.SortFunc(found, func(a, b Waiting) int { return a.compare(b.Position) })
	found = slices.CompactFunc(found, func(a, b Waiting) bool { return a.Seq == b.Seq })
	return found[:min(w.Max, len(found))], nil
}

// Took says which of the jobs that Pick returned are taken.
func (l *Lane) Took(taken func(seq int64) bool) {
	if len(l.behind) == 0 && !slices.ContainsFunc(l.visited, func(v visit) bool { return v.seq == 0 }) {
		return // nothing is skipped: the head of the queue is as good a beginning
	}
	for _, v := range l.visited {
		if v.seq != 0 && !taken(v.seq) {
			break
		}
		l.behind[v.Priority] = v.Spot
	}
}

// Begin goes before Pick, and End after Took, in a storage in which a job may become
// available in a place before those that a claim has seen: its transaction had drawn the
// place and had not ended. oldest is the first transaction that may be under way, next
// the first that has not begun. The lane begins behind a place only when the transactions
// that were under way when it was seen have ended, and the jobs before it have been
// looked at once more.
func (l *Lane) Begin(oldest, next uint64) {
	l.oldest = oldest
	if l.until == 0 {
		l.until = next
	}
	l.behind = make(map[int]Spot, len(l.safe))
	maps.Copy(l.behind, l.safe)
}

// End is explained at Begin.
func (l *Lane) End() {
	if l.pending != nil && l.oldest >= l.until {
		if l.safe == nil {
			l.safe = make(map[int]Spot)
		}
		for p, spot := range l.pending {
			if b, ok := l.behind[p]; ok {
				if b.Compare(spot) < 0 {
					spot = b
				}
				l.safe[p] = spot
			}
		}
		l.pending = nil
	}
	if l.pending == nil {
		l.pending, l.until = maps.Clone(l.behind), 0
	}
}

// follow brings open up to date.
func (l *Lane) follow() {
	changed, ok := l.closed.changes(l.at)
	if !ok {
		l.forget()
		return
	}
	l.at = l.closed.now()
	for _, bounds := range changed {
		if k := l.passed[bounds]; k != nil && !k.queued && !l.closed.has(bounds) {
			l.enter(bounds, k)
		}
	}
}

func (l *Lane) enter(bounds string, k *passedBounds) {
	k.queued = true
	heap.Push(&l.open, openEntry{k.first, bounds})
}

// pass notes a job that is skipped because of its bounds.
func (l *Lane) pass(j *Waiting) {
	switch k := l.passed[j.Limit]; {
	case k == nil:
		l.passed[j.Limit] = &passedBounds{first: j.Position}
	case j.compare(k.first) < 0:
		k.first, k.queued = j.Position, false
	}
}

// heads returns the first jobs of the skipped bounds that are open, at least w.Max of
// them if there are so many.
func (l *Lane) heads(look Looker, w *Wanted) (found []Waiting, err error) {
	var again []string // to be entered again
	defer func() {
		for _, bounds := range again {
			l.enter(bounds, l.passed[bounds])
		}
	}()
	for len(l.open) > 0 && (len(found) < w.Max || l.open[0].compare(found[w.Max-1].Position) < 0) {
		var asked []string
		for len(l.open) > 0 && len(asked) < w.Max {
			o := heap.Pop(&l.open).(openEntry)
			k := l.passed[o.bounds]
			if k == nil || !k.queued || k.first != o.Position {
				continue
			}
			k.queued = false
			if !l.closed.has(o.bounds) {
				asked = append(asked, o.bounds)
			}
		}
		if len(asked) == 0 {
			continue
		}
		again = append(again, asked...)
		some, err := look.First(asked)
		if err != nil {
			return nil, err
		}
		there := make(map[string]bool, len(some))
		for i := range some {
			bounds := some[i].Limit
			if there[bounds] {
				continue
			}
			there[bounds] = true
			if k := l.passed[bounds]; k.first != some[i].Position {
				k.first = some[i].Position
				l.expired = max(l.expired, w.Now) // or those before it have
			}
		}
		found = append(found, some...)
		again = slices.DeleteFunc(again, func(bounds string) bool {
			gone := !there[bounds] && slices.Contains(asked, bounds)
			if gone {
				delete(l.passed, bounds)
				l.expired = max(l.expired, w.Now) // or its jobs have
			}
			return gone
		})
		slices.SortFunc(found, func(a, b Waiting) int { return a.compare(b.Position) })
	}
	return found, nil
}

// Lanes are the lanes of a storage.
type Lanes struct {
	byName map[string]*Lane
}

// mostLanes are kept: those of engines that are gone are forgotten with the others.
const mostLanes = 1024

// Of returns the lane of a queue ("": all) and some types, for claims that leave some
// queues and types, which left names. closed is always the same.
func (ls *Lanes) Of(closed *ClosedLanes, queue string, types, left []string) *Lane {
	if ls.byName == nil || len(ls.byName) >= mostLanes {
		ls.byName = make(map[string]*Lane)
	}
	name := queue
	if len(types) > 0 {
		name += "\n" + strings.Join(types, "\n")
	}
	if len(left) > 0 {
		name += "\n\n" + strings.Join(left, "\n")
	}
	l := ls.byName[name]
	if l == nil {
		l = &Lane{closed: closed}
		l.forget()
		ls.byName[name] = l
	}
	return l
}

// Enter says that a job has become available in a position that lanes may be behind.
func (ls *Lanes) Enter(p Position) {
	for _, l := range ls.byName {
		if b, ok := l.behind[p.Priority]; ok && p.Spot.Compare(b) <= 0 {
			l.forget()
		}
	}
}

// Forget forgets the skipped jobs.
func (ls *Lanes) Forget() { clear(ls.byName) }
