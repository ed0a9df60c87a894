package storagetest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// theme is a kind of histories: calls that meet on few jobs.
type theme struct {
	name   string
	needs  need
	jobs   int      // whose ids are inserted again and again; 0: each insert draws its ids
	before []drawer // the calls of one client before all others
	calls  []drawer // of all clients: one is drawn as often as it is in the list

	unique  bool // inserts: most jobs are equal
	bounded bool // inserts: most queues have a depth
	limited bool // inserts: half of the jobs have a rate limit
	batches bool // inserts: of up to three jobs
	one     bool // inserts: into one queue, of jobs that are available and have no priority
	ends    bool // changes of active jobs end them
	follows bool // jobs follow the changes that end a job
	depends bool // inserts: most jobs wait for others, or for their turn
	adds    bool // inserts: stored jobs wait for half of the jobs
	turns   bool // inserts: most jobs have a fairness key
}

// drawer draws a call, or nil if there is none to make.
type drawer func(d *draw) operation

var drawers = map[string]drawer{
	"insert": (*draw).insert, "claim": (*draw).claim, "settle": (*draw).settle, "extend": (*draw).extend,
	"due": (*draw).due, "get": (*draw).get, "list": (*draw).list, "counts": (*draw).counts,
	"delete": (*draw).remove, "prune": (*draw).prune, "queue": (*draw).queueState, "queues": (*draw).states,
	"step": (*draw).step, "unclaim": (*draw).unclaim, "set": (*draw).setCrons, "unset": (*draw).deleteCron,
	"crons": (*draw).crons, "runs": (*draw).dueCrons, "cancel": (*draw).cancelAll, "revive": (*draw).revive,
}

// mix makes a list of drawers. Each name may be followed by how often it is in the list.
func mix(names string) (list []drawer) {
	for _, word := range strings.Fields(names) {
		name, times, _ := strings.Cut(word, ":")
		n, _ := strconv.Atoi(times)
		list = append(list, slices.Repeat([]drawer{drawers[name]}, max(n, 1))...)
	}
	return list
}

