package storagetest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cursor"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// compare looks at everything that can be looked at.
func (w *world) compare() {
	if !w.many {
		for _, j := range w.ref.jobs {
			w.get(j.rec.ID)
		}
	}
	w.counts()
	w.lists(storage.Query{Limit: 1000})
	if w.many {
		w.listsSame(storage.Query{States: []ojs.State{ojs.StateAvailable, ojs.StateDiscarded}})
		w.listsSame(storage.Query{DeadLetters: true, Limit: 999})
	} else {
		w.listsSame(storage.Query{Limit: 3})
		w.listsSame(storage.Query{DeadLetters: true, Limit: 2})
	}
	for _, o := range allOrders[1:] {
		w.listsSame(storage.Query{Order: o, Limit: 1 + w.ref.seq%5 + len(w.ref.jobs)/8})
	}
	w.doDue(0)
	w.get("unknown")
	w.queueStates()
	w.cronEntries(storage.DocumentQuery{})
	if len(w.aside) > 0 {
		w.quarantined()
	}
	w.sameValues("", "", 0)
	if !w.many {
		for _, kind := range limitKinds {
			w.listLimits(kind, "", 100)
		}
	}
}

// get looks at one job.
func (w *world) get(id string) {
	got, err := w.s.Get(w.ctx, id)
	want, wantErr := w.ref.Get(w.ctx, id)
	if a := w.setAside(id); a != nil && wantErr != nil {
		wantErr = &ojs.QuarantinedError{Key: a.key, ID: id}
	}
	w.same("the error of get of "+nameOf(id), err, wantErr)
	if wantErr == nil {
		w.same("get of "+nameOf(id), w.mine(got)[0], want)
		w.cov.shown("get", &want)
		w.logs(id)
	} else if !errors.Is(err, ojs.ErrNotFound) {
		w.failf("get of %s: %v is not ojs.ErrNotFound", nameOf(id), err)
	}
}

// logs looks at what the attempts of a job have logged.
func (w *world) logs(id string) {
	got, err := w.s.Logs(w.ctx, id)
	w.same("the error of the logs of "+nameOf(id), err, nil)
	var want []storage.Log
	if j := w.ref.find(id); j != nil {
		want = j.logs
	}
	same := func(a, b storage.Log) bool {
		return a.Version == w.logAt[refLog{id, b.Version}] && bytes.Equal(a.Data, b.Data)
	}
	if !slices.EqualFunc(got, want, same) {
		w.failf("the logs of %s: %s, want %s", nameOf(id), logsText(got), logsText(want))
	}
}

