package storagetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

func lines(list []string) string {
	const most = 40
	if n := len(list); n > most {
		list = append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", n-most))
	}
	if len(list) == 1 {
		return " " + list[0]
	}
	return "\n    " + strings.Join(list, "\n    ")
}

// insert stores a batch, whose jobs may each have a bound of its own for their queue.
func (w *world) insert(t *rapid.T) randomOp {
	n := 1 + dice(t, 4)
	if chance(t, 16) {
		n = 12
	}
	batch := w.batch(t, n, w.deleted())
	says := func() string { return "insert" + lines(batchTexts(batch)) }
	return randomOp{"insert", says, func() { w.doInsert(batch) }}
}

// batch draws jobs to store, now and then under the ids of deleted jobs.
func (w *world) batch(t *rapid.T, n int, old []string) []storage.Insert {
	batch := make([]storage.Insert, n)
	bounds := pick(t, "none", "none", "none", "one", "each")
	equal := chance(t, 2)
	depth, drop := 1+dice(t, 6), chance(t, 2)
	for i := range batch {
		w.ids++
		id := w.ids
		switch {
		case chance(t, 16):
			if r, ok := w.jobIn(t, ojs.AllStates()...); ok && !chance(t, 4) {
				_, _ = fmt.Sscanf(r.ID, idFormat, &id)
			} else {
				id = 1 + dice(t, w.ids)
			}
		case len(old) > 0 && chance(t, 6):
			_, _ = fmt.Sscanf(pick(t, old...), idFormat, &id)
		default:
			batch[i].IDIsNew = chance(t, 2)
		}
		switch bounds {
		case "one":
			batch[i].MaxDepth, batch[i].DropOldest = depth, drop
		case "each":
			batch[i].MaxDepth, batch[i].DropOldest = dice(t, 8), !chance(t, 3)
		}
		batch[i].KeepActive = chance(t, 4)
		batch[i].Record = w.record(t, fmt.Sprintf(idFormat, id), equal)
	}
	if bounds == "each" && chance(t, 2) { // all of them for one queue
		for i := range batch {
			batch[i].Record.Queue = batch[0].Record.Queue
		}
	}
	if chance(t, 5) {
		w.dependsOn(t, batch)
	}
	if chance(t, 12) {
		w.awaitedBy(t, batch)
	}
	return batch
}

// dependsOn has some jobs of a batch wait for others: for stored ones, for those of the
// batch, now and then for one that is not there.
func (w *world) dependsOn(t *rapid.T, batch []storage.Insert) {
	for i := range batch {
		in := &batch[i]
		in.DependsOn, in.OrderingKey = nil, ""
		if chance(t, 2) {
			in.OrderingKey = pick(t, "k", "l")
		}
		n := pick(t, 1, 1, 2, 3, 3, 5)
		if chance(t, 3) {
			n = 0
		}
		for range n {
			id := batch[dice(t, i+1)].Record.ID
			if chance(t, 12) {
				id = batch[dice(t, len(batch))].Record.ID
			}
			if r, ok := w.jobIn(t, ojs.AllStates()...); ok && (id == in.Record.ID || chance(t, 2)) {
				id = r.ID
			} else if chance(t, 24) {
				id = "unknown"
			}
			if id != in.Record.ID && !slices.Contains(in.DependsOn, id) || chance(t, 32) {
				in.DependsOn = append(in.DependsOn, id)
			}
		}
		if !in.Waits() {
			continue
		}
		if in.Record.State != ojs.StatePending && !chance(t, 24) {
			in.Record.State = ojs.StatePending
		}
		in.Record.Dependencies = &ojs.Dependencies{
			Condition: pick(t, ojs.AllEnded, ojs.AllSucceeded, ojs.AnyFailed), Join: chance(t, 3),
			Unfinished: dice(t, 3), Failed: dice(t, 2),
		}
		if chance(t, 6) {
			in.Record.Dependencies.Delay = time.Duration(dice(t, 3)) * time.Second
		}
		if chance(t, 12) {
			in.Record.Dependencies.TTL = time.Duration(dice(t, 60)) * time.Second
		}
	}
}