// themes are the kinds of histories, each as frequent as the others.
var themes = []theme{
	{
		name: "a lease", one: true, ends: true,
		before: mix("insert claim"),
		calls:  mix("extend:4 settle:4 due:2 get:3 list claim"),
	},
	{
		name: "one id", jobs: 1, one: true, ends: true,
		before: mix("insert claim"),
		calls:  mix("insert:5 settle:3 delete:4 get:3 list counts claim prune"),
	},
	{
		name: "replays", one: true, ends: true,
		before: mix("insert:2 claim:2 settle:3"),
		calls:  mix("settle:5 delete:4 prune:2 get:3 claim:2 list counts"),
	},
	{
		name: "equal jobs", unique: true,
		before: mix("insert"),
		calls:  mix("insert:6 claim:2 settle:2 list:2 counts due"),
	},
	{
		name: "batches", batches: true, one: true,
		before: mix("insert"),
		calls:  mix("insert:4 list:3 counts:2 claim:2 get"),
	},
	{
		name: "claims", batches: true, limited: true,
		before: mix("insert:3"),
		calls:  mix("claim:6 insert:2 counts:2 list:2 settle:2 due get"),
	},
	{
		name:   "waiting jobs",
		before: mix("insert:3 claim settle"),
		calls:  mix("due:5 claim:3 settle:3 insert:2 extend:2 get:2 counts list"),
	},
	{
		name: "bounded queues", bounded: true, batches: true,
		before: mix("insert:2"),
		calls:  mix("insert:6 claim:3 settle:2 counts:2 list get"),
	},
	{
		name: "ended jobs", one: true, ends: true,
		before: mix("insert:3 claim:2 settle:4"),
		calls:  mix("prune:4 delete:3 settle:3 list:2 counts:2 claim insert"),
	},
	{
		name: "jobs that follow", needs: needsNothing, one: true, ends: true, unique: true, follows: true,
		before: mix("insert:2 claim"),
		calls:  mix("settle:6 claim:3 insert:2 list:3 counts get"),
	},
	{
		name: "jobs that wait for others", needs: needsNothing, batches: true, ends: true, depends: true,
		before: mix("insert:4 claim:2"),
		calls:  mix("settle:6 insert:4 step:2 claim:3 due:2 list:3 get:3 delete counts"),
	},
	{
		name: "groups", needs: needsNothing, batches: true, one: true, ends: true, depends: true,
		before: mix("insert:3 claim cancel"),
		calls:  mix("cancel:4 revive:6 settle:2 insert claim:2 list:3 get counts delete"),
	},
	{
		name: "jobs that are waited for", needs: needsNothing, batches: true, one: true, ends: true,
		depends: true, adds: true,
		before: mix("insert:4 claim:2"),
		calls:  mix("insert:6 settle:6 claim:2 get:2 list"),
	},
	{
		name: "turns", needs: needsNothing, batches: true, one: true, turns: true,
		before: mix("insert:2 claim"),
		calls:  mix("claim:5 insert:4 step unclaim:2 settle list"),
	},
	{
		name: "states of queues", needs: needsNothing, one: true,
		before: mix("insert:2"),
		calls:  mix("queue:5 claim:5 insert:3 queues:2 settle counts"),
	},
	{
		name: "recurring jobs", needs: needsNothing,
		before: mix("set"),
		calls:  mix("set:6 unset:3 crons:3 runs:3"),
	},
	{
		name: "steps", needs: needsSettleClaims, one: true,
		before: mix("insert:3 claim:2"),
		calls:  mix("step:6 unclaim:2 list:3 counts:2 claim:2 get:2 insert extend"),
	},
	{
		name: "everything", jobs: 3, unique: true, bounded: true, limited: true, batches: true,
		before: mix("insert:3 claim"),
		calls: mix("insert:2 claim:2 settle:2 extend due get list counts delete prune queue step " +
			"unclaim set unset"),
	},
}

// known is what the clients of a history have seen.
type known struct {
	mu    sync.Mutex // guards the fields below
	jobs  map[string]storage.Record
	crons map[string]storage.Cron
	ids   int // drawn so far
}

func (k *known) saw(r storage.Record) {
	if old, ok := k.jobs[r.ID]; !ok || old.Version <= r.Version {
		k.jobs[r.ID] = r
	}
}

// learn takes in what a call was answered.
func (k *known) learn(c *historyCall) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range slices.Concat(c.answer.Records, c.answer.Moved) {
		k.saw(r)
	}
	defer func() {
		for _, r := range movedBy(c.answer.Inserted) {
			k.saw(r)
		}
		for _, s := range c.answer.Settled {
			for _, r := range s.Moved {
				k.saw(r)
			}
		}
	}()
	for _, e := range c.answer.Crons {
		k.crons[e.Name] = e
	}
	switch op := c.op.(type) {
	case *insertCall:
		for i, in := range c.answer.Inserted {
			if in.Version > 0 {
				r := op.batch[i].Record
				r.Version = in.Version
				k.saw(r)
			}
		}
	case *settleCall:
		for i, s := range c.answer.Settled {
			if s.Err == "" {
				r := op.changes[i].Record
				r.Version = s.Version
				k.saw(r)
				for n, in := range s.Then {
					if in.Version > 0 {
						r := op.changes[i].Then[n].Record
						r.Version = in.Version
						k.saw(r)
					}
				}
			}
		}
	case *reviveCall:
		for i := range op.batch {
			if r := op.batch[i].Record; c.answer.Err == "" {
				r.Version++
				k.saw(r)
			}
		}
	case *stepCall:
		for i, s := range c.answer.Settled {
			if s.Err == "" {
				r := op.to[i]
				r.Version = s.Version
				k.saw(r)
			}
		}
	case *setCronsCall:
		for i, v := range c.answer.Versions {
			if v > 0 {
				e := op.entries[i]
				e.Version = v
				k.crons[e.Name] = e
			}
		}
	case *deleteCronCall:
		delete(k.crons, op.name)
	}
}

