package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
)

// program is what a seed stands for: engines, what is done to them and when, and when the
// storage fails.
type program struct {
	seed    uint64
	horizon time.Duration // after it nothing new happens: faults cease, and what is left runs to its end
	nodes   []nodeConfig  // the engines at the beginning
	ops     []op          // in the order of their times
	weather []storm
	retain  engine.Retention // of every engine
	calm    bool             // nothing fails, and no notice is lost
	jumps   bool             // the clock of all engines jumps, to and fro
	steps   bool             // the storage stores outcomes and claims in one call
	ahead   bool             // engines claim jobs ahead, which they do not under virtual time
	codec   bool             // every engine encodes what it stores
	logs    bool             // every engine keeps the logs of attempts
}

// nodeConfig is how an engine is made.
type nodeConfig struct {
	concurrency int
	grace       time.Duration
	types       []string // that it has handlers for
	typeLimit   map[string]int
	versions    []string // the ranges of its handlers for versionedType; nil: all versions
	batch       int      // how many jobs of batchType a call gets at most; 0: it runs one at a time
	batchWait   time.Duration
	queues      map[string]engine.QueueConfig // nil: it serves every queue
	order       []string                      // of the queues
	lossy       bool                          // notices come late, twice or never
}

// storm is a time in which calls of the storage fail.
type storm struct {
	from, to                  time.Duration
	before, after, slow, hang float64 // the chances of one call
	outcomes                  bool    // only the calls that store outcomes fail
}

// op is one thing that happens.
type op struct {
	at   time.Duration
	kind string
	n    int // the number of the op, for its random numbers
}

// The job types, and the queues. Jobs of remoteType are for remote workers.
var (
	workTypes  = []string{"work.a", "work.b", versionedType, batchType}
	queueNames = []string{"default", "a", "b", "full", "drop", "block"}
)

const (
	remoteType    = "remote"
	cronType      = "work.a"
	versionedType = "work.versioned" // whose jobs have versions
	batchType     = "work.batch"     // which some engines run in batches
	followQueue   = "follow"         // of jobs that are stored with an outcome; no operator changes it
	maxDepth      = 6                // of the bounded queues
	maxNodes      = 4
)

// jobVersions are those of jobs of versionedType, and versionRanges those of handlers.
var (
	jobVersions   = []string{"", "1.0", "1.5", "2.0", "2.1"}
	versionRanges = []string{">=1.0 <2.0", ">=2.0"}
)

// rateLimits are those of the keys: constant, so that what an engine may start is known.
var rateLimits = []ojs.RateLimit{
	{Key: "k0", Concurrency: 1},
	{Key: "k1", Rate: ojs.Rate{Limit: 3, Per: 10 * time.Second}},
	{Key: "k2", Throttle: ojs.Rate{Limit: 2, Per: time.Second}},
	{Key: "k3", Concurrency: 2, Rate: ojs.Rate{Limit: 2, Per: 3 * time.Second}},
	remoteLimit,
	{Key: "k5", Concurrency: 1, OnLimit: ojs.OnLimitDrop},
	{Key: "k6", Concurrency: 1, OnLimit: ojs.OnLimitReschedule},
	{Key: "k7", Concurrency: 2},
}

var remoteLimit = ojs.RateLimit{Key: "k4", Concurrency: 1}

// kinds are the ops, and how often each is drawn.
var kinds = []struct {
	name   string
	weight int
}{
	{"enqueue", 40}, {"batch", 7}, {"cancel", 9}, {"priority", 4}, {"reschedule", 4}, {"activate", 3},
	{"retry", 4}, {"replay", 3}, {"delete", 3}, {"bulk", 2}, {"pause", 2}, {"drain", 1}, {"resume", 4},
	{"stop", 3}, {"start", 4}, {"crash", 2}, {"join", 2},
	{"remote", 8}, {"cron", 3}, {"look", 4}, {"jump", 1},
}

