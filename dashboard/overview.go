package dashboard

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/telemetry"
)

type overviewData struct {
	*summary
	All  hold // the pause of everything
	Done string
}

// summary is what the overview says to every reader of a language. It is made of
// counters, the history and a few jobs that indexes find.
type summary struct {
	at      time.Time
	Stats   engine.Stats
	Health  engine.Health
	Notices []notice
	Slots   int           // of the engines that report, or else of this one
	Next    *ojs.JobInfo  // the available job that is claimed next; nil: none
	GaveUp  inspect.Count // in the last hour
	Dead    inspect.Count
	deadAt  time.Time
	Failed  []*ojs.JobInfo // the latest that were discarded
	Retries []*ojs.JobInfo // the next that are due
	Types   []typeRow      // the busiest
	// Reported says that Types are of all engines that report, in the last hour.
	Reported bool
	Handlers int        // of this engine
	Fresh    bool       // the storage has no job, and no engine has counted one
	Queues   []queueRow // the deepest
	*trend
	pauses []inspect.Pause
}

// trend is what a summary makes of the history.
type trend struct {
	of     *past // the last hour
	read   time.Time
	Now    throughput
	Lately *chart // nil: no engine reports
	Times  []*chart
}

const (
	summaryAge = time.Second      // of a summary that open pages share
	deadAge    = 10 * time.Second // of the number of dead letters in it
	summaryTop = 8                // rows of its tables
)

// summaries are the latest summaries, by language.
type summaries struct {
	slot chan struct{} // full while a summary is made, so that other pages wait for it
	of   map[string]*summary
}

// overview is the first page: whether all is well, what runs, what waits, what fails.
func (h *Handler) overview(p *page) error {
	if p.r.FormValue("set") == "display" {
		return p.setDisplay()
	}
	s, err := h.summary(p)
	if err != nil {
		return err
	}
	data := &overviewData{summary: s, Done: done(p.r.FormValue("did"))}
	data.All = h.holdOf(p, s.pauses, "")
	return p.show("overview", p.T("Overview"), data)
}

// summary makes a summary. An open page that loads itself again gets one that another
// open page has had made.
func (h *Handler) summary(p *page) (*summary, error) {
	c := &h.sums
	select {
	case c.slot <- struct{}{}:
		defer func() { <-c.slot }()
	case <-p.r.Context().Done():
		return nil, p.r.Context().Err()
	}
	last := c.of[p.Lang]
	if !p.live() || last != nil && p.Now.Before(last.at) {
		last = nil
	}
	if last != nil && p.Now.Sub(last.at) < summaryAge {
		return last, nil
	}
	s := &summary{at: p.Now}
	if last != nil && p.Now.Sub(last.deadAt) < deadAge {
		s.Dead, s.deadAt = last.Dead, last.deadAt
	}
	if last != nil && p.Now.Sub(last.read) < historyAge {
		s.trend = last.trend
	}
	if err := h.summarize(p, s); err != nil {
		return nil, err
	}
	if c.of == nil {
		c.of = make(map[string]*summary)
	}
	c.of[p.Lang] = s
	return s, nil
}

// live reports whether an open page loads itself again.
func (p *page) live() bool { return p.r.Header.Get("X-Live") != "" }

