package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

func (c *C) quarantine() storage.Quarantiner {
	c.tb.Helper()
	q, ok := quarantiner(c.S)
	if !ok {
		c.failf("the storage sets no records aside")
	}
	return q
}

// plant inserts a job whose record does not decode from then on. No call has met it yet.
func (c *C) plant(change ...func(*storage.Record)) string {
	c.tb.Helper()
	id := c.insert(c.job(change...))[0]
	c.cfg.Plant(c.tb, unscribbled(c.S), id)
	return id
}

// thereAndBack sets the record of a job aside, and releases it.
func (c *C) thereAndBack(id string) {
	c.tb.Helper()
	c.cfg.Plant(c.tb, unscribbled(c.S), id)
	key := c.aside(id)
	c.cfg.Mend(c.tb, unscribbled(c.S), id)
	c.noErr("ReleaseQuarantined", c.quarantine().ReleaseQuarantined(c.ctx, key))
}

// aside has a call meet a record that does not decode, and returns its key in the
// quarantine.
func (c *C) aside(id string) string {
	c.tb.Helper()
	_, err := c.S.Get(c.ctx, id)
	var q *ojs.QuarantinedError
	if !errors.As(err, &q) || !errors.Is(err, ojs.ErrNotFound) {
		c.failf("Get of a job whose record does not decode returned %v, not an *ojs.QuarantinedError", err)
	}
	if q.ID != id || q.Key == "" || q.Reason == "" {
		c.failf("Get of a job whose record does not decode returned %+v", q)
	}
	return q.Key
}

// timed makes a job to which time does something within the hour.
func (c *C) timed(s ojs.State) string {
	c.tb.Helper()
	if s == ojs.StateAvailable {
		return c.insert(c.job(expires(time.Hour)))[0]
	}
	return c.reach(s).ID
}

// listed wants the quarantine to hold these records, in their order, and returns them.
func (c *C) listed(want ...string) (list []storage.Quarantined) {
	c.tb.Helper()
	q := c.quarantine()
	after := ""
	for pages := 0; pages <= len(want)+1; pages++ {
		page, err := q.Quarantined(c.ctx, after, 2)
		c.noErr("Quarantined", err)
		if len(page) == 0 {
			break
		}
		if len(page) > 2 {
			c.failf("Quarantined with a limit of 2 returned %d records", len(page))
		}
		list = append(list, page...)
		after = page[len(page)-1].Key
	}
	var got []string
	for _, r := range list {
		got = append(got, r.Name)
	}
	if !slices.Equal(got, want) {
		c.failf("the quarantine holds %v, not %v", short(got), short(want))
	}
	n, err := q.CountQuarantined(c.ctx)
	c.noErr("CountQuarantined", err)
	if n != len(want) {
		c.failf("CountQuarantined returned %d, not %d", n, len(want))
	}
	return list
}

// refusesRelease wants a release to be refused with the record still in the quarantine.
func (c *C) refusesRelease(key, id string) {
	c.tb.Helper()
	err := c.quarantine().ReleaseQuarantined(c.ctx, key)
	var q *ojs.QuarantinedError
	if !errors.As(err, &q) || q.ID != id || q.Key != key || q.Reason == "" {
		c.failf(
			"ReleaseQuarantined of a record that does not decode returned %v, not an *ojs.QuarantinedError about it", err)
	}
}

// unknown wants a key, and a job's id, to be in no quarantine.
func (c *C) unknown(call string, err error) {
	c.tb.Helper()
	c.wantErr(call, err, ojs.ErrNotFound)
	if errors.Is(err, ojs.ErrQuarantined) {
		c.failf("%s returned %v, and nothing is in the quarantine", call, err)
	}
}

