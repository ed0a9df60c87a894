package dashboard

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/operate"
)

type overviewData struct {
	Health  engine.Health
	Stats   engine.Stats
	Paused  []operate.QueueStats // not active
	Pauses  []inspect.Pause      // of everything and of types
	Notices []notice
	Next    *ojs.JobInfo  // the available job that is claimed next; nil: none
	GaveUp  inspect.Count // in the last hour
	Dead    inspect.Count
	Failed  []*ojs.JobInfo // the latest that were discarded
	Retries []*ojs.JobInfo // the next that are due
	Types   []typeRow
	// Reported says that Types are of all engines that report, in the last hour.
	Reported bool
	Queues   []queueRow // the deepest
	Lately   *timeChart // nil: no engine reports
	Times    []*timeChart
	All      hold // the pause of everything
	Done     string
}

// overview is the first page: what runs, what waits, what fails.
func (h *Handler) overview(p *page) error {
	if p.r.FormValue("set") == "display" {
		return p.setDisplay()
	}
	ctx := p.r.Context()
	stats, err := h.eng.Stats(ctx)
	if err != nil {
		return err
	}
	data := &overviewData{Health: h.health(ctx), Stats: stats, Done: done(p.r.FormValue("did"))}
	if data.Pauses, err = h.eng.Queues().Pauses(ctx); err != nil {
		return err
	}
	data.All = h.holdOf(p, data.Pauses, "")
	for _, q := range stats.Queues {
		if q.State != ojs.QueueActive {
			data.Paused = append(data.Paused, q)
		}
		data.Queues = append(data.Queues, queueRow{QueueStats: q})
	}
	slices.SortStableFunc(data.Queues, func(a, b queueRow) int { return cmp.Compare(b.Depth(), a.Depth()) })
	if len(data.Queues) > 8 {
		data.Queues = data.Queues[:8]
	}
	first := func(f inspect.Filter, n int) ([]*ojs.JobInfo, error) {
		list, err := h.eng.Jobs().Page(ctx, f, "", n)
		return h.shownAll(list.Jobs), err
	}
	next, err := first(inspect.Filter{States: []ojs.State{ojs.StateAvailable}, Order: inspect.OrderClaim}, 1)
	if err != nil {
		return err
	}
	if len(next) > 0 {
		data.Next = next[0]
	}
	discarded := inspect.Filter{States: []ojs.State{ojs.StateDiscarded}, Order: inspect.OrderFinished}
	if data.Failed, err = first(discarded, 8); err != nil {
		return err
	}
	retryable := inspect.Filter{States: []ojs.State{ojs.StateRetryable}, Order: inspect.OrderDue}
	if data.Retries, err = first(retryable, 8); err != nil {
		return err
	}
	discarded.FinishedFrom = p.Now.Add(-time.Hour)
	if data.GaveUp, err = h.eng.Jobs().Count(ctx, discarded, 0); err != nil {
		return err
	}
	if data.Dead, err = h.deadCount(ctx); err != nil {
		return err
	}
	of, err := h.columns(p, spanNamed("1h"), "", "")
	if err != nil {
		return err
	}
	if of.Any {
		data.Lately, data.Times = p.lately(of), p.times(of)
	}
	if data.Types, data.Reported, err = h.types(p, data.Pauses); err != nil {
		return err
	}
	if data.Notices, err = h.notices(p, &stats, data.Types); err != nil {
		return err
	}
	slices.SortStableFunc(data.Types, func(a, b typeRow) int {
		return cmp.Or(cmp.Compare(b.Run.Sum, a.Run.Sum),
			cmp.Compare(b.Completed+b.Failed, a.Completed+a.Failed))
	})
	if len(data.Types) > 8 {
		data.Types = data.Types[:8]
	}
	return p.show("overview", p.T("Overview"), data)
}

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

// Health is what the head of every page shows. It is up to a second old: more pages in a
// second do not ask the storage for it again.
func (p *page) Health() engine.Health {
	if seen := p.h.seen.Load(); seen != nil && p.Now.Sub(seen.at) < time.Second {
		return seen.health
	}
	return p.h.health(p.r.Context())
}

func (h *Handler) deadCount(ctx context.Context) (inspect.Count, error) {
	return h.eng.Jobs().Count(ctx, inspect.Filter{DeadLettered: true}, 0)
}

// Problems are what an operator should look at, in words.
func (d *overviewData) Problems() []engine.Problem { return d.Health.Problems }

// Waited is since when the job waits that is claimed next.
func (d *overviewData) Waited() time.Time {
	if d.Next == nil {
		return time.Time{}
	}
	if d.Next.EnqueuedAt.IsZero() {
		return d.Next.CreatedAt
	}
	return d.Next.EnqueuedAt
}

// Total is how many jobs are in a state.
func (d *overviewData) Total(s string) int { return d.Stats.Total[ojs.State(s)] }

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