func newProgram(seed uint64) *program {
	r := stream(seed, "program", 0)
	p := &program{seed: seed, horizon: between(r, time.Minute, 10*time.Minute)}
	for range 1 + r.IntN(maxNodes) {
		p.nodes = append(p.nodes, newNodeConfig(r))
	}
	if r.IntN(5) > 0 {
		p.retain = engine.Retention{Completed: -1, Cancelled: -1, Discarded: -1, DeadLetters: -1,
			MaxFinished: -1, MaxDeadLetters: -1}
	} else {
		p.retain = engine.Retention{
			Completed: between(r, time.Second, time.Minute), Cancelled: time.Minute,
			Discarded: time.Minute, DeadLetters: time.Hour,
			MaxFinished: 1 + r.IntN(30), MaxDeadLetters: 1 + r.IntN(10),
		}
	}
	p.jumps = r.IntN(6) == 0
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	var at time.Duration
	for i := range 30 + r.IntN(120) {
		if r.IntN(6) > 0 { // else several at the same moment
			at = between(r, 0, p.horizon)
		}
		x := r.IntN(total)
		for _, k := range kinds {
			if x -= k.weight; x < 0 {
				p.ops = append(p.ops, op{at, k.name, i})
				break
			}
		}
	}
	slices.SortStableFunc(p.ops, func(a, b op) int { return int(a.at - b.at) })
	if r.IntN(5) > 1 {
		for range 1 + r.IntN(3) {
			from := between(r, 0, p.horizon)
			s := storm{from: from, to: from + between(r, time.Second, 40*time.Second)}
			for _, chance := range []*float64{&s.before, &s.after, &s.slow, &s.hang} {
				if r.IntN(2) == 0 {
					*chance = 0.4 * r.Float64()
				}
			}
			s.hang /= 4
			p.weather = append(p.weather, s)
		}
	}
	f := stream(seed, "features", 0)
	p.steps, p.codec, p.logs = f.IntN(2) == 0, f.IntN(3) == 0, f.IntN(2) == 0
	p.ahead = p.steps && !p.jumps && f.IntN(2) == 0
	if p.ahead {
		for i := range 3 + f.IntN(8) {
			p.ops = append(p.ops, op{between(f, 0, p.horizon), "burst", 1000 + i})
		}
		for i := range p.nodes { // limits and weights keep an engine from claiming ahead
			if f.IntN(4) > 0 {
				p.nodes[i].queues, p.nodes[i].order, p.nodes[i].typeLimit = nil, nil, nil
				p.nodes[i].concurrency++
			}
		}
		slices.SortStableFunc(p.ops, func(a, b op) int { return int(a.at - b.at) })
	}
	switch f.IntN(6) {
	case 0, 1: // nothing disturbs, so that everything is exact
		p.weather, p.jumps, p.calm = nil, false, true
		for i := range p.nodes {
			p.nodes[i].lossy = false
		}
	case 2, 3:
		from := between(f, 0, p.horizon)
		p.weather = append(p.weather, storm{from: from, to: from + between(f, 10*time.Second, time.Minute),
			before: 0.8 + 0.2*f.Float64(), outcomes: true})
	}
	for i := range 3 * f.IntN(3) {
		at := between(f, 0, p.horizon-10*time.Second)
		p.ops = append(p.ops, op{at, "rival", 2000 + 2*i},
			op{at + between(f, 2*time.Second, 9*time.Second), "rival", 2001 + 2*i})
	}
	slices.SortStableFunc(p.ops, func(a, b op) int { return int(a.at - b.at) })
	return p
}