var quarantineCases = []Case{
	{"quarantine-1", "Quarantine/Claim", "storage.Quarantiner", "A claim that meets records that do not decode returns what it would return without them, and nothing is spent.", needsQuarantine, func(c *C) {
		c.shut("closed")
		for name, claim := range map[string]storage.Claim{
			"all queues": {}, "its queue": {Queues: []string{"q"}}, "its type": {Types: []string{"x"}},
		} {
			closed := c.insert(c.job(limited("closed"), queue("r")))
			var good, bad []string
			for range 3 {
				bad = append(bad, c.plant())
				good = append(good, c.insert(c.job())...)
			}
			bad = append(bad, c.plant(priority(1)), c.plant(limited("open")))
			claim.Max = len(good)
			got := c.claimOf(claim)
			if !slices.Equal(ids(got), good) {
				c.failf("%s: claimed %v, not %v", name, short(ids(got)), short(good))
			}
			for _, r := range got {
				if r.Attempt != 1 {
					c.failf("%s: attempt %d of a job that is claimed for the first time", name, r.Attempt)
				}
				c.settled(r, c.to(ojs.StateCompleted))
			}
			for _, id := range bad {
				key := c.aside(id)
				c.cfg.Mend(c.tb, unscribbled(c.S), id)
				c.noErr("ReleaseQuarantined", c.quarantine().ReleaseQuarantined(c.ctx, key))
				if r := c.wantState(id, ojs.StateAvailable); r.Attempt != 0 || r.Worker != "" ||
					!r.StartedAt.IsZero() {
					c.failf("%s: the claim that met the record has changed it: %+v", name, r)
				}
			}
			for _, r := range c.claimOf(storage.Claim{Max: len(bad) + 1}) {
				if !slices.Contains(bad, r.ID) {
					c.failf("%s: claimed %v", name, short([]string{r.ID}))
				}
				c.settled(r, c.to(ojs.StateCompleted))
			}
			if r := c.wantState(closed[0], ojs.StateAvailable); r.Attempt != 0 {
				c.failf("%s: attempt %d of a job that was skipped", name, r.Attempt)
			}
			c.settled(c.get(closed[0]), c.to(ojs.StateCancelled))
		}
		once := limit(ojs.RateLimit{Key: "once", Rate: ojs.Rate{Limit: 1, Per: time.Hour}})
		c.plant(once)
		c.obeying(2, c.insert(c.job(once))...)
	}},
	{"quarantine-2", "Quarantine/Due", "storage.Quarantiner", "Due does to each job what it would do without the records that do not decode.", needsQuarantine, func(c *C) {
		for _, s := range []ojs.State{ojs.StateScheduled, ojs.StateRetryable, ojs.StateActive,
			ojs.StateAvailable} {
			var good []string
			for range 3 {
				c.cfg.Plant(c.tb, unscribbled(c.S), c.timed(s))
				good = append(good, c.timed(s))
			}
			c.pass(time.Hour)
			d, err := c.S.Due(c.ctx, c.now, 6, nil)
			c.noErr("Due", err)
			more, err := c.S.Due(c.ctx, c.now, 6, nil) // the one that has set records aside may do less
			c.noErr("Due", err)
			d.Next = more.Next
			got := map[ojs.State][]storage.Record{
				ojs.StateScheduled: append(d.Promoted, more.Promoted...),
				ojs.StateActive:    append(d.Stalled, more.Stalled...),
				ojs.StateAvailable: append(d.Expired, more.Expired...),
			}
			got[ojs.StateRetryable] = got[ojs.StateScheduled]
			if !slices.Equal(ids(got[s]), good) {
				c.failf("of jobs that are %s, Due did something to %v, not to %v",
					s, short(ids(got[s])), short(good))
			}
			if s != ojs.StateActive && !d.Next.IsZero() {
				c.failf("the next deadline is %v, and no job waits for it", d.Next)
			}
			for _, r := range got[s] {
				if r.State == ojs.StateActive {
					c.settled(r, c.to(ojs.StateCompleted))
				} else if !r.State.Terminal() {
					c.settled(r, c.to(ojs.StateCancelled))
				}
			}
		}
	}},
	{"quarantine-3", "Quarantine/NoPart", "storage.Quarantiner", "A job in the quarantine takes part in no call: it is not found, listed, counted, changed, extended, deleted or pruned.", needsQuarantine, func(c *C) {
		for _, s := range ojs.AllStates() {
			r := c.reach(s)
			c.cfg.Plant(c.tb, unscribbled(c.S), r.ID)
			key := c.aside(r.ID)
			to := r
			if to.State = ojs.StateCancelled; s.Terminal() {
				to.State = ojs.StateAvailable
			}
			if out := c.settle(to); !errors.Is(out.Err, ojs.ErrNotFound) {
				c.failf("Settle of a job that was %s returned %+v, not ojs.ErrNotFound", s, out)
			}
			lost, err := c.S.Extend(c.ctx, c.now, []storage.Extension{{Held: heldOf(r)}})
			c.noErr("Extend", err)
			if !slices.Equal(lost, []string{r.ID}) {
				c.failf("Extend of a job that was %s returned %v as lost", s, short(lost))
			}
			if n, err := c.S.Delete(c.ctx, []string{r.ID}); err != nil || n != 0 {
				c.failf("Delete of a job that was %s returned %d, %v", s, n, err)
			}
			pruned, err := c.S.Prune(c.ctx, storage.Prune{Now: c.now, Before: c.now.Add(time.Hour), Max: 10})
			c.noErr("Prune", err)
			if len(pruned.IDs) != 0 || pruned.Left != 0 {
				c.failf("Prune beside a job that was %s returned %+v", s, pruned)
			}
			if got := c.list(storage.Query{}); len(got) != 0 {
				c.failf("List returned %v", short(got))
			}
			counts, err := c.S.Counts(c.ctx)
			c.noErr("Counts", err)
			for _, n := range counts {
				if n.N != 0 {
					c.failf("Counts returned %+v", n)
				}
			}
			c.noErr("DeleteQuarantined", c.quarantine().DeleteQuarantined(c.ctx, key))
		}
	}},
	{"quarantine-4", "Quarantine/List", "Quarantiner.Quarantined", "Quarantined returns records in the order in which they were set aside, page by page, with what can be read of them.", needsQuarantine, func(c *C) {
		c.listed()
		var want []string
		keys := make(map[string]string)
		states := ojs.AllStates()
		for _, s := range states {
			r := c.reach(s)
			c.cfg.Plant(c.tb, unscribbled(c.S), r.ID)
			keys[r.ID] = c.aside(r.ID)
			want = append(want, r.ID)
		}
		c.insert(c.job())
		for i, q := range c.listed(want...) {
			if q.Key != keys[q.Name] || q.Kind != storage.KindJob || q.Reason == "" || q.At.IsZero() ||
				q.Type != "x" || q.Queue == "" || q.State != states[i] {
				c.failf("of a job that was %s, key %s, Quarantined returned %+v", states[i], keys[q.Name], q)
			}
		}
		all, err := c.quarantine().Quarantined(c.ctx, "", 0)
		c.noErr("Quarantined", err)
		if len(all) != len(want) {
			c.failf("Quarantined without a limit returned %d records, not %d", len(all), len(want))
		}
	}},
	{"quarantine-5", "Quarantine/Release", "Quarantiner.ReleaseQuarantined", "A release is refused while the record does not decode; afterwards the job is as it was, in its place.", needsQuarantine, func(c *C) {
		for _, s := range ojs.AllStates() {
			was := c.reach(s)
			for range 2 {
				c.cfg.Plant(c.tb, unscribbled(c.S), was.ID)
				key := c.aside(was.ID)
				c.refusesRelease(key, was.ID)
				c.listed(was.ID)
				c.cfg.Mend(c.tb, unscribbled(c.S), was.ID)
				c.noErr("ReleaseQuarantined", c.quarantine().ReleaseQuarantined(c.ctx, key))
				c.listed()
				c.same("a job that was "+string(s), c.get(was.ID), was)
				c.unknown("ReleaseQuarantined once more", c.quarantine().ReleaseQuarantined(c.ctx, key))
			}
			if s == ojs.StateActive {
				c.settled(was, c.to(ojs.StateCompleted)) // its attempt has kept the token
			}
		}
		queued := c.insert(c.job(), c.job(), c.job())
		c.cfg.Plant(c.tb, unscribbled(c.S), queued[1])
		c.order(storage.Claim{Queues: []string{"q"}, Types: []string{"none"}})
		key := c.aside(queued[1])
		c.cfg.Mend(c.tb, unscribbled(c.S), queued[1])
		c.noErr("ReleaseQuarantined", c.quarantine().ReleaseQuarantined(c.ctx, key))
		if got := c.list(storage.Query{Queues: []string{"q"}}); !slices.Equal(got, queued) {
			c.failf("after a release List returned %v, not %v", short(got), short(queued))
		}
		if c.cfg.SettleClaims {
			claimed := c.claimOf(storage.Claim{Queues: []string{"q"}, Max: 1})[0]
			c.thereAndBack(claimed.ID)
			c.unclaim(1, heldOf(claimed)) // which gives it its place again
		}
		a := c.tenant(3, fair("a"), queue("fair"))
		b := c.tenant(2, fair("b"), queue("fair"))
		for _, id := range []string{b[0], a[1], b[1]} {
			c.thereAndBack(id)
		}
		b = append(b, c.tenant(1, fair("b"), queue("fair"))...) // whose latest has been away
		c.order(storage.Claim{Queues: []string{"fair"}}, a[0], b[0], a[1], b[1], a[2], b[2])
		c.tenant(20, queue("behind"), jobType("skipped")) // which claims pass
		behind := c.tenant(3, queue("behind"))
		next := storage.Claim{Queues: []string{"behind"}, Types: []string{"x"}, Max: 1}
		c.claims(next, behind[0])
		c.cfg.Plant(c.tb, unscribbled(c.S), behind[1])
		released := c.aside(behind[1])
		c.claims(next, behind[2])
		c.claims(next)
		c.cfg.Mend(c.tb, unscribbled(c.S), behind[1])
		c.noErr("ReleaseQuarantined", c.quarantine().ReleaseQuarantined(c.ctx, released))
		c.claims(next, behind[1])
		c.order(storage.Claim{Queues: []string{"q"}}, queued...)
		limited := c.insert(c.job(atOnce("k", 1), queue("l")), c.job(atOnce("k", 1), queue("l")))
		within := func(want ...string) {
			c.tb.Helper()
			c.claims(storage.Claim{Limits: new(storage.Limited), Queues: []string{"l"}, Max: 2}, want...)
		}
		within(limited[0])
		within()
		c.cfg.Plant(c.tb, unscribbled(c.S), limited[0])
		away := c.aside(limited[0]) // and counts in no limit until its release
		within(limited[1])
		c.cfg.Mend(c.tb, unscribbled(c.S), limited[0])
		c.noErr("ReleaseQuarantined", c.quarantine().ReleaseQuarantined(c.ctx, away))
		limited = append(limited, c.tenant(2, atOnce("k", 1), queue("l"))...)
		c.thereAndBack(limited[2]) // the first of those that wait
		c.endsNow(limited[1])
		within()
		c.endsNow(limited[0])
		within(limited[2])
		c.thereAndBack(limited[3])
		c.endsNow(limited[2])
		within(limited[3])
	}},
	{"quarantine-6", "Quarantine/Delete", "Quarantiner.DeleteQuarantined", "A record that was deleted from the quarantine is gone.", needsQuarantine, func(c *C) {
		q := c.quarantine()
		gone, stays := c.plant(), c.plant()
		key, other := c.aside(gone), c.aside(stays)
		c.noErr("DeleteQuarantined", q.DeleteQuarantined(c.ctx, key))
		c.unknown("DeleteQuarantined once more", q.DeleteQuarantined(c.ctx, key))
		c.unknown("ReleaseQuarantined after it", q.ReleaseQuarantined(c.ctx, key))
		c.unknown("DeleteQuarantined of no key", q.DeleteQuarantined(c.ctx, "none"))
		c.unknown("ReleaseQuarantined of no key", q.ReleaseQuarantined(c.ctx, "none"))
		_, err := c.S.Get(c.ctx, gone)
		c.unknown("Get", err)
		c.listed(stays)
		c.refusesRelease(other, stays)
		met := c.plant()
		c.list(storage.Query{}) // which sets it aside
		c.listed(stays, met)
	}},
	{"quarantine-7", "Quarantine/Blocks", "storage.Quarantiner", "A record that does not decode keeps out neither a job with its id nor an equal job nor one for which its queue has room; released it takes the place of none, and no token of one.", needsQuarantine, func(c *C) {
		q := c.quarantine()
		first := c.plant()
		again := func(r *storage.Record) { r.ID = first }
		anew := c.get(c.insert(c.job(again))[0])
		keys := c.listed(first)
		c.cfg.Mend(c.tb, unscribbled(c.S), first)
		err := q.ReleaseQuarantined(c.ctx, keys[0].Key)
		var dup *ojs.DuplicateError
		if !errors.As(err, &dup) || dup.ID != first || dup.State != ojs.StateAvailable {
			c.failf(
				"ReleaseQuarantined beside a job with the id returned %v, not an *ojs.DuplicateError about it", err)
		}
		c.listed(first)
		c.same("the job with the id", c.get(first), anew)
		c.settled(anew, c.to(ojs.StateCancelled))
		if n, err := c.S.Delete(c.ctx, []string{first}); n != 1 || err != nil {
			c.failf("Delete returned %d, %v", n, err)
		}
		c.noErr("ReleaseQuarantined", q.ReleaseQuarantined(c.ctx, keys[0].Key))
		c.fresh(first, []uint64{anew.Version, anew.Version + 1})

		for _, strategy := range []ojs.Conflict{ojs.ConflictReject, ojs.ConflictIgnore,
			ojs.ConflictReplace, ojs.ConflictReplaceExceptSchedule} {
			equal := unique("f-"+string(strategy), ojs.UniquePolicy{OnConflict: strategy})
			bad := c.plant(equal)
			out, err := c.insertBatch(c.job(equal))
			c.noErr("Insert of an equal job", err)
			if out[0].Existing != nil || len(out[0].Replaced) != 0 {
				c.failf("on conflict %s, Insert of an equal job returned %+v", strategy, out[0])
			}
			key := c.aside(bad)
			c.cfg.Mend(c.tb, unscribbled(c.S), bad)
			c.noErr("ReleaseQuarantined beside an equal job", q.ReleaseQuarantined(c.ctx, key))
			if got := c.claim(3); len(got) != 2 {
				c.failf("claimed %d equal jobs, not 2", len(got))
			}
		}

		var ended []string // each the newest when those after it are gone
		for range 8 {
			ended = append(ended,
				c.insert(c.job(unique("ended", ojs.UniquePolicy{States: []ojs.State{ojs.StateActive}})))...)
			c.settled(c.one(), c.to(ojs.StateCompleted))
		}
		for _, id := range ended {
			c.cfg.Plant(c.tb, unscribbled(c.S), id)
		}
		c.insert(c.job(unique("ended", ojs.UniquePolicy{States: []ojs.State{ojs.StateCompleted}})))
		c.settled(c.one(), c.to(ojs.StateCompleted))

		bounded := func(drop bool) storage.Inserted {
			out, err := c.S.Insert(c.ctx, c.now,
				[]storage.Insert{{Record: c.job(queue("bounded")), MaxDepth: 2, DropOldest: drop}}, nil)
			c.noErr("Insert into a queue with room", err)
			return out[0]
		}
		c.plant(queue("bounded"))
		bounded(true)
		if out := bounded(true); len(out.Dropped) != 0 || out.Depth != 2 {
			c.failf("Insert into a queue of 2 with one job returned %+v", out)
		}
		oldest := c.list(storage.Query{Queues: []string{"bounded"}})[0]
		if out := bounded(true); len(out.Dropped) != 1 || out.Dropped[0].ID != oldest {
			c.failf("Insert into a full queue returned %+v, and the oldest job is %v",
				out, short([]string{oldest}))
		}
		for _, r := range c.claimOf(storage.Claim{Queues: []string{"bounded"}, Max: 3}) {
			c.settled(r, c.to(ojs.StateCompleted))
		}
		c.aside(c.plant(queue("bounded")))
		bounded(false)
		bounded(false)
	}},
	{"quarantine-8", "Quarantine/Told", "Notice.Quarantined", "Every listener in the process hears once of each record that is set aside, its caller included.", needsQuarantine | needsNotices, func(c *C) {
		for name, meet := range map[string]func(id string){
			"Get":   func(id string) { c.aside(id) },
			"Claim": func(string) { c.claim(1) },
			"List":  func(string) { c.list(storage.Query{}) },
			"Due":   func(string) { c.pass(time.Hour); c.due() },
		} {
			id := c.insert(c.job(expires(time.Hour)))[0]
			self, other := c.listen("self"), c.listen("other")
			c.cfg.Plant(c.tb, unscribbled(c.S), id)
			outside := c.ctx
			c.ctx = storage.WithCaller(c.ctx, "self")
			meet(id)
			c.aside(id) // which is told of only once
			for _, e := range []*ear{self, other} {
				e.hears(fmt.Sprintf("%s has set a record aside", name), func(n storage.Notice) bool {
					return slices.ContainsFunc(n.Quarantined, func(q storage.Quarantined) bool {
						return q.Name == id && q.Key != "" && q.Kind == storage.KindJob &&
							q.Reason != "" && q.Queue == "q" && q.Type == "x"
					})
				})
				e.stop()
			}
			c.ctx = outside
			told := 0
			for len(self.notices) > 0 {
				self.past = append(self.past, <-self.notices)
			}
			for _, n := range self.past {
				told += len(n.Quarantined)
			}
			if told != 1 {
				c.failf("%s: told of %d records: %+v", name, told, self.past)
			}
		}
	}},
	{"quarantine-9", "Quarantine/Durable", "Capabilities.Durable", "The quarantine is there after the storage was opened again.", needsQuarantine | needsReopen, func(c *C) {
		met, unmet := c.plant(), c.plant()
		key := c.aside(met)
		c.reopen()
		if got := c.claim(2); len(got) != 0 {
			c.failf("claimed %v", short(ids(got)))
		}
		c.listed(met, unmet)
		c.cfg.Mend(c.tb, unscribbled(c.S), met)
		c.noErr("ReleaseQuarantined", c.quarantine().ReleaseQuarantined(c.ctx, key))
		if got := c.one(); got.ID != met {
			c.failf("claimed %v", short([]string{got.ID}))
		}
	}},
	{"quarantine-11", "Quarantine/NamedReopened", "storage.Quarantiner",
		"A recurring entry and a state of a queue that do not decode are in the quarantine, " +
			"also after the storage was opened again. They are back after their release.",
		needsQuarantine | needsReopen, func(c *C) {
			if c.cfg.PlantNamed == nil || c.cfg.MendNamed == nil {
				return
			}
			_, err := c.S.SetQueueState(c.ctx, "damaged", ojs.QueuePaused)
			c.noErr("SetQueueState", err)
			c.insert(c.job(queue("damaged")))
			c.setCrons(storage.Cron{Name: "damaged", Schedule: "@daily", NextRun: c.now.Add(time.Hour)})
			entry := c.crons(storage.DocumentQuery{})[0]
			kinds := []storage.Kind{storage.KindCron, storage.KindQueue}
			for _, kind := range kinds {
				c.cfg.PlantNamed(c.tb, unscribbled(c.S), kind, "damaged")
			}
			look := func() (list []storage.Quarantined) {
				c.tb.Helper()
				if got := c.crons(storage.DocumentQuery{}); len(got) > 0 {
					c.failf("the entries are %+v", got)
				}
				states, err := c.S.QueueStates(c.ctx)
				if c.noErr("QueueStates", err); len(states) > 0 {
					c.failf("the states of queues are %v", states)
				}
				list, err = c.quarantine().Quarantined(c.ctx, "", 0)
				c.noErr("Quarantined", err)
				for i, kind := range kinds {
					if len(list) != 2 || list[i].Kind != kind || list[i].Name != "damaged" ||
						list[i].Reason == "" {
						c.failf("the quarantine holds %+v", list)
					}
				}
				return list
			}
			look()
			c.reopen()
			list := look()
			c.claims(storage.Claim{Queues: []string{"none"}, Max: 1}) // which may note the states
			for i, r := range list {
				c.cfg.MendNamed(c.tb, unscribbled(c.S), kinds[i], "damaged")
				c.noErr("ReleaseQuarantined", c.quarantine().ReleaseQuarantined(c.ctx, r.Key))
			}
			c.listed()
			c.claims(storage.Claim{Queues: []string{"damaged"}, Max: 1})
			c.reopen()
			c.sameCrons(0, c.crons(storage.DocumentQuery{}), []storage.Cron{entry})
			c.dueCrons(entry.NextRun, nil, 1, "damaged", time.Time{})
			c.claims(storage.Claim{Queues: []string{"damaged"}, Max: 1})
		}},
	{"quarantine-12", "Quarantine/NamedTaken", "Quarantiner.ReleaseQuarantined",
		"A recurring entry and a state of a queue are not released beside another entry of the name or another state.",
		needsQuarantine, func(c *C) {
			if c.cfg.PlantNamed == nil || c.cfg.MendNamed == nil {
				return
			}
			set := func(s ojs.QueueState) {
				c.tb.Helper()
				_, err := c.S.SetQueueState(c.ctx, "twice", s)
				c.noErr("SetQueueState", err)
			}
			entry := storage.Cron{Name: "twice", Schedule: "@daily", NextRun: c.now.Add(time.Hour)}
			set(ojs.QueuePaused)
			c.setCrons(entry)
			kinds := []storage.Kind{storage.KindCron, storage.KindQueue}
			for _, kind := range kinds {
				c.cfg.PlantNamed(c.tb, unscribbled(c.S), kind, "twice")
			}
			c.crons(storage.DocumentQuery{})
			_, err := c.S.QueueStates(c.ctx)
			c.noErr("QueueStates", err)
			list := c.listed("twice", "twice")
			set(ojs.QueueDraining)
			due := entry.NextRun
			entry.Schedule, entry.NextRun = "@hourly", due.Add(time.Hour)
			c.setCrons(entry)
			now := c.crons(storage.DocumentQuery{})
			c.dueCrons(due, nil, 1, "", entry.NextRun)
			for i, r := range list {
				c.cfg.MendNamed(c.tb, unscribbled(c.S), kinds[i], "twice")
				err := c.quarantine().ReleaseQuarantined(c.ctx, r.Key)
				c.wantErr("ReleaseQuarantined", err, ojs.ErrDuplicate)
			}
			c.listed("twice", "twice")
			c.sameCrons(0, c.crons(storage.DocumentQuery{}), now)
			states, err := c.S.QueueStates(c.ctx)
			c.noErr("QueueStates", err)
			if states["twice"] != ojs.QueueDraining {
				c.failf("the queue is %s, not draining", states["twice"])
			}
			set(ojs.QueueActive)
			c.deleteCron("twice")
			for _, r := range list {
				c.noErr("ReleaseQuarantined", c.quarantine().ReleaseQuarantined(c.ctx, r.Key))
			}
			c.listed()
			c.dueCrons(due, nil, 1, "twice", time.Time{})
		}},
	{"quarantine-10", "Quarantine/EndsMeanwhile", "storage.Quarantiner", "The end of a job is not counted for a job in the quarantine, nor once that is released.", needsQuarantine, func(c *C) {
		first, second, before := c.active(), c.active(), c.active()
		id := c.wait(ojs.AllEnded, []string{first.ID, second.ID, before.ID})
		last := c.wait(ojs.AllEnded, []string{id})
		c.wantMoved("an end before", c.ends(before, ojs.StateCompleted).Moved)
		c.cfg.Plant(c.tb, unscribbled(c.S), id)
		key := c.aside(id)
		c.wantMoved("an end while the other is in the quarantine", c.ends(first, ojs.StateDiscarded).Moved)
		c.cfg.Mend(c.tb, unscribbled(c.S), id)
		c.noErr("ReleaseQuarantined", c.quarantine().ReleaseQuarantined(c.ctx, key))
		c.waits(id, 2, 0)
		fresh := c.job(queue("fresh"))
		c.insertOne(storage.Insert{Record: fresh, AwaitedBy: []string{id}})
		c.waits(id, 3, 0)
		claimed := c.claimOf(storage.Claim{Queues: []string{"fresh"}, Max: 1})[0]
		c.wantMoved("the end of a new one", c.ends(claimed, ojs.StateCompleted).Moved)
		c.waits(id, 2, 0)
		again := c.settled(c.get(first.ID), c.to(ojs.StateAvailable)) // and it ends once more
		c.wantMoved("its second end", c.ends(again, ojs.StateCancelled).Moved)
		c.wantMoved("the end of the other", c.ends(second, ojs.StateCompleted).Moved)
		r := c.waits(id, 1, 0)
		c.to(ojs.StateCancelled)(&r)
		moved := c.change(storage.Change{Record: r})[0].Moved
		c.wantMoved("the end of a released job", moved, is(last, isAvailable))
	}},
}
