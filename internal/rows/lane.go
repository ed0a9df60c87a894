package rows

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"

	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// A claim skips jobs that it may not take: those whose rate limits admit nothing, above
// all, of which there may be a hundred thousand at the head of a queue. A Lane remembers
// the jobs that it has skipped, so that the next claim begins behind them. The cost of a
// claim then depends neither on their number, nor on that of the closed keys.
//
// Invariants, for the jobs of the lane's queue and types that are available:
//
//  1. A job whose spot is at most behind[its priority] has been skipped: it has expired
//     by the time expired, or another lane is for it, or its key is in keys.
//  2. keys[key].bound is not after the first passed job of the key.
//  3. A key that is in keys and not in the set, as of the moment at, is in the heap open
//     under its bound.
//
// They hold as long as jobs become available in places behind all others, and keep their
// types, keys and deadlines while they are available. Where something else happens, the
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
	Limit            string // its bounds, if the claim obeys limits and they count the job
	Wake             int64  // when it expires, or None
}

// name is what the job is skipped by: its bounds, or else its key.
func (w *Waiting) name() string {
	if w.Limit != "" {
		return w.Limit
	}
	return w.Key
}

// Looker looks at the available jobs of a lane.
type Looker interface {
	// Behind returns the first n whose spots are behind those given, by priority, in
	// order. A priority that is not given has all of its jobs behind. The map is not to
	// be kept.
	Behind(passed map[int]Spot, n int) ([]Waiting, error)
	// First returns the first of each key that has any of the types, has not expired and
	// is in no paused queue. Of each of the bounds it may return several, in order.
	First(keys, bounds []string) ([]Waiting, error)
}

// Lane is for the claims of one set of keys, from one queue or from all, of the same
// types. If they obey limits, it has a second set: the bounds whose jobs may not start. A
// key means the bounds of a job that limits count, below.
type Lane struct {
	set      *storage.KeySet
	at       uint64              // a moment of the set
	closed   *storage.KeySet     // nil: claims obey no limits
	closedAt uint64              // a moment of closed
	bounds   map[string][]string // the bounds in keys, by the key of their jobs
	behind   map[int]Spot
	keys     map[string]*passedKey
	open     openKeys
	expired  int64  // the latest time of a claim that has skipped expired jobs
	around   string // the paused queues
	visited  []visit

	// For Begin and End.
	safe map[int]Spot // what behind may begin with
	// what safe becomes when the transactions before the number until have ended; nil:
	// nothing
	pending map[int]Spot
	until   uint64 // 0: not known yet
	oldest  uint64
}

type passedKey struct {
	bound  Position
	key    string // of its jobs
	queued bool   // in open under its bound
}

// visit is a job that a claim has looked at after the first that it may have.
type visit struct {
	Position
	seq int64 // that it may have; 0: skipped
}

type openKey struct {
	Position
	key string
}

// openKeys is a heap. An entry whose bound is not that of its key any more does not
// count.
type openKeys []openKey

func (h openKeys) Len() int           { return len(h) }
func (h openKeys) Less(i, j int) bool { return h[i].compare(h[j].Position) < 0 }
func (h openKeys) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *openKeys) Push(k any)        { *h = append(*h, k.(openKey)) }
func (h *openKeys) Pop() any {
	old := *h
	k := old[len(old)-1]
	*h = old[:len(old)-1]
	return k
}

func (l *Lane) forget() {
	_, now, _ := l.set.Changes(0)
	_, closedAt, _ := l.closed.Changes(0)
	*l = Lane{set: l.set, at: now, closed: l.closed, closedAt: closedAt, behind: make(map[int]Spot),
		keys: make(map[string]*passedKey), expired: None, around: l.around}
}

// shut reports whether jobs are skipped that have a name and a key.
func (l *Lane) shut(name, key string) bool { return l.set.Has(key) || l.closed.Has(name) }