func newNodeConfig(r *rand.Rand) nodeConfig {
	c := nodeConfig{
		concurrency: 1 + r.IntN(5),
		grace:       []time.Duration{0, time.Second, 5 * time.Second, 25 * time.Second}[r.IntN(4)],
		types:       workTypes,
		typeLimit:   make(map[string]int),
		lossy:       r.IntN(3) == 0,
	}
	if r.IntN(4) == 0 {
		c.types = workTypes[:1+r.IntN(len(workTypes)-1)]
	}
	switch r.IntN(4) {
	case 0:
		c.versions = versionRanges
	case 1:
		i := r.IntN(len(versionRanges))
		c.versions = versionRanges[i : i+1]
	}
	if r.IntN(2) == 0 {
		c.batch, c.batchWait = 2+r.IntN(4), between(r, time.Millisecond, time.Second)
	}
	if r.IntN(3) == 0 {
		c.typeLimit[c.types[r.IntN(len(c.types))]] = 1 + r.IntN(2)
	}
	if r.IntN(2) == 0 {
		return c
	}
	c.queues = make(map[string]engine.QueueConfig)
	c.order = append(slices.Clone(queueNames), followQueue)
	r.Shuffle(len(c.order), func(i, k int) { c.order[i], c.order[k] = c.order[k], c.order[i] })
	weights := r.IntN(2) == 0
	for _, name := range c.order {
		var qc engine.QueueConfig
		if weights {
			qc.Weight = 1 + r.IntN(4)
		}
		switch name {
		case "full":
			qc.MaxDepth = maxDepth
		case "drop":
			qc.MaxDepth, qc.Overflow = maxDepth, engine.OverflowDropOldest
		case "block":
			qc.MaxDepth, qc.Overflow = maxDepth, engine.OverflowBlock
		case "b":
			if r.IntN(2) == 0 {
				qc.Concurrency = 1 + r.IntN(2)
			}
			if r.IntN(3) == 0 {
				qc.RateLimit = ojs.RateLimit{Rate: ojs.Rate{Limit: 2, Per: 2 * time.Second}}
			}
		}
		c.queues[name] = qc
	}
	return c
}

// between is a random duration: to the nanosecond, so that two of them rarely meet.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// storm is the weather at a time, nil if it is fair.
func (p *program) storm(at time.Duration) *storm {
	for i := range p.weather {
		if s := &p.weather[i]; s.from <= at && at < s.to {
			return s
		}
	}
	return nil
}

