package dashboard

import (
	"net/http"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/foreign"
)

// entry is a page of the navigation. The first one of a group has its name.
type entry struct {
	Path, Name string
	Group      string
	count      func(*engine.Stats) int // nil: the page has no number
}

var navigation = []entry{
	{"", "Overview", "Now", nil},
	{"running/", "Running", "", totals(ojs.StateActive)},
	{"workers/", "Workers", "", nil},
	{"history/", "History", "", nil},

	{"jobs/", "Jobs", "Work", totals(ojs.AllStates()...)},
	{"failures/", "Failures", "", nil}, // whose number would be another one than that of the page
	{"dead/", "Dead letters", "", nil},
	{"due/", "Scheduled", "", totals(ojs.StateScheduled, ojs.StateRetryable)},
	{"cron/", "Recurring", "", nil},
	{"workflows/", "Workflows", "", nil},

	{"queues/", "Queues", "Control", func(s *engine.Stats) int { return len(s.Queues) }},
	{"types/", "Types", "", nil},
	{"limits/", "Limits", "", nil},

	{"system/", "System", "Settings", nil},
	{"display/", "Display", "", nil},
}

// totals counts the jobs in states.
func totals(states ...ojs.State) func(*engine.Stats) int {
	return func(s *engine.Stats) (n int) {
		for _, state := range states {
			n += s.Total[state]
		}
		return n
	}
}

func (h *Handler) routes() *http.ServeMux {
	mux := http.NewServeMux()
	get := func(pattern string, f func(*page) error) { mux.Handle("GET "+pattern, h.serve(f)) }
	get("/{$}", h.overview)
	get("/history/{$}", h.historyPage)
	get("/running/{$}", h.running)
	get("/search/{$}", h.search)
	get("/search/terms/{$}", h.terms)
	get("/jobs/{$}", h.jobs)
	get("/jobs/{id}/{$}", h.job)
	get("/jobs/{id}/raw/{$}", h.raw)
	get("/jobs/{id}/edit/{$}", h.edit)
	get("/queues/{$}", h.queues)
	get("/queues/{name}/{$}", h.queue)
	get("/queues/{name}/configure/{$}", h.configure)
	get("/queues/{name}/purge/{$}", h.purge)
	get("/types/{$}", h.typesPage)
	get("/types/{name}/{$}", h.typePage)
	get("/failures/{$}", h.failures)
	get("/failures/{key}/{$}", h.countedPage)
	get("/dead/{$}", h.dead)
	get("/due/{$}", h.due)
	get("/cron/{$}", h.crons)
	get("/cron/{name}/{$}", h.cron)
	get("/cron/{name}/edit/{$}", h.cronEdit)
	get("/workers/{$}", h.workers)
	get("/workers/{id}/{$}", h.node)
	get("/limits/{$}", h.limits)
	get("/limits/{kind}/{name}/{$}", h.limit)
	get("/workflows/{$}", h.workflows)
	get("/workflows/{id}/{$}", h.workflow)
	get("/system/{$}", h.system)
	get("/display/{$}", h.display)
	get("/live/{$}", h.stream)
	get("/enqueue/{$}", h.enqueueForm)
	get("/act/{$}", h.preview)
	get("/runs/{id}/{$}", h.runPage)
	post := func(pattern string, f func(*page) error) { mux.Handle("POST "+pattern, h.serve(f)) }
	post("/{$}", h.actOnOverview)
	post("/running/{$}", h.stopType)
	post("/jobs/{id}/{$}", h.actOnJob)
	post("/jobs/{id}/edit/{$}", h.actOnEdit)
	post("/queues/{$}", h.actOnEverything)
	post("/queues/{name}/{$}", h.actOnQueue)
	post("/queues/{name}/configure/{$}", h.actOnConfigure)
	post("/queues/{name}/purge/{$}", h.startPurge)
	post("/types/{name}/{$}", h.actOnType)
	post("/cron/{name}/{$}", h.actOnCron)
	post("/cron/{name}/edit/{$}", h.actOnCronEdit)
	post("/workers/{$}", h.actOnWorker)
	post("/workers/{id}/{$}", h.actOnNode)
	post("/limits/{kind}/{name}/{$}", h.actOnLimit)
	post("/workflows/{id}/{$}", h.actOnWorkflow)
	post("/enqueue/{$}", h.actOnEnqueue)
	post("/act/{$}", h.start)
	post("/runs/{id}/{$}", h.stopRun)
	mux.Handle("GET /assets/{version}/{name}", http.HandlerFunc(asset))
	mux.Handle("/", h.serve(func(*page) error { return ojs.ErrNotFound }))
	return mux
}

// denied is the error of an action without permission.
type denied struct{ error }

// serve answers with what a page function has made of its page.
func (h *Handler) serve(f func(*page) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if actor := h.conf.actor(r); actor != "" { // in the history of the jobs
				r = r.WithContext(ojs.WithActor(r.Context(), actor))
			}
		}
		p := h.newPage(w, r)
		err := f(p)
		var no denied
		var not refused
		switch {
		case err == nil:
			if !p.answered {
				h.write(p, http.StatusOK)
			}
		case foreign.As(err, &no):
			h.refuse(w, r, no.error)
		case foreign.As(err, &not):
			h.problem(w, r, problem{Status: http.StatusConflict, Title: "That was not done",
				Text: not.Error()})
		case foreign.Is(err, ojs.ErrNotFound), foreign.Is(err, ojs.ErrPruned):
			h.problem(w, r, problem{Status: http.StatusNotFound, Title: "There is no such page",
				Text: "What the address names does not exist, or has been deleted."})
		case foreign.Is(err, ojs.ErrUnsupported):
			h.problem(w, r, problem{Status: http.StatusNotImplemented,
				Title: "The storage has not this ability", Text: foreign.ErrorText(err)})
		case r.Context().Err() != nil: // the client has left
		default:
			h.conf.log.Error("ojs: dashboard: page failed", "path", r.URL.Path, "error", err)
			h.problem(w, r, problem{Status: http.StatusInternalServerError, Title: "The page failed",
				Text: foreign.ErrorText(err)})
		}
	})
}