func batchTexts(batch []storage.Insert) (list []string) {
	for _, in := range batch {
		s := describe(&in.Record)
		if in.MaxDepth > 0 {
			s += fmt.Sprintf(", at most %d in the queue", in.MaxDepth)
		}
		say := func(on bool, text string) {
			if on {
				s += text
			}
		}
		say(in.DropOldest, ", dropping the oldest")
		say(in.KeepActive, ", keeping active ones")
		say(in.IDIsNew, ", a fresh id")
		if d := in.Record.Dependencies; d != nil && in.Waits() {
			s += fmt.Sprintf(", waits for %s (%s)", namesOf(in.DependsOn), d.Condition)
			say(in.OrderingKey != "", ", key "+in.OrderingKey)
			say(d.Join, ", a join")
			say(d.Delay > 0, ", delayed by "+d.Delay.String())
			say(d.TTL > 0, ", for "+d.TTL.String())
		}
		s += awaitedText(&in)
		list = append(list, s)
	}
	return list
}

func (w *world) doInsert(batch []storage.Insert) {
	before := make(map[string]ojs.State)
	for _, j := range w.ref.jobs {
		before[j.rec.ID] = j.rec.State
	}
	want, wantErr := w.ref.Insert(w.ctx, w.now, batch, nil)
	got, err := w.s.Insert(w.ctx, w.now, batch, nil)
	w.same("the error of insert", err, wantErr)
	w.insertOutcome(before, batch, want, wantErr)
	for _, in := range want {
		w.movedBy(in.Moved)
	}
	w.sameInserted(batch, got, want)
}

// movedBy notes that the operation under way has moved jobs that waited for others.
func (w *world) movedBy(moved []storage.Record) {
	for _, r := range moved {
		w.as[r.ID] = "count"
	}
}

// begin notes the versions that inserted jobs begin at.
func (w *world) begin(batch []storage.Insert, got, want []storage.Inserted) {
	for i := range min(len(got), len(want)) {
		if got[i].Version > 0 {
			w.ahead[batch[i].Record.ID] = got[i].Version - want[i].Version
		}
	}
}

// sameInserted compares the results of an insert.
func (w *world) sameInserted(batch []storage.Insert, got, want []storage.Inserted) {
	w.rt.Helper()
	w.same("the number of results of insert", len(got), len(want))
	for i := range got {
		id := batch[i].Record.ID
		if (want[i].Version > 0) != (got[i].Version > 0) {
			w.failf(
				"insert of %s: version %d; stored: %v, want %v",
				nameOf(id),
				got[i].Version,
				got[i].Version > 0,
				want[i].Version > 0,
			)
		}
		if got[i].Version > 0 {
			if got[i].Version <= w.ever[id] && !batch[i].IDIsNew {
				w.failf(
					"insert of %s: version %d, and a deleted job with the id had %d",
					nameOf(id),
					got[i].Version,
					w.ever[id],
				)
			}
		}
	}
	w.begin(batch, got, want)
	for i := range got {
		what := "insert of " + nameOf(batch[i].Record.ID)
		g, e := got[i], want[i]
		w.sameJobs(what+": replaced", w.mine(g.Replaced...), e.Replaced)
		w.sameJobs(what+": dropped", w.mine(g.Dropped...), e.Dropped)
		switch {
		case g.Existing == nil && e.Existing == nil:
		case g.Existing == nil || e.Existing == nil:
			w.failf("%s: an existing job: %v, want %v", what, g.Existing != nil, e.Existing != nil)
		default:
			w.sameJobs(what+": existing", w.mine(*g.Existing), []storage.Record{*e.Existing})
		}
		w.same(what+": updated", g.Updated, e.Updated)
		w.same(what+": depth", g.Depth, e.Depth)
		w.sameJobs(what+": moved", w.mine(g.Moved...), e.Moved)
	}
}

// insertMany stores up to 2000 plain jobs of many kinds, in calls of up to 500.
func (w *world) insertMany(t *rapid.T) randomOp {
	seed, n := dice(t, 1<<16), 1000+dice(t, 1000)
	first := w.ids + 1
	w.ids += n
	return randomOp{"insert", func() string {
		return fmt.Sprintf("insert jobs %d to %d, of many kinds (seed %d)", first, first+n-1, seed)
	}, func() {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		for from := 0; from < n; from += 500 {
			batch := make([]storage.Insert, min(500, n-from))
			for i := range batch {
				rec := &batch[i].Record
				rec.ID = fmt.Sprintf(idFormat, first+from+i)
				rec.Queue, rec.Type = queueNames[r.IntN(3)], []string{"x", "y", "z0", "z1"}[r.IntN(4)]
				rec.Priority, rec.Lease, rec.Timeout = r.IntN(
					4,
				)-1, time.Duration(
					1+r.IntN(5),
				)*time.Second, time.Minute
				rec.CreatedAt, rec.State = w.now.Add(
					-time.Duration(r.IntN(3))*time.Second,
				), ojs.StateAvailable
				switch r.IntN(6) {
				case 0:
					rec.State, rec.ScheduledAt = ojs.StateScheduled, w.now.Add(
						time.Duration(r.IntN(10))*time.Second,
					)
				case 1:
					rec.State = ojs.StatePending
				case 2:
					rec.ExpiresAt = w.now.Add(time.Duration(1+r.IntN(10)) * time.Second)
				}
				batch[i].IDIsNew = r.IntN(2) == 0
			}
			w.doInsert(batch)
		}
	}}
}