// draw draws the calls of one client.
type draw struct {
	*theme
	rnd    *rand.Rand
	cfg    *Config
	known  *known
	client int
	number int  // of the history
	still  bool // all calls have the same now
}

// next draws a call of the storage's abilities.
func (d *draw) next() operation {
	d.known.mu.Lock()
	defer d.known.mu.Unlock()
	for {
		if op := d.calls[d.rnd.IntN(len(d.calls))](d); op != nil {
			return op
		}
	}
}

// first draws the call i of those that come before the others.
func (d *draw) first(i int) operation {
	d.known.mu.Lock()
	defer d.known.mu.Unlock()
	return d.before[i](d)
}

// one in n.
func (d *draw) in(n int) bool { return d.rnd.IntN(n) == 0 }

// few is one, and in a quarter of the draws two.
func (d *draw) few() int { return 1 + d.rnd.IntN(4)/3 }

// soon is one to three seconds.
func (d *draw) soon() time.Duration { return time.Duration(1+d.rnd.IntN(3)) * time.Second }

func (d *draw) now() time.Time {
	if d.still {
		return epoch.Add(2 * time.Second)
	}
	return epoch.Add(time.Duration(d.rnd.IntN(5)) * time.Second)
}

func (d *draw) id() string {
	n := d.rnd.IntN(max(d.jobs, 1)) + 1
	if d.jobs == 0 {
		d.known.ids++
		n = d.known.ids
	}
	return historyID(d.number, n)
}

// jobIDs are the numbers that the ids of one history have.
const jobIDs = 1 << 8

func historyID(history, n int) string { return idOf(history*jobIDs + n) }

func (d *draw) queue() string {
	if d.one || !d.in(3) {
		return "a"
	}
	return "b"
}

var strategies = []ojs.Conflict{
	ojs.ConflictReject, ojs.ConflictIgnore, ojs.ConflictReplace, ojs.ConflictReplaceExceptSchedule,
	ojs.ConflictDebounce,
}

func (d *draw) record(now time.Time) storage.Record {
	var r storage.Record
	r.ID, r.Queue, r.Type, r.State = d.id(), d.queue(), "x", ojs.StateAvailable
	r.CreatedAt, r.Lease, r.Timeout = now, d.soon(), time.Minute
	r.Meta = map[string]any{"n": float64(d.rnd.IntN(100))}
	if d.in(4) {
		r.Type = "y"
	}
	if !d.one {
		r.Priority = d.rnd.IntN(3) - 1
		switch d.rnd.IntN(6) {
		case 0, 1:
			r.State, r.ScheduledAt = ojs.StateScheduled, now.Add(d.soon())
		case 2:
			r.State = ojs.StatePending
		}
		if d.in(5) {
			r.ExpiresAt = now.Add(time.Duration(d.rnd.IntN(4)) * time.Second)
		}
		if d.in(6) {
			r.TotalTimeout = 2 * time.Second
			r.Retry.OnExhaustion = ojs.ExhaustionDeadLetter
		}
		if d.in(6) {
			r.EnqueueTTL = d.soon()
		}
	}
	if d.turns && !d.in(4) {
		r.Fairness = ojs.Fairness{Key: prints[d.rnd.IntN(2)], Weight: 1 + d.rnd.IntN(2)}
	}
	if d.limited && d.in(2) {
		r.RateLimit = &ojs.RateLimit{Key: limitKeys[d.rnd.IntN(2)], Concurrency: 1 + d.rnd.IntN(2)}
	}
	if d.unique && !d.in(5) {
		r.Fingerprint = "f"
		r.Unique = &ojs.UniquePolicy{OnConflict: strategies[d.rnd.IntN(len(strategies))]}
	}
	return d.cfg.normal(r)
}

