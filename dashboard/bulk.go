package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
)

// An operation on many jobs is previewed on a page that changes nothing. Its form starts
// a run: a goroutine of the handler, with a page that shows how far it is. One run works
// at a time.

const (
	keptRuns     = 20 // runs whose pages are kept
	keptRefusals = 20 // refused jobs that the page of a run lists
	keptLatest   = 50 // jobs of which the page of a run says how they ended
)

// pauses are the pauses between two jobs that the form of a preview offers.
var pauses = []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second}

type previewData struct {
	*many
	Preview operate.Preview
	Pauses  []time.Duration
}

// preview shows what an operation on many would do.
func (h *Handler) preview(p *page) error {
	m, err := h.manyOf(p)
	if err != nil {
		return err
	}
	data := &previewData{many: &m, Pauses: pauses}
	if data.Preview, err = h.sample(p, &m, 10); err != nil {
		return err
	}
	return p.show("preview", p.T(verbNames[m.Do]), data)
}

// sample counts the jobs that an operation would be done to, and has the first n of them.
func (h *Handler) sample(p *page, m *many, n int) (out operate.Preview, err error) {
	out.Exact = true
	for _, bulk := range m.Bulks {
		some, err := h.eng.Jobs().Preview(p.r.Context(), bulk, n-len(out.Sample))
		if err != nil {
			return out, refusal(err)
		}
		out.N += some.N
		out.Looked += some.Looked
		out.Exact = out.Exact && some.Exact
		out.Sample = append(out.Sample, h.shownAll(some.Sample)...)
	}
	return out, nil
}

// run is an operation on many.
type run struct {
	ID int
	Action
	Line  string
	Link  string // where the jobs are listed, below the overview
	Of    inspect.Count
	Actor string
	Begun time.Time
	stop  context.CancelFunc
	ended chan struct{}

	mu sync.Mutex // guards the rest
	runState
}

type runState struct {
	Done, Refused, Looked int
	Refusals              []operate.Result // the first of them
	Latest                []string         // the jobs that it has made run, the latest of them
	Ended                 time.Time        // zero: it goes on
	Err                   error
	Stopped               bool
}

// runs are the latest runs of a handler.
type runs struct {
	mu   sync.Mutex
	last int
	list []*run // the latest last
}

func (rs *runs) get(id int) *run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	at := slices.IndexFunc(rs.list, func(r *run) bool { return r.ID == id })
	if at < 0 {
		return nil
	}
	return rs.list[at]
}

// add adds a run if no other one works, and otherwise returns that one.
func (rs *runs) add(r *run) (working *run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, other := range rs.list {
		if other.state().Ended.IsZero() {
			return other
		}
	}
	rs.last++
	r.ID = rs.last
	rs.list = append(rs.list, r)
	if len(rs.list) > keptRuns {
		rs.list = rs.list[1:]
	}
	return nil
}

func (r *run) state() runState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.runState
	s.Refusals, s.Latest = slices.Clone(s.Refusals), slices.Clone(s.Latest)
	return s
}

// start begins the run that a preview's form asks for.
func (h *Handler) start(p *page) error {
	m, err := h.manyOf(p)
	if err != nil {
		return err
	}
	return h.begin(p, &m)
}

// begin begins a run, and leads to its page.
func (h *Handler) begin(p *page, m *many) error {
	of, err := h.sample(p, m, 0) // an operation that makes no sense is refused here
	if err != nil {
		return err
	}
	if err := h.allowed(p, m.Action, "filter", m.Line); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(h.ctx)
	actor := ojs.Actor(p.r.Context())
	if actor != "" {
		ctx = ojs.WithActor(ctx, actor)
	}
	r := &run{Action: m.Action, Line: m.Line, Link: m.Link, Of: of.Count, Actor: actor, Begun: p.Now,
		stop: stop, ended: make(chan struct{})}
	if limit := m.Bulks[0].Limit; limit > 0 && limit <= r.Of.N {
		r.Of = inspect.Count{N: limit, Exact: true}
	}
	if other := h.runs.add(r); other != nil {
		stop()
		return p.moved(p.Root + "runs/" + strconv.Itoa(other.ID) + "/?busy=1")
	}
	h.busy.Add(1)
	go func() {
		defer h.busy.Done()
		defer close(r.ended)
		defer stop()
		h.apply(ctx, r, m)
	}()
	timer := h.conf.clock.Timer(300 * time.Millisecond) // most runs end at once
	defer timer.Stop()
	select {
	case <-r.ended:
	case <-timer.C:
	case <-p.r.Context().Done():
	}
	return p.moved(p.Root + "runs/" + strconv.Itoa(r.ID) + "/")
}

