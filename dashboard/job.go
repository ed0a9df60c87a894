package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

type jobData struct {
	Job      *ojs.JobInfo
	Done     string // what the action has done that led here
	Why      inspect.Explanation
	Attempts []inspect.Attempt // the latest first
	Worker   string            // that holds it, or held it last; "": none is known
	Lease    time.Time         // until when it is held; zero: it is not active
	Moments  []moment
	Later    []moment // attempts that may follow the next one
	Strip    strip
	Args     payload
	Meta     payload
	Result   payload
	Saved    payload // the checkpoint
	Encoded  bool    // args are encoded by a codec
	Kind     string  // of its latest failure, if engines have counted it
	Alike    string  // the filter line of jobs whose latest failures are alike; "": it has none
	Equal    string  // the filter line of jobs that are equal; "": it is not unique, or encoded
	Stack    string
	Running  *attemptLog  // of the attempt that runs; nil: none is known
	Follow   bool         // the engine of that attempt keeps its log
	Logs     []attemptLog // the latest first
	Unread   bool         // some logs cannot be read
	Links    []Link
	Actions  []Verb
	Change   bool   // the request may change it on the page of changes
	Revive   string // the failed workflow whose failed step it is, if the request may retry it
}

// equal is the filter line of the jobs that are equal to a unique one as it is shown, so
// that it tells nothing of redacted values. "": it is not unique, or its args are
// encoded.
func equal(shown *ojs.JobInfo) string {
	if shown.Unique == nil || shown.Args.Encoded() {
		return ""
	}
	fingerprint, err := policy.Fingerprint(shown.Unique, shown)
	if err != nil { // the job was stored by a program that knows more
		return ""
	}
	return inspect.Filter{Fingerprints: []string{fingerprint}}.String()
}

// job shows one job.
func (h *Handler) job(p *page) error {
	id := p.r.PathValue("id")
	life, err := h.eng.Jobs().Timeline(p.r.Context(), id)
	if err != nil {
		return err
	}
	job := life.Job
	data := &jobData{Job: h.shown(job), Encoded: job.Args.Encoded(), Done: done(p.r.FormValue("did")),
		Worker: life.Worker, Lease: life.LeaseUntil}
	if !job.State.Terminal() {
		if data.Why, err = h.eng.Jobs().Explain(p.r.Context(), id); err != nil {
			return err
		}
		if h.conf.visitor {
			data.Why.Obstacles = slices.DeleteFunc(data.Why.Obstacles, ofEngine)
		}
	}
	if key := inspect.FailureKey(job); key != "" {
		data.Alike = failureLine(job.Type, key).String()
		counted, err := h.eng.Jobs().FailureCounted(p.r.Context(), job.Type, key)
		if err != nil {
			return err
		}
		if counted {
			data.Kind = key
		}
	}
	if sameJSON(job.Args.JSON(), data.Job.Args.JSON()) {
		data.Equal = equal(data.Job)
	}
	data.Logs, data.Unread = h.logs(p, job)
	if job.State == ojs.StateActive {
		data.Running, data.Follow = h.runningLog(p, job, life.Worker)
	}
	data.addMoments(life, p.Now)
	if slices.ContainsFunc(data.Why.Obstacles, needsAction) {
		data.Later = nil // nothing is known of their times
	}
	job = data.Job
	data.Links = h.linksOf(job)
	for _, do := range jobActions(job) {
		if p.May(do, "job", id, job.Queue, job.Type) {
			data.Actions = append(data.Actions, do)
		}
	}
	data.Change = len(p.mayChange(job)) > 0
	data.Revive = h.revives(p, life.Job)
	data.Args = indented(PartArgs, job.Args.JSON())
	if len(job.Meta) > 0 {
		meta, err := json.Marshal(job.Meta)
		if err != nil {
			return fmt.Errorf("ojs: meta of job %s: %w", id, err)
		}
		data.Meta = indented(PartMeta, meta)
	}
	if len(job.Result) > 0 {
		data.Result = indented(PartResult, job.Result)
	}
	if len(life.Checkpoint) > 0 {
		data.Saved = indented(PartCheckpoint, h.shownPart(life.Job, PartCheckpoint, life.Checkpoint))
	}
	if job.State == ojs.StateActive && p.r.FormValue("stack") != "" {
		for _, r := range h.eng.Running() {
			if r.Job.ID == id {
				data.Stack = r.Stack
			}
		}
	}
	return p.show("job", job.Type, data)
}