// upTo draws a number of jobs that a call is for: a few, or as many as there are if these
// are thousands.
func (w *world) upTo(t *rapid.T, most int) int {
	if w.many && !chance(t, 4) {
		return pick(t, 100, 999, 1000, 1001, 2000)
	}
	return dice(t, most+1)
}

// ask draws a claim.
func (w *world) ask(t *rapid.T) storage.Claim {
	c := storage.Claim{
		Max:    w.upTo(t, 6),
		Worker: pick(t, "w", "", "v"),
		Remote: w.reopens || chance(t, 2),
	}
	if chance(t, 2) {
		c.Queues = some(t, append(w.queues(), "none"), 1, 4)
	}
	if chance(t, 2) {
		c.Types = some(t, append(w.types(), "none"), 1, 3)
		for i := range c.Types {
			if chance(t, 2) {
				c.Types[i] += pick(t, "@", "@2.0", "@>=2.0", "@<2.0", "@>=1.0 <3.0", "@*")
			}
		}
	}
	if chance(t, 2) {
		c.Limits = &storage.Limited{Now: dice(t, 4)}
		if w.limitsEnded() { // whether they count a job, storages may say either way
			c.Limits.Now = 0
		}
	}
	return c
}

func askText(c storage.Claim) string {
	s := fmt.Sprintf("up to %d jobs as worker %q", c.Max, c.Worker)
	if len(c.Queues) > 0 {
		s += " of queues " + strings.Join(c.Queues, ", then ")
	}
	if len(c.Types) > 0 {
		s += " of types " + strings.Join(c.Types, ", ")
	}
	if c.Limits != nil {
		s += " and what limits do"
	}
	return s
}

func (w *world) claim(t *rapid.T) randomOp {
	c := w.ask(t)
	return randomOp{"claim", func() string { return "claim " + askText(c) }, func() { w.doClaim(c) }}
}

func (w *world) doClaim(c storage.Claim) (n int) {
	w.claimOutcome("claim", c)
	ours, theirs := limits(c)
	want, _ := w.ref.Claim(w.ctx, w.now, ours, nil)
	got, err := w.s.Claim(w.ctx, w.now, theirs, nil)
	w.same("the error of claim", err, nil)
	w.sameLimited("claim", theirs.Limits, ours.Limits)
	w.sameJobs("claimed", w.mine(got...), want)
	return len(want)
}

// draft is a change, and the job as it was when the change was drawn.
type draft struct {
	from storage.Record
	to   storage.Change
	got  uint64 // the version in the storage
}

// edits reports whether the change is of more than attempt fields.
func (d draft) edits() bool {
	to := d.to.Record
	r := d.from
	r.State, r.Attempt, r.Progress, r.Error, r.Errors = to.State, to.Attempt, to.Progress, to.Error, to.Errors
	r.Result, r.Checkpoint, r.Worker, r.LeaseUntil = to.Result, to.Checkpoint, to.Worker, to.LeaseUntil
	r.History = to.History
	r.EnqueuedAt, r.StartedAt, r.NextRetryAt = to.EnqueuedAt, to.StartedAt, to.NextRetryAt
	r.FinishedAt, r.DeadLetteredAt, r.Version = to.FinishedAt, to.DeadLetteredAt, to.Version
	return len(fields.Diff(to, r)) > 0
}

func (d draft) String() string {
	s := nameOf(d.from.ID)
	switch {
	case d.to.Record.Version != d.from.Version:
		s += " by an old version"
	case d.got == 0:
		s += ", which was deleted,"
	}
	if d.to.AttemptFieldsOnly {
		s += " (the same job)"
	}
	s += fmt.Sprintf(" from %s", d.from.State)
	if d.to.Log != nil {
		s += fmt.Sprintf(" with the log %.40q", d.to.Log)
	}
	to := d.to.Record
	to.Version = d.from.Version
	for i, diff := range fields.Diff(to, d.from) {
		path, _, _ := strings.Cut(diff, ", want ")
		if i == 12 {
			s += ", and more"
			break
		}
		s += ", " + path
	}
	if len(d.to.Then) > 0 {
		s += "; then" + lines(batchTexts(d.to.Then))
	}
	return s
}