func (h *Handler) summarize(p *page, s *summary) (err error) {
	ctx := p.r.Context()
	if s.Stats, err = h.stats(ctx); err != nil {
		return err
	}
	if p.live() {
		s.Health = p.Health()
	} else {
		s.Health = h.health(ctx)
	}
	if s.pauses, err = h.eng.Queues().Pauses(ctx); err != nil {
		return err
	}
	for _, q := range s.Stats.Queues {
		if q.Depth() > 0 {
			s.Queues = append(s.Queues, queueRow{QueueStats: q})
		}
	}
	slices.SortStableFunc(s.Queues, func(a, b queueRow) int { return cmp.Compare(b.Depth(), a.Depth()) })
	s.Queues = s.Queues[:min(len(s.Queues), summaryTop)]
	if err := h.examples(ctx, s); err != nil {
		return err
	}
	if s.trend == nil {
		if s.trend, err = h.trend(p); err != nil {
			return err
		}
	}
	if err := h.discarded(ctx, p.Now, s); err != nil {
		return err
	}
	if s.deadAt.IsZero() {
		if s.Dead, err = h.eng.Jobs().Count(ctx, inspect.Filter{DeadLettered: true}, 100); err != nil {
			return err
		}
		s.deadAt = p.Now
	}
	types, err := h.types(p, s.pauses)
	if err != nil {
		return err
	}
	for i := range types.nodes {
		s.Slots += types.nodes[i].Slots
	}
	if len(types.nodes) == 0 && s.Stats.Running {
		s.Slots = s.Stats.Slots
	}
	if s.Notices, err = h.notices(p, s, &types); err != nil {
		return err
	}
	for _, t := range types.Types {
		if t.Handled {
			s.Handlers++
		}
	}
	s.Reported = types.Reported
	s.Fresh = !slices.ContainsFunc(types.Types, func(t typeRow) bool { return !t.IsZero() })
	for _, n := range s.Stats.Total {
		s.Fresh = s.Fresh && n == 0
	}
	s.Types = slices.DeleteFunc(types.Types, func(t typeRow) bool { return t.Completed+t.Failed == 0 })
	slices.SortStableFunc(s.Types, func(a, b typeRow) int {
		return cmp.Or(cmp.Compare(b.Run.Sum, a.Run.Sum),
			cmp.Compare(b.Completed+b.Failed, a.Completed+a.Failed))
	})
	s.Types = s.Types[:min(len(s.Types), summaryTop)]
	return nil
}

// trend makes the trend of the last hour.
func (h *Handler) trend(p *page) (*trend, error) {
	of, err := h.columns(p, spanNamed("1h").window(p.Now), "", "")
	if err != nil {
		return nil, err
	}
	t := &trend{of: of, read: p.Now}
	if !of.Any {
		return t, nil
	}
	yesterday, err := h.completed(p, of.before(day, p.Now))
	if err != nil {
		return nil, err
	}
	compared := periodOf(of, "", "")
	t.Times = p.times(compared)
	if yesterday.Any {
		compared.befores = []before{{yesterday, p.T("the day before"), "s-day"}}
	}
	t.Lately, t.Now = p.lately(compared), throughputOf(of, yesterday)
	for _, c := range append(t.Times, t.Lately) {
		c.Table, c.drawn = "history/", new(drawings)
	}
	return t, nil
}

// discarded counts the jobs that were discarded in the last hour. It takes the number
// that engines have reported or the number that is stored, whichever is greater. Engines
// report some seconds later, so that there may be more.
func (h *Handler) discarded(ctx context.Context, now time.Time, s *summary) (err error) {
	most, reported, of := look, inspect.Count{}, s.of
	for i := range of.Columns {
		reported.N += int(of.Columns[i].Discarded)
	}
	if of.Any {
		most = 50
	}
	if reported.N < most {
		s.GaveUp, err = h.eng.Jobs().Count(ctx, inspect.Filter{States: []ojs.State{ojs.StateDiscarded},
			FinishedFrom: now.Add(-time.Hour)}, most)
	}
	if of.Any && reported.N > s.GaveUp.N {
		s.GaveUp = reported
	}
	return err
}

// examples fills in the jobs of a summary.
func (h *Handler) examples(ctx context.Context, s *summary) error {
	for _, of := range []struct {
		state ojs.State
		order inspect.Order
		n     int
		to    *[]*ojs.JobInfo
	}{
		{ojs.StateAvailable, inspect.OrderClaim, 1, nil},
		{ojs.StateDiscarded, inspect.OrderFinished, summaryTop, &s.Failed},
		{ojs.StateRetryable, inspect.OrderDue, summaryTop, &s.Retries},
	} {
		if s.Stats.Total[of.state] == 0 {
			continue
		}
		f := inspect.Filter{States: []ojs.State{of.state}, Order: of.order}
		list, err := h.eng.Jobs().Page(ctx, f, "", of.n)
		if err != nil {
			return err
		}
		if jobs := h.shownAll(list.Jobs); of.to != nil {
			*of.to = jobs
		} else if len(jobs) > 0 {
			s.Next = jobs[0]
		}
	}
	return nil
}

// throughput is what the engines that report did in the minutes of the last hour that are
// over.
type throughput struct {
	Known     bool
	Rate      float64 // jobs that were completed in a minute
	Yesterday float64 // in the same minutes of the day before; 0: not known
	Wait      time.Duration
	Waited    bool // Wait is known: 95 % of the jobs that started had waited less
}

