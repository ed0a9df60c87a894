package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
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
	jumps   bool             // the clock of all engines jumps, to and fro
}

// nodeConfig is how an engine is made.
type nodeConfig struct {
	concurrency int
	grace       time.Duration
	maxStuck    int
	types       []string // that it has handlers for
	typeLimit   map[string]int
	queues      map[string]engine.QueueConfig // nil: it serves every queue
	order       []string                      // of the queues
	lossy       bool                          // notices come late, twice or never
}

// storm is a time in which calls of the storage fail.
type storm struct {
	from, to                  time.Duration
	before, after, slow, hang float64 // the chances of one call
}

// op is one thing that happens.
type op struct {
	at   time.Duration
	kind string
	n    int // the number of the op, for its random numbers
}

// The job types, and the queues. Jobs of remoteType are for remote workers.
var (
	workTypes  = []string{"work.a", "work.b", "work.c"}
	queueNames = []string{"default", "a", "b", "full", "drop", "block"}
)

const (
	remoteType = "remote"
	cronType   = "work.a"
	maxDepth   = 6 // of the bounded queues
	maxNodes   = 4
)

// rateLimits are those of the keys: constant, so that what an engine may start is known.
var rateLimits = []ojs.RateLimit{
	{Key: "k0", Concurrency: 1},
	{Key: "k1", Rate: ojs.Rate{Limit: 3, Per: 10 * time.Second}},
	{Key: "k2", Throttle: ojs.Rate{Limit: 2, Per: time.Second}},
	{Key: "k3", Concurrency: 2, Rate: ojs.Rate{Limit: 2, Per: 3 * time.Second}},
}

// kinds are the ops, and how often each is drawn.
var kinds = []struct {
	name   string
	weight int
}{
	{"enqueue", 40}, {"batch", 7}, {"cancel", 9}, {"priority", 4}, {"reschedule", 4}, {"activate", 3},
	{"retry", 4}, {"replay", 3}, {"delete", 3}, {"bulk", 2}, {"pause", 2}, {"drain", 1}, {"resume", 4},
	{"stop", 3}, {"start", 4}, {"crash", 2}, {"join", 2},
	{"remote", 6}, {"cron", 3}, {"look", 4}, {"jump", 1},
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
	return p
}

func newNodeConfig(r *rand.Rand) nodeConfig {
	c := nodeConfig{
		concurrency: 1 + r.IntN(5),
		grace:       []time.Duration{0, time.Second, 5 * time.Second, 25 * time.Second}[r.IntN(4)],
		maxStuck:    r.IntN(3),
		types:       workTypes,
		typeLimit:   make(map[string]int),
		lossy:       r.IntN(3) == 0,
	}
	if r.IntN(4) == 0 {
		c.types = workTypes[:1+r.IntN(len(workTypes)-1)]
	}
	if r.IntN(3) == 0 {
		c.typeLimit[c.types[r.IntN(len(c.types))]] = 1 + r.IntN(2)
	}
	if r.IntN(2) == 0 {
		return c
	}
	c.queues = make(map[string]engine.QueueConfig)
	c.order = slices.Clone(queueNames)
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
	for i, n := range p.nodes {
		fmt.Fprintf(&b, "  engine n%d: concurrency %d, grace %v, stuck %d, types %v, limits %v, queues %v, lossy %v\n",
			i, n.concurrency, n.grace, n.maxStuck, n.types, n.typeLimit, n.order, n.lossy)
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
	if r.IntN(8) == 0 {
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
	if one(4) {
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
	if one(7) {
		add(ojs.WithRateLimit(rateLimits[r.IntN(len(rateLimits))]))
	}
	if one(20) {
		add(ojs.WithPending())
	}
	if one(8) {
		add(ojs.WithResultTTL(between(r, time.Second, 5*time.Minute)))
	}
	if n%6 == 2 { // no draw: the programs of a seed stay as they are otherwise
		add(ojs.WithEnqueueTTL(delay + time.Duration(1+n%23)*time.Second))
	}
	return ojs.NewDraft(typ, Args{N: n}, opts...)
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
	{"hang", 2}, {"checkpoint", 4}, {"enqueue", 3}, {"fail slowly", 5},
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
	if k >= maxSteps {
		s.kind = "succeed"
	}
	return s
}