// relocate has an available job take a new place if its deadline changes, or keep its
// deadline if the change cannot move it. Storage.Due leaves open where a job that keeps
// its place comes among the jobs of that time.
func relocate(c *storage.Change, from *storage.Record) {
	to := &c.Record
	if from.State == ojs.StateAvailable && to.State == from.State && to.Queue == from.Queue &&
		to.Priority == from.Priority && !to.WakeAt().Equal(from.WakeAt()) {
		if c.AttemptFieldsOnly {
			to.StartedAt = from.StartedAt
			return
		}
		to.Priority ^= 1
	}
}

// drafts draws changes of up to some jobs, now and then two of one job.
func (w *world) drafts(t *rapid.T, least, most int, sameJob func() bool) (list []draft) {
	for range least + dice(t, most-least+1) {
		if n := len(list); n > 0 && chance(t, 6) { // once more, as the change before leaves it
			last := list[n-1]
			if last.to.Record.Version != last.from.Version || last.from.CanSettle(&last.to.Record) != nil {
				continue
			}
			from := last.to.Record.Copy()
			from.Version++
			same := sameJob()
			c := w.change(t, from.Copy(), same)
			relocate(&c, &from)
			list = append(list, draft{from, c, last.got + 1})
			continue
		}
		r, ok := w.jobIn(t, ojs.AllStates()...)
		if !ok {
			continue
		}
		same := sameJob()
		c := w.change(t, r.Copy(), same)
		relocate(&c, &r)
		v := w.token(t, r)
		if slices.ContainsFunc(list, func(d draft) bool { return d.from.ID == r.ID }) {
			continue // it is not as it was drawn
		}
		c.Record.Version = v.ref
		list = append(list, draft{r, c, v.got})
	}
	return list
}

// honest leaves out a change of attempt fields that finds another record under its
// version than the one that it was drawn for. The change before it is then refused: an
// earlier one has changed the job in another way, by its Then for one.
func (w *world) honest(list []draft) (kept []draft) {
	_ = w.ref.try(func(trial *Reference) error {
		for _, d := range list {
			j := trial.find(d.from.ID)
			if j != nil && d.to.AttemptFieldsOnly && j.rec.Version == d.to.Record.Version {
				stored := draft{from: j.rec, to: d.to}
				if j.counted { // the storage's to count
					stored.from.Dependencies = d.to.Record.Dependencies
				}
				if stored.edits() {
					continue
				}
			}
			trial.settleThen(w.now, &d.to)
			kept = append(kept, d)
		}
		return errors.New("only tried")
	})
	return kept
}

// ours and theirs are the changes with the versions of the reference, and of the storage.
func changes(list []draft) (ours, theirs []storage.Change) {
	for _, d := range list {
		ours = append(ours, d.to)
		c := d.to
		c.Record = c.Record.Copy()
		c.Record.Version = d.got
		theirs = append(theirs, c)
	}
	return ours, theirs
}

func draftText(list []draft) string {
	var texts []string
	for _, d := range list {
		texts = append(texts, d.String())
	}
	if len(texts) == 0 {
		return " nothing"
	}
	return lines(texts)
}

func (w *world) settle(t *rapid.T) randomOp {
	list := w.drafts(t, 1, 5, func() bool { return chance(t, 3) })
	if !chance(t, 3) {
		for i := range list {
			c := &list[i].to
			if (c.AttemptFieldsOnly || !list[i].edits()) && c.Record.State.Terminal() && !chance(t, 4) {
				c.AttemptFieldsOnly = true
				c.Then = w.batch(t, 1+dice(t, 3), nil)
			}
		}
	}
	if chance(t, 2) {
		for i := range list {
			if !chance(t, 4) {
				list[i].to.Log = w.log(t)
			}
		}
	}
	if gone := w.deleted(); len(gone) > 0 && chance(t, 6) {
		var r storage.Record
		r.ID, r.State, r.Queue, r.Type = pick(t, gone...), ojs.StateActive, "a", "x"
		v := pick(t, w.gone[r.ID]...)
		r.Version = v.ref
		list = append(list, draft{r, w.change(t, r, false), v.got})
	}
	list = w.honest(list)
	return randomOp{
		"settle",
		func() string { return "settle" + draftText(list) },
		func() { w.doSettle(list) },
	}
}