// String describes the program in a few lines.
func (p *program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the program: %d ops in %v, retention %+v, the clock jumps: %v\n",
		len(p.ops), p.horizon, p.retain, p.jumps)
	fmt.Fprintf(&b, "  outcome and claim are one call: %v, ahead: %v, codec: %v, logs: %v\n",
		p.steps, p.ahead, p.codec, p.logs)
	for i, n := range p.nodes {
		fmt.Fprintf(&b, "  engine n%d: concurrency %d, grace %v, types %v, limits %v, queues %v, lossy %v\n",
			i, n.concurrency, n.grace, n.types, n.typeLimit, n.order, n.lossy)
	}
	for _, s := range p.weather {
		fmt.Fprintf(&b, "  from %v to %v calls fail: %.2f before, %.2f after, %.2f are slow, %.2f hang\n", s.from, s.to, s.before, s.after, s.slow, s.hang)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// draft makes a random job. Its number is in its meta, and in its args, by which its
// script is found.
func draft(r *rand.Rand, n int, now time.Time) ojs.Draft {
	var opts []ojs.Option
	typ := workTypes[r.IntN(len(workTypes))]
	if r.IntN(6) == 0 {
		typ = remoteType
	}
	one := func(in int) bool { return r.IntN(in) == 0 }
	add := func(o ...ojs.Option) { opts = append(opts, o...) }
	add(ojs.WithMeta("n", n))
	if !one(3) {
		add(ojs.WithQueue(queueNames[r.IntN(len(queueNames))]))
	}
	if one(2) {
		add(ojs.WithPriority(r.IntN(4) - 1))
	}
	var delay time.Duration
	if one(3) {
		delay = between(r, time.Nanosecond, time.Minute)
		if one(2) {
			add(ojs.WithDelay(delay))
		} else {
			add(ojs.WithScheduledAt(now.Add(delay)))
		}
	}
	if one(6) {
		add(ojs.WithTTL(delay + between(r, time.Millisecond, 40*time.Second)))
	}
	timeout := ojs.DefaultTimeout
	if !one(4) {
		timeout = between(r, time.Second, 20*time.Second)
		add(ojs.WithTimeout(timeout))
		if one(6) {
			add(ojs.WithTotalTimeout(timeout + between(r, 0, time.Minute)))
		}
	}
	switch r.IntN(3) {
	case 0:
		add(ojs.WithLease(between(r, 100*time.Millisecond, 2*time.Second)))
	case 1:
		add(ojs.WithLease(between(r, 2*time.Second, 30*time.Second)))
	default:
		add(ojs.WithLease(between(r, time.Minute, 5*time.Minute)))
	}
	first := between(r, 10*time.Millisecond, 10*time.Second)
	retry := ojs.RetryPolicy{
		MaxAttempts:        1 + r.IntN(4),
		InitialInterval:    first,
		MaxInterval:        first + between(r, 0, 20*time.Second),
		NonRetryableErrors: []string{"fatal.*"},
	}
	if one(2) {
		retry.Jitter = ojs.JitterOff
	}
	if one(2) {
		retry.OnExhaustion = ojs.ExhaustionDeadLetter
	}
	add(ojs.WithRetry(retry))
	unique := one(4)
	if unique {
		u := ojs.UniquePolicy{
			Key: fmt.Sprint("u", r.IntN(4)),
			OnConflict: []ojs.Conflict{ojs.ConflictReject, ojs.ConflictIgnore, ojs.ConflictReplace,
				ojs.ConflictReplaceExceptSchedule, ojs.ConflictDebounce}[r.IntN(5)],
		}
		if u.OnConflict == ojs.ConflictDebounce && one(2) {
			u.MaxWait = between(r, time.Second, time.Minute)
		}
		if one(2) {
			u.Period = between(r, time.Second, 2*time.Minute)
		}
		switch r.IntN(4) {
		case 0:
			u.States = []ojs.State{ojs.StateAvailable, ojs.StateScheduled, ojs.StateActive,
				ojs.StateRetryable, ojs.StatePending, ojs.StateCompleted}
		case 1:
			u.States = []ojs.State{ojs.StateAvailable, ojs.StateScheduled}
		}
		add(ojs.WithUnique(u))
	}
	switch {
	case typ == remoteType && one(2):
		add(ojs.WithRateLimit(remoteLimit))
	case one(5):
		add(ojs.WithRateLimit(rateLimits[r.IntN(len(rateLimits))]))
	}
	var want asked
	if typ == versionedType {
		want.Version = jobVersions[r.IntN(len(jobVersions))]
		if want.Version != "" {
			add(ojs.WithVersion(want.Version))
		}
	}
	switch {
	case one(20):
		add(ojs.WithPending())
	case !unique && one(7):
		want.Ordering = fmt.Sprint("o", r.IntN(3))
		add(ojs.WithOrderingKey(want.Ordering))
	}
	if one(6) {
		want.Fair, want.Weight = fmt.Sprint("f", r.IntN(3)), 1+r.IntN(3)
		add(ojs.WithFairnessKey(want.Fair, want.Weight))
	}
	add(ojs.WithMeta("asked", want.String()))
	if one(8) {
		add(ojs.WithResultTTL(between(r, time.Second, 5*time.Minute)))
	}
	if n%6 == 2 { // no draw: the programs of a seed stay as they are otherwise
		add(ojs.WithEnqueueTTL(delay + time.Duration(1+n%23)*time.Second))
	}
	return ojs.NewDraft(typ, Args{N: n}, opts...)
}

// quick is the first number of the jobs of bursts, most of which end at once.
const quick = 300_000_000

// burst makes drafts of jobs that are available at once.
func burst(r *rand.Rand, n int) (drafts []ojs.Draft) {
	for i := range 20 + r.IntN(30) {
		opts := []ojs.Option{ojs.WithMeta("n", n+i), ojs.WithLease(between(r, time.Second, time.Minute)),
			ojs.WithTimeout(20 * time.Second),
			ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{"fatal.*"}})}
		typ := workTypes[r.IntN(len(workTypes))]
		if v := jobVersions[r.IntN(len(jobVersions))]; typ == versionedType && v != "" {
			opts = append(opts, ojs.WithVersion(v))
		}
		drafts = append(drafts, ojs.NewDraft(typ, Args{N: n + i, Depth: 1}, opts...))
	}
	return drafts
}