func (d *draw) insert() operation {
	c := &insertCall{now: d.now()}
	n := 1
	if d.batches {
		n += d.rnd.IntN(3)
	}
	depth, drop := 0, d.in(2)
	if d.bounded && !d.in(3) {
		depth = 1 + d.rnd.IntN(4)
	}
	for range n {
		in := storage.Insert{Record: d.record(c.now), MaxDepth: depth, DropOldest: drop}
		in.IDIsNew = d.jobs == 0 && d.in(2)
		in.KeepActive = d.unique && d.in(5)
		c.batch = append(c.batch, in)
	}
	if d.adds && d.in(2) {
		d.awaitedBy(c.batch)
	} else {
		d.dependsOn(c.batch)
	}
	return c
}

// awaitedBy has jobs that wait for others wait for the jobs of a batch, too. These wait
// for nothing, so that no circle arises.
func (d *draw) awaitedBy(batch []storage.Insert) {
	for i := range batch {
		for range d.rnd.IntN(3) {
			if r, ok := d.job(ojs.StatePending); ok && !slices.Contains(batch[i].AwaitedBy, r.ID) {
				batch[i].AwaitedBy = append(batch[i].AwaitedBy, r.ID)
			}
		}
	}
}

// dependsOn has jobs of a batch wait for jobs that are there, for each other, and for the
// turn of an ordering key. If the storage works job by job, only themes with depends have
// such jobs: in others it may drop a job that others wait for from a bounded queue, and
// the model does not count that end.
func (d *draw) dependsOn(batch []storage.Insert) {
	if !d.depends && (d.cfg.JobByJob || !d.in(8)) {
		return
	}
	for i := range batch {
		in := &batch[i]
		for range d.rnd.IntN(3) {
			id := batch[d.rnd.IntN(i+1)].Record.ID
			if r, ok := d.job(ojs.StateActive, ojs.StatePending, ojs.StateAvailable); ok && d.in(2) {
				id = r.ID
			}
			if id != in.Record.ID && !slices.Contains(in.DependsOn, id) {
				in.DependsOn = append(in.DependsOn, id)
			}
		}
		if d.depends && d.in(3) {
			in.OrderingKey = "k"
		}
		if in.Waits() {
			conditions := []ojs.Condition{ojs.AllEnded, ojs.AllSucceeded, ojs.AnyFailed}
			in.Record.State = ojs.StatePending
			in.Record.Dependencies = &ojs.Dependencies{Condition: conditions[d.rnd.IntN(3)], Join: d.in(4)}
		}
	}
}

// ask draws a claim.
func (d *draw) ask() storage.Claim {
	q := storage.Claim{Max: 1 + d.rnd.IntN(2), Worker: string(rune('A' + d.client))}
	switch {
	case d.in(2):
		q.Queues = []string{"a"}
	case !d.one && d.in(2):
		q.Queues = []string{"b", "a"}
	}
	if d.in(6) {
		q.Types = []string{"x"}
	}
	return q
}

func (d *draw) claim() operation {
	return &claimCall{now: d.now(), claim: d.ask()}
}

// job draws a job that the clients have seen, most often one in these states.
func (d *draw) job(states ...ojs.State) (storage.Record, bool) {
	var all, wanted []string
	for id, r := range d.known.jobs {
		if all = append(all, id); slices.Contains(states, r.State) {
			wanted = append(wanted, id)
		}
	}
	if len(wanted) > 0 && !d.in(6) {
		all = wanted
	}
	if len(all) == 0 {
		return storage.Record{}, false
	}
	slices.Sort(all)
	r := d.cfg.normal(d.known.jobs[all[d.rnd.IntN(len(all))]])
	return r, true
}