// log draws what an attempt has logged, of any bytes.
func (w *world) log(t *rapid.T) []byte {
	text := fmt.Sprintf("%s %d", clockText(w.now), dice(t, 1<<10))
	return []byte(text + pick(t, "", "\n", "\x00\xff", strings.Repeat("x", 1<<10)))
}

func (w *world) doSettle(list []draft) {
	ours, theirs := changes(list)
	before := w.states()
	want, _ := w.ref.Settle(w.ctx, w.now, ours, nil)
	got, err := w.s.Settle(w.ctx, w.now, theirs, nil)
	w.same("the error of settle", err, nil)
	w.sameSettled("settle", got, want, ours)
	for i, c := range ours {
		w.settleOutcome(settleName(c.AttemptFieldsOnly), before, c, want[i])
		if want[i].Err != nil {
			continue
		}
		w.as[c.Record.ID] = settleName(c.AttemptFieldsOnly)
		w.logAt[refLog{c.Record.ID, want[i].Version}] = want[i].Version + w.ahead[c.Record.ID]
		w.movedBy(want[i].Moved)
		w.sameInserted(c.Then, got[i].Then, want[i].Then)
		w.sameJobs("moved by settle of "+nameOf(c.Record.ID), w.mine(got[i].Moved...), want[i].Moved)
		for _, in := range want[i].Then {
			for _, r := range in.Replaced {
				w.as[r.ID] = "insert: replace"
			}
			for _, r := range in.Dropped {
				w.as[r.ID] = "insert: drop"
			}
			if in.Updated {
				w.as[in.Existing.ID] = "insert: take over"
			}
		}
	}
}

func settleName(sameJob bool) string {
	if sameJob {
		return "settle, same job"
	}
	return "settle"
}

// The states to which settleMany brings jobs.
var (
	endOfAttempt = []ojs.State{ojs.StateCompleted, ojs.StateRetryable, ojs.StateDiscarded}
	endOfWait    = []ojs.State{ojs.StateCancelled, ojs.StateDiscarded, ojs.StateDiscarded}
)

// settleMany ends, or activates, up to 2000 jobs in one call.
func (w *world) settleMany(t *rapid.T) randomOp {
	seed, most := dice(t, 1<<16), pick(t, 500, 1000, 2000)
	return randomOp{
		"settle",
		func() string { return fmt.Sprintf("settle up to %d jobs (seed %d)", most, seed) },
		func() {
			r := rand.New(rand.NewPCG(uint64(seed), 2))
			var list []draft
			for _, i := range r.Perm(len(w.ref.jobs)) {
				from := w.ref.jobs[i].rec.Copy()
				to := from.Copy()
				switch {
				case len(list) == most:
				case from.State == ojs.StateActive:
					to.State = endOfAttempt[r.IntN(3)]
				case from.State.Waiting() && from.State.CanBecome(ojs.StateCancelled):
					to.State = endOfWait[r.IntN(3)]
				}
				if to.State == from.State {
					continue
				}
				to.NextRetryAt, to.LeaseUntil = time.Time{}, time.Time{}
				if to.State == ojs.StateRetryable {
					to.NextRetryAt = w.now.Add(time.Duration(r.IntN(5)) * time.Second)
				} else {
					to.FinishedAt = w.now.Add(-time.Duration(r.IntN(4)) * time.Second)
				}
				if to.State == ojs.StateDiscarded && r.IntN(2) == 0 {
					to.DeadLetteredAt = w.now
				}
				list = append(
					list,
					draft{
						from,
						storage.Change{Record: to, AttemptFieldsOnly: r.IntN(2) == 0},
						from.Version + w.ahead[from.ID],
					},
				)
			}
			w.doSettle(list)
		},
	}
}

// sameSettled compares the results of changes.
func (w *world) sameSettled(what string, got, want []storage.Settled, changes []storage.Change) {
	w.rt.Helper()
	w.same("the number of results of "+what, len(got), len(want))
	for i := range got { // a change may meet a job that an earlier one has inserted
		w.begin(changes[i].Then, got[i].Then, want[i].Then)
	}
	for i := range got {
		if got[i].Version != 0 {
			got[i].Version = w.version(changes[i].Record.ID, got[i].Version)
		}
		w.same(
			fmt.Sprintf("%s: result %d, of %s", what, i+1, nameOf(changes[i].Record.ID)),
			got[i:i+1],
			want[i:i+1],
		)
	}
}