func throughputOf(of, before *past) throughput {
	var sum telemetry.Meter
	over := len(of.Columns) - 1
	for i := range over {
		sum.Add(&of.Columns[i])
	}
	var yesterday float64
	for i := range over {
		yesterday += float64(before.Columns[i].Completed)
	}
	t := throughput{Known: true, Rate: float64(sum.Completed) / float64(over),
		Yesterday: yesterday / float64(over), Waited: sum.Wait.Count > 0}
	if t.Waited {
		t.Wait = sum.Wait.Quantile(0.95)
	}
	return t
}

// Change is how much more was done than the day before, in percent.
func (t throughput) Change() int { return int(math.Round(100 * (t.Rate - t.Yesterday) / t.Yesterday)) }

// Less is how much less it was.
func (t throughput) Less() int { return -t.Change() }

// Spans are the periods of the charts over time.
func (overviewData) Spans() []span { return spans }

// health is what the engine says of itself, without that it does not run if it never
// shall.
func (h *Handler) health(ctx context.Context) engine.Health {
	health := h.eng.Health(ctx)
	if h.conf.visitor {
		health.Problems = slices.DeleteFunc(health.Problems,
			func(p engine.Problem) bool { return p.Code == engine.ProblemNotRunning })
		if len(health.Problems) == 0 {
			health.Status = engine.Healthy
		}
	}
	if ctx.Err() == nil { // else the problem may be that the client has left
		h.seen.Store(&seenHealth{health, h.conf.clock.Now()})
	}
	return health
}

// seenHealth is the health at a moment.
type seenHealth struct {
	health engine.Health
	at     time.Time
}

// Health is what the head of every page shows. It is up to a second old, and up to five
// on a page that loads itself again: more pages do not ask the storage for it again.
func (p *page) Health() engine.Health {
	age := time.Second
	if p.live() {
		age = 5 * time.Second
	}
	if seen := p.h.seen.Load(); seen != nil && p.Now.Sub(seen.at) < age {
		return seen.health
	}
	return p.h.health(p.r.Context())
}

// Waited is since when the job waits that is claimed next.
func (s *summary) Waited() time.Time {
	if s.Next == nil {
		return time.Time{}
	}
	if s.Next.EnqueuedAt.IsZero() {
		return s.Next.CreatedAt
	}
	return s.Next.EnqueuedAt
}

// Things is how many things need attention.
func (s *summary) Things() (n int) {
	for i := range s.Notices {
		n += 1 + s.Notices[i].others
	}
	return n
}

// waits reports whether a job waits.
func (s *summary) waits() bool {
	return slices.ContainsFunc(waitingStates, func(state ojs.State) bool { return s.Stats.Total[state] > 0 })
}

// Total is how many jobs are in a state.
func (s *summary) Total(state string) int { return s.Stats.Total[ojs.State(state)] }

// problemTexts are the problems for readers of other languages. English readers get the
// engine's own texts.
var problemTexts = map[engine.ProblemCode]string{
	engine.ProblemStorage:    "The storage does not answer.",
	engine.ProblemQuarantine: "Stored records that do not decode are in quarantine.",
	engine.ProblemNotRunning: "The engine of this process does not run.",
	engine.ProblemClaims:     "Claims of jobs fail.",
	engine.ProblemChecks:     "Checks for due jobs fail.",
	engine.ProblemStuck:      "Handlers go on although their contexts have ended.",
	engine.ProblemStopping:   "The engine is stopping.",
	engine.ProblemCron:       "Recurring entries cannot run in this process.",
	engine.ProblemSilent:     "A process that held active jobs is silent.",

	engine.ProblemNotifications: "Notices of other processes do not arrive.",
}

// Problem is a problem in the reader's language, with what the engine adds: how many, or
// an error.
func (p *page) Problem(of engine.Problem) string {
	text, ok := problemTexts[of.Code]
	switch {
	case !ok || p.Lang == languages[0]:
		return of.Text
	case of.Err != nil:
		return p.T(text) + " (" + foreign.ErrorText(of.Err) + ")"
	case of.N > 0:
		return p.T(text) + " (" + p.Num(of.N) + ")"
	}
	return p.T(text)
}