func logsText(list []storage.Log) string {
	texts := make([]string, len(list))
	for i, l := range list {
		texts[i] = fmt.Sprintf("%d: %.40q", l.Version, l.Data)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func (w *world) counts() {
	counts := func(s storage.Storage) map[string]int {
		list, err := s.Counts(w.ctx)
		w.same("the error of counts", err, nil)
		by := make(map[string]int)
		for _, c := range list {
			name := fmt.Sprintf("%s of type %s in queue %s", c.State, c.Type, c.Queue)
			if _, twice := by[name]; twice || c.N == 0 {
				w.failf("counts: %s: %d, a zero or twice", name, c.N)
			}
			by[name] = c.N
		}
		return by
	}
	w.same("counts", counts(w.s), counts(w.ref))
}

func (w *world) queueStates() {
	want, _ := w.ref.QueueStates(w.ctx)
	got, err := w.s.QueueStates(w.ctx)
	w.same("the error of queue states", err, nil)
	if len(got) > 0 || len(want) > 0 {
		w.same("queue states", got, want)
	}
}

// listsSame compares which jobs a listing has.
func (w *world) listsSame(q storage.Query) {
	w.rt.Helper()
	got, want := ids(inOrder(q, w.list(unscribbled(w.s), q))), ids(inOrder(q, w.list(w.ref, q)))
	if !slices.Equal(got, want) {
		w.failf("list of %s: %s, want %s", queryText(q), listText(got), listText(want))
	}
}

// lists compares a listing.
func (w *world) lists(q storage.Query) {
	w.rt.Helper()
	got, want := inOrder(q, w.mine(w.list(w.s, q)...)), inOrder(q, w.list(w.ref, q))
	w.sameJobs("list of "+queryText(q), got, want)
	for i := range want {
		w.cov.shown("list", &want[i])
	}
}

// list lists jobs page by page and, if there are cursors of pages before, again from the
// last page back.
func (w *world) list(s storage.Storage, q storage.Query) (out []storage.Record) {
	var last storage.Page
	var sizes []int // of the pages, summed up
	for pages := 0; ; pages++ {
		page, err := s.List(w.ctx, q)
		w.same("the error of list", err, nil)
		if len(page.Records) > limitOf(q) || len(page.Records) > page.Looked || pages > 10_000 {
			w.failf("list of %s: page %d has %d jobs, %d looked at", queryText(q), pages+1,
				len(page.Records), page.Looked)
		}
		out = append(out, page.Records...)
		sizes = append(sizes, len(out))
		if last = page; page.Next == "" {
			break
		}
		q.Cursor = page.Next
	}
	before := sizes[len(sizes)-1] - len(last.Records)
	for pages := 0; last.Prev != ""; pages++ {
		q.Cursor = last.Prev
		page, err := s.List(w.ctx, q)
		w.same("the error of a list back", err, nil)
		n := len(page.Records)
		if n > limitOf(q) || n > before || pages > 10_000 ||
			!slices.Equal(ids(page.Records), ids(out[before-n:before])) {
			w.failf("list back of %s: before job %d come %s", queryText(q), before,
				listText(ids(page.Records)))
		}
		before -= n
		last = page
	}
	if before > 0 {
		w.failf("list back of %s: ends before the first %d jobs", queryText(q), before)
	}
	return out
}

var allOrders = []storage.Order{
	storage.OrderOldest, storage.OrderNewest, storage.OrderFinished, storage.OrderDue, storage.OrderClaim,
}

// inOrder sorts jobs where their order is not told: those that are due at the same time.
// A given back job may be anywhere among these.
func inOrder(q storage.Query, recs []storage.Record) []storage.Record {
	byTime := func(a, b storage.Record) int { return a.WakeAt().Compare(b.WakeAt()) }
	if q.Order != storage.OrderDue || !slices.IsSortedFunc(recs, byTime) {
		return recs
	}
	slices.SortFunc(recs, func(a, b storage.Record) int {
		return cmp.Or(byTime(a, b), cmp.Compare(a.ID, b.ID))
	})
	return recs
}

// limitOf is how many jobs a page may have.
func limitOf(q storage.Query) int {
	if q.Limit <= 0 || q.Limit > 1000 {
		return 1000
	}
	return q.Limit
}

// query draws a listing.
func (w *world) query(t *rapid.T) storage.Query {
	q := storage.Query{DeadLetters: chance(t, 4), Limit: pick(t, 0, 1, 2, 3, 1000, 1001)}
	if w.many {
		q.Limit = pick(t, 0, 100, 999, 1000, 1001)
	}
	if chance(t, 3) {
		q.States = some(t, ojs.AllStates(), 1, 4)
	}
	if chance(t, 3) {
		q.Queues = some(t, w.queues(), 1, 2)
	}
	if chance(t, 3) {
		q.Types = some(t, append(w.types(), "z*", "*", "none"), 1, 2)
	}
	if chance(t, 5) {
		types := []string{policy.ErrorTypeExpired, "t*", policy.ErrorTypeDropped, "total*", "*"}
		q.ErrorTypes = some(t, types, 1, 2)
	}
	if chance(t, 2) {
		q.Order = pick(t, allOrders...)
	}
	if chance(t, 6) {
		q.Where = func(r *storage.Record) bool { return r.Attempt%2 == 0 }
	}
	for _, at := range []*time.Time{&q.CreatedFrom, &q.CreatedBefore, &q.FinishedFrom, &q.FinishedBefore} {
		if chance(t, 6) {
			*at = w.near(t)
		}
	}
	return q
}

func queryText(q storage.Query) string {
	s := "jobs"
	if q.DeadLetters {
		s = "dead letters"
	}
	if len(q.States) > 0 {
		s += fmt.Sprintf(" that are %v", q.States)
	}
	if len(q.Queues) > 0 {
		s += fmt.Sprintf(" in queues %v", q.Queues)
	}
	if len(q.Types) > 0 {
		s += fmt.Sprintf(" of types %v", q.Types)
	}
	if len(q.ErrorTypes) > 0 {
		s += fmt.Sprintf(" with errors %v", q.ErrorTypes)
	}
	for _, at := range []struct {
		text string
		time time.Time
	}{
		{"created from", q.CreatedFrom}, {"created before", q.CreatedBefore},
		{"finished from", q.FinishedFrom}, {"finished before", q.FinishedBefore},
	} {
		if !at.time.IsZero() {
			s += fmt.Sprintf(" %s %s", at.text, clockText(at.time))
		}
	}
	if q.Where != nil {
		s += " that satisfy Where"
	}
	if q.Order != "" {
		s += ", order " + string(q.Order)
	}
	return s + fmt.Sprintf(", %d a page", limitOf(q))
}

// look looks at a part of what there is.
func (w *world) look(t *rapid.T) randomOp {
	var does func()
	says := ""
	switch dice(t, 6) {
	case 0:
		says, does = "counts", w.counts
	case 1:
		id := "unknown"
		if r, ok := w.job(t); ok {
			id = r.ID
		}
		says, does = nameOf(id), func() { w.get(id) }
	case 2:
		says, does = "when something is due", func() { w.doDue(0) }
	case 3:
		says, does = "an unknown cursor", func() {
			_, err := w.s.List(w.ctx, storage.Query{Cursor: "no cursor"})
			w.same("the error of an unknown cursor", errors.Is(err, ojs.ErrInvalid), true)
		}
	default:
		q := w.query(t)
		says, does = "the list of "+queryText(q), func() { w.lists(q) }
	}
	return randomOp{"look", func() string { return "look at " + says }, does}
}

// listing is a listing under way while jobs change.
type listing struct {
	q    storage.Query
	back bool              // from its end to its begin
	stay map[int]listedJob // jobs that matched throughout and kept their place, by insertion
	last *cursor.Position  // of the latest that was on a page
}

// listedJob is a job that a listing has to have.
type listedJob struct {
	at   cursor.Position
	seen bool // on a page
}

// follow drops jobs from a listing that have ceased to match or to be in their place.
func (l *listing) follow(w *world) {
	if l == nil {
		return
	}
	match := make(map[int]bool)
	for _, j := range w.ref.jobs {
		at, ok := j.place(&l.q)
		match[j.inserted] = ok && at == l.stay[j.inserted].at && l.q.Matches(&j.rec)
	}
	for n := range l.stay {
		if !match[n] {
			delete(l.stay, n)
		}
	}
}

// page begins a listing, or looks at the next page of one.
func (w *world) page(t *rapid.T) randomOp {
	l := w.pages
	begins := l == nil || chance(t, 8)
	if begins {
		q := w.query(t)
		if q.Limit == 0 || q.Limit > 3 && !w.many {
			q.Limit = 1 + dice(t, 3)
		}
		l = &listing{q: q, back: chance(t, 3)}
	}
	return randomOp{"list", func() string {
		if begins && l.back {
			return "begin to list from the end " + queryText(l.q)
		} else if begins {
			return "begin to list " + queryText(l.q)
		}
		return "the next page"
	}, func() { w.nextPage(l, begins) }}
}

// nextPage looks at a page of a listing: its jobs match, each comes once and in order,
// and at the end all are there that have matched throughout.
func (w *world) nextPage(l *listing, begins bool) {
	w.pages = l
	if begins {
		l.stay = make(map[int]listedJob)
		for _, j := range w.ref.jobs {
			if at, ok := j.place(&l.q); ok && l.q.Matches(&j.rec) {
				l.stay[j.inserted] = listedJob{at: at}
			}
		}
	}
	page, err := w.s.List(w.ctx, l.q)
	for begins && l.back && page.Next != "" {
		l.q.Cursor = page.Next
		page, err = w.s.List(w.ctx, l.q)
	}
	w.same("the error of a page", err, nil)
	if len(page.Records) > limitOf(l.q) {
		w.failf("a page of %s has %d jobs", queryText(l.q), len(page.Records))
	}
	records := w.mine(page.Records...)
	if l.back {
		slices.Reverse(records)
	}
	for _, got := range records {
		j := w.ref.find(got.ID)
		if j == nil || !l.q.Matches(&j.rec) {
			w.failf("%s is on a page of %s", nameOf(got.ID), queryText(l.q))
		}
		w.same("on a page: "+nameOf(got.ID), got, j.rec)
		w.cov.shown("list", &j.rec)
		at, ok := j.place(&l.q)
		if !ok {
			w.failf("%s is on a page of %s", nameOf(got.ID), queryText(l.q))
		}
		listed, stays := l.stay[j.inserted]
		if stays && listed.seen {
			w.failf("%s is in the listing twice", nameOf(got.ID))
		} else if stays {
			l.stay[j.inserted] = listedJob{at, true}
		}
		if l.q.Order == storage.OrderDue {
			at[1] = 0
		}
		if l.last != nil && !l.follows(at) {
			w.failf("%s is on a page after jobs that come after it", nameOf(got.ID))
		}
		l.last = &at
	}
	l.q.Cursor = page.Next
	if l.back {
		l.q.Cursor = page.Prev
	}
	if l.q.Cursor != "" {
		return
	}
	w.pages = nil
	for _, j := range w.ref.jobs {
		if listed, stays := l.stay[j.inserted]; stays && !listed.seen {
			w.failf("%s has matched %s throughout, and was on no page", nameOf(j.rec.ID), queryText(l.q))
		}
	}
}

// follows reports whether a job at the position may come after the latest.
func (l *listing) follows(at cursor.Position) bool {
	order := slices.Compare(at[:], l.last[:])
	if l.back {
		order = -order
	}
	return order > 0 || order == 0 && l.q.Order == storage.OrderDue
}

// drain looks at the order in which jobs wait: it claims what can be claimed, lets time
// come to everything, and prunes everything.
func (w *world) drain(byQueue bool) {
	for _, name := range slices.Concat(w.queues(), []string{"none"}) {
		w.run(randomOp{"queue", nil, func() { w.doQueue(name, ojs.QueueActive) }})
	}
	step := 1
	if w.many {
		step = 500
	}
	queues := [][]string{nil}
	if byQueue {
		queues = nil
		for _, name := range w.queues() {
			queues = append(queues, []string{name})
		}
	}
	for _, names := range queues {
		for n := 1; n > 0; {
			w.run(
				randomOp{
					"claim",
					nil,
					func() {
						n = w.doClaim(storage.Claim{Queues: names, Max: step, Worker: "drain", Remote: true})
					},
				},
			)
		}
	}
	const year = 365 * 24 * time.Hour
	for range 100 {
		next := w.ref.next()
		if next == nil || next.rec.WakeAt().Sub(epoch) > year {
			break
		}
		if at := next.rec.WakeAt(); at.After(w.now) {
			w.now = at.Add(-w.unit)
			w.run(randomOp{"due", nil, func() { w.doDue(step) }})
			w.now = at
		}
		var stalled []draft
		w.run(randomOp{"due", nil, func() {
			for _, r := range w.doDue(step).Stalled {
				to := r.Copy()
				to.State, to.LeaseUntil, to.FinishedAt = ojs.StateCompleted, time.Time{}, w.now
				stalled = append(
					stalled,
					draft{r, storage.Change{Record: to, AttemptFieldsOnly: true}, r.Version + w.ahead[r.ID]},
				)
			}
		}})
		w.run(randomOp{"settle", nil, func() { w.doSettle(stalled) }}) // or they would come again and again
	}
	for _, dead := range []bool{false, true} {
		p := storage.Prune{Now: w.now.Add(year), DeadLetters: dead, Before: w.now.Add(year), Max: step}
		for n := 1; n > 0; {
			w.run(randomOp{"prune", nil, func() { n = w.doPrune(p) }})
		}
	}
	w.compare()
}