func (w *world) stepper() storage.SettleClaimer {
	s, _ := settleClaimer(w.s)
	return s
}

func (w *world) settleAndClaim(t *rapid.T) randomOp {
	list := w.honest(w.drafts(t, 0, 5, func() bool { return true }))
	c, room := w.ask(t), dice(t, 5)
	return randomOp{"settle and claim", func() string {
		return fmt.Sprintf(
			"settle and claim, with room for %d: settle%s\n    and claim %s",
			room,
			draftText(list),
			askText(c),
		)
	}, func() {
		ours, theirs := changes(list)
		to, their := make([]*storage.Record, len(ours)), make([]*storage.Record, len(ours))
		for i := range ours {
			to[i], their[i] = &ours[i].Record, &theirs[i].Record
		}
		into, wanted := used(room), used(room)
		before := w.states()
		refAsk, ask := limits(c)
		want, most, _ := w.ref.settleAndClaim(w.ctx, w.now, to, nil, refAsk, wanted)
		got, n, err := w.stepper().SettleAndClaim(w.ctx, w.now, their, nil, ask, into)
		w.same("the error of settle and claim", err, nil)
		w.sameLimited("settle and claim: claim", ask.Limits, refAsk.Limits)
		w.sameSettled("settle and claim", got, want, ours)
		for i, c := range ours {
			w.settleOutcome("settle and claim: settle", before, c, want[i])
			if want[i].Err == nil {
				w.as[c.Record.ID] = "settle and claim: settle"
			}
			w.movedBy(want[i].Moved)
			w.sameJobs("moved by settle and claim: settle of "+nameOf(c.Record.ID),
				w.mine(got[i].Moved...), want[i].Moved)
		}
		var recs, wantRecs []storage.Record
		for i := range min(n, room) {
			recs = append(recs, *into[i])
		}
		for i := range most {
			wantRecs = append(wantRecs, *wanted[i])
			if w.as[wanted[i].ID] == "" {
				w.as[wanted[i].ID] = "settle and claim: claim"
			}
		}
		w.sameJobs("claimed by settle and claim", w.mine(recs...), wantRecs)
		w.same("the number of jobs claimed by settle and claim", n, most)
	}}
}

func (w *world) unclaim(t *rapid.T) randomOp {
	var held []storage.Held
	for _, j := range w.ref.jobs {
		if j.rec.State == ojs.StateActive && j.rec.Attempt > 0 && chance(t, 3) && w.canUnclaim(j.rec) {
			held = append(held, heldOf(j.rec))
		}
	}
	if r, ok := w.jobIn(t, ojs.AllStates()...); ok && (r.State != ojs.StateActive || w.canUnclaim(r)) &&
		!slices.ContainsFunc(held, func(h storage.Held) bool { return h.ID == r.ID }) {
		r.Version -= uint64(min(dice(t, 2), int(r.Version)))
		held = append(held, heldOf(r))
	}
	if r, ok := w.job(t); ok && len(w.gone[r.ID]) > 0 {
		held = append(held, storage.Held{ID: r.ID, Version: pick(t, w.gone[r.ID]...).got - w.ahead[r.ID]})
	}
	held = some(t, append(held, storage.Held{ID: "unknown"}), len(held)+1, len(held)+1)
	return randomOp{"unclaim", func() string { return "undo the claims of " + heldText(held) }, func() {
		var theirs []storage.Held
		before := w.states()
		for _, h := range held {
			theirs = append(theirs, storage.Held{ID: h.ID, Version: h.Version + w.ahead[h.ID]})
		}
		want, _ := w.ref.unclaim(w.ctx, held)
		got, err := w.stepper().Unclaim(w.ctx, w.now, theirs)
		w.same("the error of unclaim", err, nil)
		w.same("the number of jobs unclaimed", got, want)
		for _, h := range held {
			if r := w.ref.find(h.ID); r != nil && r.rec.State == before[h.ID] {
				w.cov.add("unclaim", before[h.ID], skippedJob)
			}
		}
	}}
}