// Wanted is what a claim wants of a lane.
type Wanted struct {
	Now    int64
	Types  []string        // empty: all; always the same for a lane
	Paused []string        // queues, sorted, if the lane is for all
	Taken  map[string]bool // keys of which the claim has a job
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

// Pick returns the first jobs that a claim may have, in order: one of each key, and of
// bounds as many as there are.
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
	seen := make(map[string]bool)
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
			case j.Key != "" && (l.shut(j.name(), j.Key) || w.Taken[j.Key] || seen[j.Key]):
				l.pass(j)
			default:
				v.seq = j.Seq
				if j.Key != "" && j.Limit == "" {
					seen[j.Key] = true
				}
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
	clear(seen)
	last := Waiting{Seq: None}
	found = slices.DeleteFunc(found, func(j Waiting) bool {
		twice := j.Key != "" && seen[j.Key] || j.Limit != "" && j.Seq == last.Seq
		last = j
		seen[j.Key] = seen[j.Key] || j.Limit == ""
		return twice
	})
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

// follow brings the open keys up to date.
func (l *Lane) follow() {
	changed, now, ok := l.set.Changes(l.at)
	if !ok {
		l.forget()
		return
	}
	l.at = now
	for _, key := range changed {
		l.reenter(key)
		for _, name := range l.bounds[key] {
			l.reenter(name)
		}
	}
	if l.closed == nil {
		return
	}
	if changed, now, ok = l.closed.Changes(l.closedAt); !ok {
		l.forget()
		return
	}
	l.closedAt = now
	for _, name := range changed {
		l.reenter(name)
	}
}

// reenter enters a skipped key that may be open.
func (l *Lane) reenter(name string) {
	if k := l.keys[name]; k != nil && !k.queued && !l.shut(name, k.key) {
		l.enter(name, k)
	}
}

func (l *Lane) enter(key string, k *passedKey) {
	k.queued = true
	heap.Push(&l.open, openKey{k.bound, key})
}

// pass notes a job that is skipped because of its key.
func (l *Lane) pass(j *Waiting) {
	name := j.name()
	k := l.keys[name]
	switch {
	case k == nil:
		k = &passedKey{bound: j.Position, key: j.Key}
		l.keys[name] = k
		if j.Limit != "" {
			if l.bounds == nil {
				l.bounds = make(map[string][]string)
			}
			l.bounds[j.Key] = append(l.bounds[j.Key], name)
		}
	case j.compare(k.bound) < 0:
		k.bound, k.queued = j.Position, false
	}
	if !k.queued && !l.shut(name, j.Key) {
		l.enter(name, k)
	}
}

// leave forgets a key whose last skipped job is gone.
func (l *Lane) leave(name string) {
	key := l.keys[name].key
	delete(l.keys, name)
	if key == name {
		return
	}
	l.bounds[key] = slices.DeleteFunc(l.bounds[key], func(other string) bool { return other == name })
	if len(l.bounds[key]) == 0 {
		delete(l.bounds, key)
	}
}

// heads returns the first jobs of the skipped keys that are open, at least w.Max of them
// if there are so many.
func (l *Lane) heads(look Looker, w *Wanted) (found []Waiting, err error) {
	var again []string // to be entered again
	defer func() {
		for _, key := range again {
			l.enter(key, l.keys[key])
		}
	}()
	for len(l.open) > 0 && (len(found) < w.Max || l.open[0].compare(found[w.Max-1].Position) < 0) {
		var keys, bounds []string
		for len(l.open) > 0 && len(keys)+len(bounds) < w.Max {
			o := heap.Pop(&l.open).(openKey)
			k := l.keys[o.key]
			if k == nil || !k.queued || k.bound != o.Position {
				continue
			}
			k.queued = false
			switch {
			case l.shut(o.key, k.key):
			case w.Taken[k.key]:
				again = append(again, o.key)
			case k.key != o.key: // bounds have the key in their text
				bounds = append(bounds, o.key)
			default:
				keys = append(keys, o.key)
			}
		}
		if len(keys)+len(bounds) == 0 {
			continue
		}
		asked := slices.Concat(keys, bounds)
		again = append(again, asked...)
		some, err := look.First(keys, bounds)
		if err != nil {
			return nil, err
		}
		there := make(map[string]bool, len(some))
		for i := range some {
			name := some[i].name()
			if there[name] {
				continue
			}
			there[name] = true
			if k := l.keys[name]; k.bound != some[i].Position {
				k.bound = some[i].Position
				l.expired = max(l.expired, w.Now) // or those before it have
			}
		}
		found = append(found, some...)
		again = slices.DeleteFunc(again, func(key string) bool {
			gone := !there[key] && slices.Contains(asked, key)
			if gone {
				l.leave(key)
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
	sets map[setPair]map[string]*Lane
}

// setPair are the two sets of a lane.
type setPair struct{ keys, closed *storage.KeySet }

// Most lanes and sets that are kept: those of engines that are gone are forgotten with
// the others.
const (
	mostSets  = 8
	mostLanes = 1024
)

// Of returns the lane of a set, a queue ("": all) and some types.
func (ls *Lanes) Of(set *storage.KeySet, queue string, types []string) *Lane {
	return ls.of(setPair{keys: set}, queue, types, nil)
}

// Limited is Of for claims that obey limits: those of the closed lanes, and of queues and
// types that the claim leaves, which names tell.
func (ls *Lanes) Limited(
	set *storage.KeySet, closed *ClosedLanes, queue string, types, left []string,
) *Lane {
	return ls.of(setPair{set, closed.set}, queue, types, left)
}

func (ls *Lanes) of(sets setPair, queue string, types, left []string) *Lane {
	lanes := ls.sets[sets]
	if lanes == nil || len(lanes) >= mostLanes {
		if ls.sets == nil || len(ls.sets) >= mostSets {
			ls.sets = make(map[setPair]map[string]*Lane)
		}
		lanes = make(map[string]*Lane)
		ls.sets[sets] = lanes
	}
	name := queue
	if len(types) > 0 {
		name += "\n" + strings.Join(types, "\n")
	}
	if len(left) > 0 {
		name += "\n\n" + strings.Join(left, "\n")
	}
	l := lanes[name]
	if l == nil {
		l = &Lane{set: sets.keys, closed: sets.closed}
		l.forget()
		lanes[name] = l
	}
	return l
}

// Enter says that a job has become available in a position that lanes may be behind.
func (ls *Lanes) Enter(p Position) {
	for _, lanes := range ls.sets {
		for _, l := range lanes {
			if b, ok := l.behind[p.Priority]; ok && p.Spot.Compare(b) <= 0 {
				l.forget()
			}
		}
	}
}

// Forget forgets the skipped jobs.
func (ls *Lanes) Forget() { clear(ls.sets) }
