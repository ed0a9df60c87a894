package dashboard

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

const (
	maxRunning   = 1000 // active jobs that the page reads
	shownRunning = 100  // rows

	// longFactor is how many times as long as 95 % of the attempts of its type an attempt
	// takes if it is long.
	longFactor = 3
)

// runningJob is an active job beside what the attempts of its type take.
type runningJob struct {
	*ojs.JobInfo
	Worker  string
	Elapsed time.Duration
	Usual   time.Duration // of 95 % of the attempts of the last hour; 0: not known
}

// Some is a number of jobs that were read, of which there may be more.
func (d *runningData) Some(p *page, n int) string {
	return p.Least(inspect.Count{N: n, Exact: d.Read >= d.N})
}

// Late reports whether the attempt goes on after its timeout.
func (r *runningJob) Late() bool { return r.Timeout > 0 && r.Elapsed > r.Timeout }

// Long reports whether the attempt takes much longer than others of its type.
func (r *runningJob) Long() bool { return r.Usual > 0 && r.Elapsed > longFactor*r.Usual }

// ratio is how long the attempt takes, compared with others of its type.
func (r *runningJob) ratio() float64 {
	if r.Usual == 0 {
		return 0
	}
	return float64(r.Elapsed) / float64(r.Usual)
}

// runningType is a type with active jobs.
type runningType struct {
	Name    string
	N       int
	Usual   time.Duration // as runningJob has it
	Longest time.Duration // of the jobs that were read
	Slow    int           // jobs that are late or long
	Stop    bool          // the request may pause the type and cancel its jobs
}

type runningData struct {
	Types []runningType
	Jobs  []runningJob // the late ones first, then the long ones
	N     int          // active jobs
	Read  int          // active jobs that were read: the oldest
}

// running lists the active jobs. Jobs that take too long come first.
func (h *Handler) running(p *page) error {
	ctx := p.r.Context()
	active := inspect.Filter{States: []ojs.State{ojs.StateActive}}
	of, err := h.eng.Jobs().Facets(ctx, active, inspect.FacetType, 0)
	if err != nil {
		return err
	}
	known, err := h.types(p, nil)
	if err != nil {
		return err
	}
	usual := make(map[string]time.Duration)
	for i := range known.Types {
		if t := &known.Types[i]; t.Run.Count > 0 {
			usual[t.Type] = t.Run.Quantile(0.95)
		}
	}
	list, err := h.eng.Jobs().Page(ctx, active, "", maxRunning)
	if err != nil {
		return err
	}
	data := &runningData{N: of.Count().N, Read: len(list.Jobs)}
	types := make(map[string]*runningType)
	for _, v := range of.Values {
		types[v.Value] = &runningType{Name: v.Value, N: v.N, Usual: usual[v.Value],
			Stop: h.may(p.r, pauseAction(Pause, v.Value)) == nil && h.may(p.r, cancelOf(v.Value)) == nil}
	}
	for i, job := range list.Jobs {
		r := runningJob{job, list.Workers[i], max(0, p.Now.Sub(job.StartedAt)), usual[job.Type]}
		if t := types[job.Type]; t != nil { // or the job has begun since the count
			t.Longest = max(t.Longest, r.Elapsed)
			if r.Late() || r.Long() {
				t.Slow++
			}
		}
		data.Jobs = append(data.Jobs, r)
	}
	slices.SortStableFunc(data.Jobs, func(a, b runningJob) int {
		class := func(r *runningJob) int {
			switch {
			case r.Late():
				return 2
			case r.Long():
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(class(&b), class(&a)), cmp.Compare(b.ratio(), a.ratio()),
			cmp.Compare(b.Elapsed, a.Elapsed))
	})
	data.Jobs = data.Jobs[:min(len(data.Jobs), shownRunning)]
	for i := range data.Jobs {
		data.Jobs[i].JobInfo = h.shown(data.Jobs[i].JobInfo)
	}
	for _, v := range of.Values {
		data.Types = append(data.Types, *types[v.Value])
	}
	slices.SortStableFunc(data.Types, func(a, b runningType) int { return cmp.Compare(b.Slow, a.Slow) })
	return p.show("running", p.T("Running"), data)
}

func cancelOf(jobType string) Action { return Action{Do: Cancel, On: "jobs", Type: jobType} }

// stopType pauses a type, and begins to cancel its running jobs.
func (h *Handler) stopType(p *page) error {
	jobType, reason := p.r.PostFormValue("type"), strings.TrimSpace(p.r.PostFormValue("reason"))
	if p.r.PostFormValue("do") != "stop" || jobType == "" {
		return ojs.ErrNotFound
	}
	if len(reason) > maxReason {
		return badField("reason", "use at most 300 bytes")
	}
	f := inspect.Filter{States: []ojs.State{ojs.StateActive}, Types: []string{jobType}}
	m := many{Do: Cancel, Action: cancelOf(jobType), All: true, Line: f.String(), Link: "running/"}
	if err := m.steps(p, f); err != nil {
		return err
	}
	if err := h.may(p.r, m.Action); err != nil {
		return denied{err}
	}
	if err := h.allowed(p, pauseAction(Pause, jobType), "reason", reason); err != nil {
		return err
	}
	m.First = func(ctx context.Context) error {
		_, err := h.eng.Queues().PauseType(ctx, jobType, reason)
		return err
	}
	return h.begin(p, &m)
}