// rivals is the first number of jobs that replace each other. Their first attempts hang,
// so that the next ones begin beside them.
const rivals = 250_000_000

func rival(r *rand.Rand, n int) ojs.Draft {
	return ojs.NewDraft("work.a", Args{N: n, Depth: 1}, ojs.WithMeta("n", n),
		ojs.WithPriority(9), ojs.WithLease(time.Minute),
		ojs.WithTimeout(between(r, time.Second, 3*time.Second)),
		ojs.WithRetry(ojs.RetryPolicy{InitialInterval: time.Millisecond, Jitter: ojs.JitterOff,
			NonRetryableErrors: []string{"fatal.*"}}),
		ojs.WithUnique(ojs.UniquePolicy{Key: "rival", OnConflict: ojs.ConflictReplace}))
}

// asked is what a draft asks for that its job has to have.
type asked struct {
	Version, Ordering, Fair string
	Weight                  int
}

func (a asked) String() string {
	return fmt.Sprintf("%s|%s|%s|%d", a.Version, a.Ordering, a.Fair, a.Weight)
}

// got is what a stored job has of what its draft asked for.
func got(r *storage.Record) asked {
	a := asked{Version: r.TypeVersion, Fair: r.Fairness.Key, Weight: r.Fairness.Weight}
	if r.Dependencies != nil {
		a.Ordering = r.Dependencies.OrderingKey
	}
	return a
}

// follower makes a draft that an attempt has stored with its outcome.
func follower(n int) ojs.Draft {
	return ojs.NewDraft("work.a", Args{N: n, Depth: 1}, ojs.WithMeta("n", n), ojs.WithQueue(followQueue),
		ojs.WithTimeout(10*time.Second), ojs.WithLease(time.Minute),
		ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{"fatal.*"}}))
}

// Args are those of every job.
type Args struct {
	N     int // the number of the job's draft
	Depth int // of the jobs that enqueued this one
}

// step is what a handler does in one attempt.
type step struct {
	kind string
	d    time.Duration // before its end, or what its answer says
	then time.Duration // what a snooze or a RetryAfter asks for
}

// steps are the kinds of steps, and how often each is drawn.
var steps = []struct {
	kind   string
	weight int
}{
	{"succeed", 12}, {"work", 22}, {"fail", 10}, {"fatal", 2}, {"retry after", 3}, {"discard", 2},
	{"dead letter", 3}, {"permanent", 2}, {"panic", 3}, {"goexit", 2}, {"snooze", 3},
	{"until told", 6}, {"late success", 3}, {"late failure", 3}, {"late snooze", 2},
	{"hang", 2}, {"checkpoint", 6}, {"enqueue", 3}, {"fail slowly", 5},
	{"then", 6}, {"middleware panic", 3}, {"late middleware panic", 3},
}

// maxSteps is how many attempts of a job do what was drawn. Later attempts succeed, so
// that every job ends.
const maxSteps = 8

// script is what the k-th attempt, from 0, of the job with a number does.
func script(seed uint64, n, k int) step {
	r := stream(seed, "script", n)
	var s step
	for range k + 1 {
		total := 0
		for _, c := range steps {
			total += c.weight
		}
		x := r.IntN(total)
		for _, c := range steps {
			if x -= c.weight; x < 0 {
				s.kind = c.kind
				break
			}
		}
		s.d = between(r, time.Millisecond, 6*time.Second)
		s.then = between(r, time.Millisecond, 20*time.Second)
	}
	if k >= maxSteps || n >= quick && r.IntN(5) > 0 {
		s.kind = "succeed"
	}
	if n >= rivals && n < quick {
		s.kind = "work"
		if k == 0 {
			s.kind = "hang"
		}
	}
	return s
}