// stale is a version, or seldom the one before.
func (d *draw) stale(v uint64) uint64 {
	if d.in(8) && v > 1 {
		return v - 1
	}
	return v
}

func (d *draw) held(r storage.Record) storage.Held {
	return storage.Held{ID: r.ID, Version: d.stale(r.Version)}
}

// change draws a change of a job.
func (d *draw) change(r storage.Record, now time.Time) storage.Change {
	to := slices.DeleteFunc(ojs.AllStates(), func(s ojs.State) bool {
		may := r.State.CanBecome(s) || r.State.Waiting() && s == r.State
		return !may || s == ojs.StateActive || d.ends && r.State == ojs.StateActive && !s.Terminal()
	})
	if len(to) == 0 || d.in(12) {
		to = []ojs.State{ojs.StateAvailable, ojs.StateCompleted, ojs.StateCancelled}
	}
	from := r.State
	r.State = to[d.rnd.IntN(len(to))]
	if d.ends && from == ojs.StateActive && d.in(2) {
		r.State = ojs.StateDiscarded
	}
	same := d.in(2)
	r.Version = d.stale(r.Version)
	r.NextRetryAt, r.LeaseUntil = time.Time{}, time.Time{}
	r.FinishedAt, r.DeadLetteredAt = time.Time{}, time.Time{}
	soon := now.Add(time.Duration(d.rnd.IntN(3)) * time.Second)
	switch {
	case r.State.Terminal():
		r.FinishedAt, r.Checkpoint = now, nil
		if r.State == ojs.StateDiscarded && !d.in(4) {
			r.DeadLetteredAt = now
		}
	case r.State == ojs.StateRetryable:
		r.NextRetryAt = soon
	case r.State == ojs.StateScheduled:
		r.ScheduledAt, same = soon, false
	case from.Terminal():
		r.Attempt, r.StartedAt = 0, time.Time{}
	}
	if !same && !d.one && d.in(3) {
		r.Priority = d.rnd.IntN(3) - 1
		r.Queue = d.queue()
	}
	return storage.Change{Record: r, AttemptFieldsOnly: same}
}

func (d *draw) settle() operation {
	c := &settleCall{now: d.now()}
	for range d.few() {
		states := []ojs.State{ojs.StateActive}
		switch {
		case d.in(3):
			states = []ojs.State{ojs.StateDiscarded}
		case d.depends && d.in(3):
			states = []ojs.State{ojs.StatePending}
		}
		r, ok := d.job(states...)
		if !ok {
			return nil
		}
		ch := d.change(r, c.now)
		if ch.AttemptFieldsOnly && ch.Record.State.Terminal() && (d.follows || d.in(4)) {
			for range 1 + d.rnd.IntN(2) {
				ch.Then = append(ch.Then, storage.Insert{Record: d.record(c.now)})
			}
			d.dependsOn(ch.Then)
		}
		c.changes = append(c.changes, ch)
	}
	return c
}

func (d *draw) extend() operation {
	c := &extendCall{now: d.now()}
	for range d.few() {
		r, ok := d.job(ojs.StateActive)
		if !ok {
			return nil
		}
		if slices.ContainsFunc(c.xs, func(x storage.Extension) bool { return x.ID == r.ID }) {
			continue
		}
		x := storage.Extension{Held: d.held(r), Progress: float64(d.rnd.IntN(4)) / 4}
		if d.in(2) {
			x.Checkpoint = []byte{'0' + byte(d.rnd.IntN(10))}
		}
		c.xs = append(c.xs, x)
	}
	return c
}

func (d *draw) due() operation {
	n := 9
	if d.in(3) {
		n = 1
	}
	return &dueCall{now: d.now().Add(2 * time.Second), max: n}
}

func (d *draw) get() operation {
	r, ok := d.job(ojs.StateActive)
	if !ok {
		r.ID = historyID(d.number, 1)
	}
	return &getCall{id: r.ID}
}

