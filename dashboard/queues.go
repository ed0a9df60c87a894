package dashboard

import (
	"cmp"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/telemetry"
)

func unsupported(err error) bool { return foreign.Is(err, ojs.ErrUnsupported) }

type queuesData struct {
	Queues []queueRow
	Max    int             // the deepest
	All    hold            // the pause of everything
	Types  []inspect.Pause // of types
	Rates  bool            // rates are known
	Done   string
}

type queueRow struct {
	operate.QueueStats
	Next *ojs.JobInfo // nil: no job is available
	Rate float64      // jobs that were completed in a minute lately
}

// Count is how many jobs of the queue are in a state.
func (q queueRow) Count(s string) int { return q.Counts[ojs.State(s)] }

// queues lists the queues, with how long the next job of each has waited.
func (h *Handler) queues(p *page) error {
	list, err := h.eng.Queues().List(p.r.Context())
	if err != nil {
		return err
	}
	data := &queuesData{Done: done(p.r.FormValue("did"))}
	pauses, err := h.eng.Queues().Pauses(p.r.Context())
	if err != nil {
		return err
	}
	data.All = h.holdOf(p, pauses, "")
	data.Types = slices.DeleteFunc(pauses, inspect.Pause.OfAll)
	rates, err := h.rates(p)
	if err != nil {
		return err
	}
	data.Rates = rates != nil
	for i, q := range list {
		row := queueRow{QueueStats: q, Rate: rates[q.Name]}
		if i < pageSize && q.Counts[ojs.StateAvailable] > 0 { // each look is a call of the storage
			if row.Next, err = h.next(p, q.Name); err != nil {
				return err
			}
		}
		data.Queues = append(data.Queues, row)
		data.Max = max(data.Max, q.Depth())
	}
	return p.show("queues", p.T("Queues"), data)
}

// next is the job of a queue that is claimed next; nil if there is none.
func (h *Handler) next(p *page, queue string) (*ojs.JobInfo, error) {
	list, err := h.eng.Jobs().Page(p.r.Context(), inspect.Filter{Queues: []string{queue},
		States: []ojs.State{ojs.StateAvailable}, Order: inspect.OrderClaim}, "", 1)
	if err != nil || len(list.Jobs) == 0 {
		return nil, err
	}
	return h.shown(list.Jobs[0]), nil
}

type queueData struct {
	queueRow
	States []stateCount
	Types  inspect.Facets // of the jobs that have not ended
	Meter  []telemetry.Meter
	Lately *chart // nil: no engine reports
	All    hold   // the pause of everything
	Done   string

	Actions   []Verb
	Purge     bool // the request may purge it
	Configure bool // this engine serves it, and the request may change how

	Rates bool           // the rate is known
	Here  *ojs.RateLimit // bounds it in this engine alone; nil: nothing does
	Limit *operate.Limit // over all engines; nil: the storage counts no limits
}

// maxCounted is how many available jobs a queue may have whose page says what is used of
// its limit over all engines, since PostgreSQL counts them one by one. The page of the
// limit says it of every queue.
const maxCounted = 10_000

// boundsHere are the bounds of a queue in this engine alone; nil: there are none.
func boundsHere(c *engine.QueueConfig) *ojs.RateLimit {
	if c == nil {
		return nil
	}
	l := c.Bounds()
	if !l.Bounds() {
		return nil
	}
	return &l
}

type stateCount struct {
	State ojs.State
	N     int
	Line  string
}

// queue shows one queue.
func (h *Handler) queue(p *page) error {
	name := p.r.PathValue("name")
	list, err := h.eng.Queues().List(p.r.Context())
	if err != nil {
		return err
	}
	at := slices.IndexFunc(list, func(q operate.QueueStats) bool { return q.Name == name })
	if at < 0 {
		return ojs.ErrNotFound
	}
	data := &queueData{queueRow: queueRow{QueueStats: list[at]}, Done: done(p.r.FormValue("did"))}
	for _, do := range queueActions(list[at].State) {
		if p.May(do, "queue", name, name, "") {
			data.Actions = append(data.Actions, do)
		}
	}
	data.Purge = p.May(Purge, "queue", name, name, "")
	if c, ok := h.eng.Describe().Configs[name]; ok {
		data.Here, data.Configure = boundsHere(&c), h.mayConfigure(p, name, &c) == nil
	}
	l := operate.Limit{LimitName: operate.LimitOfQueue(name)}
	if list[at].Counts[ojs.StateAvailable] <= maxCounted {
		if l, err = h.limitNamed(p, l.LimitName); err != nil {
			return err
		}
	}
	data.Limit = &l
	rates, err := h.rates(p)
	if err != nil {
		return err
	}
	data.Rate, data.Rates = rates[name], rates != nil
	pauses, err := h.eng.Queues().Pauses(p.r.Context())
	if err != nil {
		return err
	}
	data.All.Pause = pauseOf(pauses, "")
	if data.Next, err = h.next(p, name); err != nil {
		return err
	}
	for _, s := range ojs.AllStates() {
		f := inspect.Filter{Queues: []string{name}, States: []ojs.State{s}}
		data.States = append(data.States, stateCount{s, list[at].Counts[s], f.String()})
	}
	waiting := inspect.Filter{Queues: []string{name}, States: openStates}
	if data.Types, err = h.eng.Jobs().Facets(p.r.Context(), waiting, inspect.FacetType, 0); err != nil {
		return err
	}
	if data.Lately, err = h.lately(p, name, ""); err != nil {
		return err
	}
	for _, m := range h.eng.Meter() {
		if m.Queue == name {
			data.Meter = append(data.Meter, m)
		}
	}
	slices.SortStableFunc(data.Meter, func(a, b telemetry.Meter) int {
		return cmp.Compare(b.Completed, a.Completed)
	})
	return p.show("queue", name, data)
}

func queueActions(s ojs.QueueState) []Verb {
	if s == ojs.QueueActive {
		return []Verb{Pause, Drain}
	}
	return []Verb{Resume}
}