// apply works through the jobs of a run.
func (h *Handler) apply(ctx context.Context, r *run, m *many) {
	var failed error
	if m.First != nil {
		failed = m.First(ctx)
	}
	for i, bulk := range m.Bulks {
		if failed != nil {
			break
		}
		before := r.state()
		if bulk.Limit > 0 {
			if bulk.Limit -= before.Done; bulk.Limit <= 0 {
				break
			}
		}
		for progress, err := range h.eng.Jobs().Apply(ctx, bulk) {
			if err != nil {
				failed = err
				break
			}
			r.add(&before, &progress, m.Starts(), i == len(m.Bulks)-1 || m.Do != Purge)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Ended = h.conf.clock.Now()
	if ctx.Err() != nil {
		r.Stopped = true
	} else {
		r.Err = failed
	}
	h.conf.log.Info("ojs: dashboard: operation ended", "do", r.Do, "filter", r.Line, "actor", r.Actor,
		"done", r.Done, "refused", r.Refused, "stopped", r.Stopped, "error", r.Err)
}

// add adds the progress of a step that began with a state. A step that does not count
// prepares jobs for the next one.
func (r *run) add(before *runState, progress *operate.Progress, starts, counts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if counts {
		r.Done = before.Done + progress.Done
	}
	r.Refused = before.Refused + progress.Refused
	r.Looked = before.Looked + progress.Looked
	switch {
	case progress.Err != nil && len(r.Refusals) < keptRefusals:
		r.Refusals = append(r.Refusals, progress.Result)
	case progress.Err == nil && progress.ID != "" && starts:
		if len(r.Latest) == keptLatest {
			r.Latest = slices.Delete(r.Latest, 0, 1)
		}
		r.Latest = append(r.Latest, cmp.Or(progress.Copy, progress.ID))
	}
}

type runData struct {
	*run
	runState
	Busy   bool // it kept another run from starting
	Failed int  // of Latest: have failed again
	Well   int  // of Latest: have completed
}

// Part is how much of the run is done, of 1; 0 if that is not known.
func (d *runData) Part() float64 {
	if d.Of.N == 0 || !d.Of.Exact {
		return 0
	}
	return min(1, float64(d.Done+d.Refused)/float64(d.Of.N))
}

// runPage shows how far a run is. Until it has ended the page loads itself again.
func (h *Handler) runPage(p *page) error {
	id, err := strconv.Atoi(p.r.PathValue("id"))
	if err != nil {
		return ojs.ErrNotFound
	}
	r := h.runs.get(id)
	if r == nil {
		return ojs.ErrNotFound
	}
	data := &runData{run: r, runState: r.state(), Busy: p.r.FormValue("busy") != ""}
	if data.runState.Ended.IsZero() {
		p.Refresh = 1
	}
	if len(data.Latest) > 0 {
		list, err := h.eng.Jobs().Page(p.r.Context(), inspect.Filter{IDs: data.Latest}, "", keptLatest)
		if err != nil {
			return err
		}
		for _, job := range list.Jobs {
			switch {
			case job.State == ojs.StateCompleted:
				data.Well++
			case job.Error != nil && job.Error.At.After(r.Begun):
				data.Failed++
			}
		}
	}
	return p.show("run", p.T(verbNames[r.Do]), data)
}

// stopRun stops a run.
func (h *Handler) stopRun(p *page) error {
	id, err := strconv.Atoi(p.r.PathValue("id"))
	if err != nil {
		return ojs.ErrNotFound
	}
	r := h.runs.get(id)
	if r == nil {
		return ojs.ErrNotFound
	}
	if err := h.allowed(p, r.Action, "stop", r.Line); err != nil {
		return err
	}
	r.stop()
	select {
	case <-r.ended:
	case <-p.r.Context().Done():
	}
	return p.moved("./")
}

// verbNames are the names of buttons and of the pages that they lead to.
var verbNames = map[Verb]string{Retry: "Retry", Cancel: "Cancel", Delete: "Delete", Run: "Run now",
	Copy: "Copy", Pause: "Pause", Resume: "Resume", Drain: "Drain", Remove: "Remove", Quiet: "Quiet",
	Edit: "Edit", Move: "Move", Reschedule: "Reschedule", Prioritize: "Set the priority",
	Terminate: "Terminate", Set: "Save", Clear: "Clear the bounds", Block: "Block", Purge: "Purge",
	Configure: "Configure", Enqueue: "Enqueue"}

// VerbName is the name of a button.
func (p *page) VerbName(do Verb) string { return p.T(verbNames[do]) }

// limitForm refuses bodies that no form of the pages sends.
func limitForm(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
}
