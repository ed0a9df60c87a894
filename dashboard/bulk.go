package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
)

// An operation on many jobs is previewed on a page that changes nothing. Its form starts
// a run: a goroutine of the handler, with a page that shows how far it is. One run works
// at a time.

const (
	keptRuns     = 20 // runs whose pages are kept
	keptRefusals = 20 // refused jobs that the page of a run lists
)

// pauses are the pauses between two jobs that the form of a preview offers.
var pauses = []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second}

type previewData struct {
	Do      Verb
	Line    string   // the filter; "": ids
	IDs     []string // the jobs that were selected
	Preview engine.Preview
	Pauses  []time.Duration
}

// preview shows what an operation on many would do.
func (h *Handler) preview(p *page) error {
	bulk, action, err := h.bulkOf(p)
	if err != nil {
		return err
	}
	if err := h.may(p.r, action); err != nil {
		return denied{err}
	}
	data := &previewData{Do: action.Do, IDs: bulk.On.IDs}
	if p.r.FormValue("all") != "" {
		data.IDs, data.Line = nil, bulk.On.String() // with times that do not move
	}
	if action.Do == Retry {
		data.Pauses = pauses
	}
	if data.Preview, err = h.eng.Jobs().Preview(p.r.Context(), bulk, 10); err != nil {
		return refusal(err)
	}
	data.Preview.Sample = h.shownAll(data.Preview.Sample)
	return p.show("preview", p.T(verbNames[action.Do]), data)
}

// run is an operation on many.
type run struct {
	ID    int
	Do    Verb
	Line  string
	Actor string
	Begun time.Time
	stop  context.CancelFunc
	ended chan struct{}

	mu sync.Mutex // guards the rest
	runState
}

type runState struct {
	Done, Refused, Looked int
	Refusals              []engine.Result // the first of them
	Ended                 time.Time       // zero: it goes on
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
	s.Refusals = slices.Clone(s.Refusals)
	return s
}

// start begins the run that a preview's form asks for.
func (h *Handler) start(p *page) error {
	bulk, action, err := h.bulkOf(p)
	if err != nil {
		return err
	}
	if ms, err := strconv.Atoi(p.r.PostFormValue("every")); err == nil && ms >= 0 && ms <= 60_000 {
		bulk.Every = time.Duration(ms) * time.Millisecond
	}
	if err := h.allowed(p, action, "filter", bulk.On.String()); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(h.ctx)
	actor := ojs.Actor(p.r.Context())
	if actor != "" {
		ctx = ojs.WithActor(ctx, actor)
	}
	r := &run{Do: action.Do, Line: bulk.On.String(), Actor: actor, Begun: p.Now, stop: stop,
		ended: make(chan struct{})}
	if other := h.runs.add(r); other != nil {
		stop()
		return p.moved("../runs/" + strconv.Itoa(other.ID) + "/?busy=1")
	}
	h.busy.Add(1)
	go func() {
		defer h.busy.Done()
		defer close(r.ended)
		defer stop()
		h.apply(ctx, r, bulk)
	}()
	timer := h.conf.clock.Timer(300 * time.Millisecond) // most runs end at once
	defer timer.Stop()
	select {
	case <-r.ended:
	case <-timer.C:
	case <-p.r.Context().Done():
	}
	return p.moved("../runs/" + strconv.Itoa(r.ID) + "/")
}

// apply works through the jobs of a run.
func (h *Handler) apply(ctx context.Context, r *run, bulk engine.Bulk) {
	var failed error
	for progress, err := range h.eng.Jobs().Apply(ctx, bulk) {
		if err != nil {
			failed = err
			break
		}
		r.mu.Lock()
		r.Done, r.Refused, r.Looked = progress.Done, progress.Refused, progress.Looked
		if progress.Err != nil && len(r.Refusals) < keptRefusals {
			r.Refusals = append(r.Refusals, progress.Result)
		}
		r.mu.Unlock()
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

type runData struct {
	*run
	runState
	Busy bool // it kept another run from starting
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
	if err := h.allowed(p, Action{Do: r.Do, On: "jobs"}, "stop", r.Line); err != nil {
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
	Terminate: "Terminate", Set: "Save", Clear: "Clear the bounds", Block: "Block"}

// VerbName is the name of a button.
func (p *page) VerbName(do Verb) string { return p.T(verbNames[do]) }

// limitForm refuses bodies that no form of the pages sends.
func limitForm(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
}