func (d *draw) list() operation {
	var q storage.Query
	switch d.rnd.IntN(6) {
	case 0:
		q.Limit = 2
	case 1:
		q.States = []ojs.State{ojs.StateAvailable}
	case 2:
		q.Queues = []string{"a"}
	case 3:
		q.DeadLetters = true
	}
	return &listCall{q: q}
}

func (d *draw) counts() operation { return &countsCall{} }

func (d *draw) remove() operation {
	c := &deleteCall{}
	n := 1
	if !d.cfg.JobByJob {
		n += d.rnd.IntN(3) / 2
	}
	for range n {
		r, ok := d.job(ojs.StateCompleted, ojs.StateCancelled, ojs.StateDiscarded)
		if !ok {
			return nil
		}
		if !slices.Contains(c.ids, r.ID) {
			c.ids = append(c.ids, r.ID)
		}
	}
	return c
}

func (d *draw) prune() operation {
	p := storage.Prune{Now: d.now(), DeadLetters: d.in(2), Max: 1 + d.rnd.IntN(3)}
	if d.in(3) {
		p.Beyond = 1
	} else {
		p.Before = p.Now.Add(3 * time.Second)
	}
	if d.in(4) {
		p.States = []ojs.State{ojs.StateDiscarded}
	}
	return &pruneCall{p: p}
}

func (d *draw) queueState() operation {
	to := []ojs.QueueState{ojs.QueueActive, ojs.QueuePaused, ojs.QueueDraining}
	return &queueStateCall{queue: d.queue(), to: to[d.rnd.IntN(len(to))]}
}

func (d *draw) states() operation { return &queueStatesCall{} }

func (d *draw) setCrons() operation {
	c := &setCronsCall{}
	names := []string{"daily", "hourly"}
	if d.in(2) {
		slices.Reverse(names)
	}
	for _, name := range names[:d.few()] {
		e := storage.Cron{Name: name, Schedule: "@daily", Type: "x", Runs: d.rnd.IntN(1000)}
		e.Version = d.stale(d.known.crons[name].Version)
		if !d.in(4) {
			e.NextRun = d.now()
		}
		c.entries = append(c.entries, e)
	}
	return c
}

func (d *draw) deleteCron() operation {
	return &deleteCronCall{name: "daily"}
}

func (d *draw) crons() operation {
	if d.in(2) {
		return &cronsCall{q: storage.DocumentQuery{Names: []string{"daily"}}}
	}
	return &cronsCall{}
}

func (d *draw) dueCrons() operation { return &dueCronsCall{now: d.now(), max: 1 + d.rnd.IntN(2)} }

func (d *draw) step() operation {
	if !d.cfg.SettleClaims {
		return nil
	}
	c := &stepCall{now: d.now(), room: 1 + d.rnd.IntN(2)}
	c.claim = d.ask()
	c.claim.Max = c.room
	for range d.few() {
		r, ok := d.job(ojs.StateActive)
		if !ok {
			return nil
		}
		ch := d.change(r, c.now)
		if !ch.AttemptFieldsOnly { // SettleAndClaim makes no others
			ch.Record.Priority, ch.Record.Queue, ch.Record.ScheduledAt = r.Priority, r.Queue, r.ScheduledAt
			if ch.Record.State == ojs.StateScheduled {
				ch.Record.State = ojs.StateCancelled
				ch.Record.FinishedAt = c.now
			}
		}
		c.to = append(c.to, ch.Record)
	}
	return c
}

func (d *draw) unclaim() operation {
	if !d.cfg.SettleClaims {
		return nil
	}
	r, ok := d.job(ojs.StateActive)
	if !ok || r.Attempt == 0 || !r.Deadline().IsZero() { // see Storage.Due on the order of those given back
		return nil
	}
	return &unclaimCall{now: d.now(), held: []storage.Held{d.held(r)}}
}