// revives is the failed workflow that a failed job is a step of, if the request may run
// its failed steps again.
func (h *Handler) revives(p *page, job *ojs.JobInfo) string {
	id, _ := job.Meta[workflow.MetaWorkflow].(string)
	if id == "" || job.State != ojs.StateDiscarded || !p.May(Retry, "workflow", id, "", "") {
		return ""
	}
	status, err := h.eng.Workflows().Get(p.r.Context(), id)
	if err != nil && !foreign.Is(err, ojs.ErrNotFound) && !foreign.Is(err, ojs.ErrPruned) {
		h.conf.log.Warn("ojs: dashboard: workflow cannot be read", "workflow", id, "error", err)
	}
	if err != nil || status.State != workflow.StateFailed {
		return ""
	}
	return id
}

// reasons are the reasons for readers of other languages. English readers get the
// engine's own text, which the others see beside it.
var reasons = map[inspect.ObstacleCode]string{
	inspect.ObstacleRunning:      "It runs.",
	inspect.ObstacleSilent:       "The process that held it is silent.",
	inspect.ObstacleEnded:        "It has ended.",
	inspect.ObstacleExpired:      "Its deadline has come.",
	inspect.ObstacleDependencies: "It waits for other jobs.",
	inspect.ObstaclePending:      "It waits to be made available.",
	inspect.ObstacleNotDue:       "Its time has not come.",
	inspect.ObstaclePaused:       "Its queue, its type or everything is paused.",
	inspect.ObstacleLimit:        "A limit is reached.",
	inspect.ObstacleNotRunning:   "The engine here does not run.",
	inspect.ObstacleNoHandler:    "The engine here has no handler for its type.",
	inspect.ObstacleOtherQueues:  "The engine here takes jobs of other queues only.",
	inspect.ObstacleNoSlot:       "Every slot of the engine here is busy.",
	inspect.ObstacleBehind:       "Other jobs of its queue come before it.",
}

// Remedy is what ends a reason: a button, or a page that leads on.
func (p *page) Remedy(r inspect.Obstacle) (n notice) {
	switch {
	case r.Code == inspect.ObstacleLimit && r.Of.Name != "":
		n.More = noticeLink{limitPath("limits/", r.Of), p.T("Limit")}
	case r.Code != inspect.ObstaclePaused:
	case r.Of.Kind == storage.LimitQueue:
		n.Act = Action{Do: Resume, On: "queue", Name: r.Of.Name, Queue: r.Of.Name}
		n.Post = "queues/" + p.Seg(r.Of.Name) + "/"
	default:
		n.Act = pauseAction(Resume, r.Of.Name)
		if n.Post = "queues/"; r.Of.Name != "" {
			n.Post = "types/" + p.Seg(r.Of.Name) + "/"
		}
	}
	return n
}

// needsAction reports whether time alone does not end a reason.
func needsAction(r inspect.Obstacle) bool {
	switch r.Code {
	case inspect.ObstaclePaused, inspect.ObstacleNoHandler, inspect.ObstaclePending,
		inspect.ObstacleDependencies, inspect.ObstacleOrdering:
		return true
	}
	return false
}

// Reason is a reason in the reader's language; "" if the engine's own text is.
func (p *page) Reason(r inspect.Obstacle) string {
	if text, ok := reasons[r.Code]; ok && p.Lang != languages[0] {
		return p.T(text)
	}
	return ""
}

// ofEngine reports whether a reason holds for the engine of this process alone.
func ofEngine(r inspect.Obstacle) bool {
	switch r.Code {
	case inspect.ObstacleNotRunning, inspect.ObstacleNoHandler, inspect.ObstacleOtherQueues,
		inspect.ObstacleNoSlot:
		return true
	}
	return false
}

// LogQuery is what the stream of an open page needs to follow the log of a job.
func (p *page) LogQuery(id, worker string) string {
	return url.Values{"log": {id}, "worker": {worker}}.Encode()
}

// raw answers with a part of a job, or with its whole envelope, as a file.
func (h *Handler) raw(p *page) error {
	life, err := h.eng.Jobs().Timeline(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return err
	}
	job := h.shown(life.Job)
	var b []byte
	part := Part(p.r.FormValue("part"))
	switch part {
	case PartArgs:
		b = job.Args.JSON()
	case PartMeta:
		b, err = json.Marshal(job.Meta)
	case PartResult:
		b = job.Result
	case PartCheckpoint:
		if b = life.Checkpoint; len(b) > 0 {
			b = h.shownPart(life.Job, PartCheckpoint, b)
		}
	case "":
		part = "job"
		b, err = json.Marshal(job)
	default:
		return ojs.ErrNotFound
	}
	if err != nil {
		return err
	}
	p.answered = true
	p.w.Header().Set("Content-Type", "application/json")
	p.w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="job-%s.json"`, part))
	p.w.WriteHeader(http.StatusOK)
	_, _ = p.w.Write(b)
	return nil
}