// canUnclaim reports whether the claim of an active job may be undone. A job without an
// attempt was never claimed, but changed. Jobs that come due at the same time as one that
// was given back come in any order.
func (w *world) canUnclaim(r storage.Record) bool {
	if r.Attempt == 0 {
		return false
	}
	r.Unclaim()
	at := r.WakeAt()
	return at.IsZero() || !slices.ContainsFunc(w.ref.jobs, func(j *refJob) bool {
		back := j.rec
		if back.State == ojs.StateActive {
			back.Unclaim()
		}
		return back.ID != r.ID && (back.WakeAt().Equal(at) || j.rec.WakeAt().Equal(at))
	})
}

func heldText(held []storage.Held) string {
	var list []string
	for _, h := range held {
		list = append(list, fmt.Sprintf("%s at version %d", nameOf(h.ID), h.Version))
	}
	if len(list) == 0 {
		return "no job"
	}
	return strings.Join(list, ", ")
}

func (w *world) extend(t *rapid.T) randomOp {
	var xs, theirs []storage.Extension
	named := make(map[string]bool) // an id is in a call once
	for range dice(t, 4) {
		states := ojs.AllStates()
		if chance(t, 2) {
			states = []ojs.State{ojs.StateActive}
		}
		r, ok := w.jobIn(t, states...)
		if !ok || named[r.ID] {
			continue
		}
		named[r.ID] = true
		v := w.token(t, r)
		x := storage.Extension{
			Held:       storage.Held{ID: r.ID, Version: v.ref},
			Progress:   pick(t, 0, 0.25, 0.5, 1),
			Checkpoint: w.checkpoint(t),
		}
		xs = append(xs, x)
		x.Version = v.got
		theirs = append(theirs, x)
	}
	if chance(t, 6) {
		x := storage.Extension{Held: storage.Held{ID: "unknown", Version: 1}}
		xs, theirs = append(xs, x), append(theirs, x)
	}
	return randomOp{"extend", func() string {
		var held []storage.Held
		for _, x := range xs {
			held = append(held, x.Held)
		}
		return "extend " + heldText(held)
	}, func() { w.doExtend(xs, theirs) }}
}

func (w *world) doExtend(xs, theirs []storage.Extension) {
	want, _ := w.ref.Extend(w.ctx, w.now, xs)
	got, err := w.s.Extend(w.ctx, w.now, theirs)
	w.same("the error of extend", err, nil)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.failf("lost by extend: %s, want %s", listText(got), listText(want))
	}
	for _, id := range want {
		if j := w.ref.find(id); j != nil {
			w.cov.add("extend", j.rec.State, refusedFenced)
		}
	}
}

// extendMany renews the leases of many jobs in another order than that of their claims.
func (w *world) extendMany(t *rapid.T) randomOp {
	seed, most := dice(t, 1<<16), pick(t, 500, 1000)
	return randomOp{
		"extend",
		func() string { return fmt.Sprintf("extend up to %d leases (seed %d)", most, seed) },
		func() {
			r := rand.New(rand.NewPCG(uint64(seed), 3))
			var xs, theirs []storage.Extension
			for _, i := range r.Perm(len(w.ref.jobs)) {
				if j := w.ref.jobs[i]; j.rec.State == ojs.StateActive && len(xs) < most {
					x := storage.Extension{Held: heldOf(j.rec)}
					xs = append(xs, x)
					x.Version += w.ahead[x.ID]
					theirs = append(theirs, x)
				}
			}
			w.doExtend(xs, theirs)
		},
	}
}

func (w *world) due(t *rapid.T) randomOp {
	n := w.upTo(t, 5)
	return randomOp{
		"due",
		func() string { return fmt.Sprintf("what is due, up to %d jobs", n) },
		func() { w.doDue(n) },
	}
}

func (w *world) doDue(n int) storage.Due {
	want, _ := w.ref.Due(w.ctx, w.now, n, nil)
	got, err := w.s.Due(w.ctx, w.now, n, usedList(3))
	w.movedBy(want.Moved)
	w.same("the error of due", err, nil)
	w.sameJobs("promoted", w.mine(got.Promoted...), want.Promoted)
	w.sameJobs("expired", w.mine(got.Expired...), want.Expired)
	w.sameJobs("stalled", w.mine(got.Stalled...), want.Stalled)
	w.sameJobs("moved by due", w.mine(got.Moved...), want.Moved)
	// If max has cut the call short, next is any time not after now.
	if want.Next.After(w.now) || want.Next.IsZero() || got.Next.IsZero() || got.Next.After(w.now) {
		w.same("next due", w.cfg.rounded(got.Next), w.cfg.rounded(want.Next))
	}
	return want
}

func (cfg *Config) rounded(t time.Time) time.Time {
	if cfg.TimePrecision > 0 {
		t = t.Truncate(cfg.TimePrecision)
	}
	return t
}

func (w *world) remove(t *rapid.T) randomOp {
	var list []string
	for range dice(t, 4) {
		states := finished
		if chance(t, 5) {
			states = ojs.AllStates()
		}
		if r, ok := w.jobIn(t, states...); ok && !slices.Contains(list, r.ID) {
			list = append(list, r.ID)
		}
	}
	if chance(t, 3) {
		list = append(list, "unknown")
	}
	return randomOp{"delete", func() string { return "delete " + listText(list) }, func() {
		before := w.states()
		var want int
		var wantErr error
		w.deleting(func() { want, wantErr = w.ref.Delete(w.ctx, list) })
		got, err := w.s.Delete(w.ctx, list)
		var bad *ojs.TransitionError
		if errors.As(wantErr, &bad) && errors.As(err, &bad) { // about any of those that are not terminal
			err, wantErr = nil, nil
		}
		w.same("the error of delete", err, wantErr)
		w.same("the number of jobs deleted", got, want)
		for _, id := range list {
			switch s := before[id]; {
			case s == "":
			case w.ref.find(id) == nil:
				w.cov.add("delete", s, deletedJob)
			case !s.Terminal():
				w.cov.add("delete", s, refusedTransition)
			}
		}
	}}
}

func (w *world) prune(t *rapid.T) randomOp {
	p := storage.Prune{
		Now: w.now, DeadLetters: chance(t, 2), States: some(t, finished, 0, 3),
		Beyond: dice(t, 4), Max: w.upTo(t, 4),
	}
	if w.many && chance(t, 2) {
		p.Beyond = pick(t, 10, 500, 1500)
	}
	if chance(t, 4) {
		p.Now = w.near(t)
	}
	if chance(t, 2) {
		p.Before = pick(t, w.in(t, -10), w.near(t))
	}
	if chance(t, 2) {
		p.Spare = pick(t, w.in(t, -10), w.near(t))
	}
	return randomOp{"prune", func() string {
		s := fmt.Sprintf("prune up to %d", p.Max)
		if p.DeadLetters {
			s += " dead letters"
		}
		if len(p.States) > 0 {
			s += fmt.Sprintf(" that are %v", p.States)
		}
		return s + fmt.Sprintf(
			", as of %s: finished before %s, or beyond %d and before %s",
			clockText(p.Now),
			clockText(p.Before),
			p.Beyond,
			clockText(p.Spare),
		)
	}, func() { w.doPrune(p) }}
}

func (w *world) doPrune(p storage.Prune) (n int) {
	before := w.states()
	var want storage.Pruned
	w.deleting(func() { want, _ = w.ref.Prune(w.ctx, p) })
	got, err := w.s.Prune(w.ctx, p)
	w.same("the error of prune", err, nil)
	if !slices.Equal(got.IDs, want.IDs) {
		w.failf("pruned: %s, want %s", listText(got.IDs), listText(want.IDs))
	}
	w.same("left by prune", got.Left, want.Left)
	w.same("the oldest left by prune", w.cfg.rounded(got.Oldest), w.cfg.rounded(want.Oldest))
	for _, id := range want.IDs {
		w.cov.add("prune", before[id], deletedJob)
	}
	return len(want.IDs)
}

func (w *world) queue(t *rapid.T) randomOp {
	name := pick(t, append(w.queues(), "none")...)
	to := pick(t, ojs.QueueActive, ojs.QueuePaused, ojs.QueueActive, ojs.QueuePaused, ojs.QueueDraining)
	if chance(t, 12) {
		to = "unknown"
	}
	return randomOp{
		"queue",
		func() string { return fmt.Sprintf("set queue %s to %s", name, to) },
		func() { w.doQueue(name, to) },
	}
}

func (w *world) doQueue(name string, to ojs.QueueState) {
	want, wantErr := w.ref.SetQueueState(w.ctx, name, to)
	got, err := w.s.SetQueueState(w.ctx, name, to)
	w.same("the error of set queue state", err, wantErr)
	w.same("the state of queue "+name+" before", got, want)
	if want == ojs.QueuePaused && wantErr == nil && to != ojs.QueuePaused {
		for _, j := range w.ref.jobs {
			if j.rec.Queue == name && j.rec.State == ojs.StateAvailable {
				w.expectAvailable()
				w.cov.add("queue", j.rec.State, resumed)
			}
		}
	}
}
