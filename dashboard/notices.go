package dashboard

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/telemetry"
	"github.com/ojsengine/ojs/workflow"
)

// notice is something that an operator should look at.
type notice struct {
	Of   []noticeLink // what it is about
	Text string
	More noticeLink // leads on; without a path: nothing does

	// A button of Act does Act.Do to what the page of Post shows, if the request may.
	Act  Action
	Post string

	At         time.Time // since when; zero: that is not known
	By, Reason string    // of a pause
	others     int       // how many things it is about, beside one
}

type noticeLink struct {
	Path string // below the overview
	Name string
}

func noticeOf(path, name, text string) notice {
	return notice{Of: []noticeLink{{path, name}}, Text: text}
}

const (
	// A queue grows if in each third of growPeriod more jobs came than ended, growJobs
	// more in all, and as many are available.
	growPeriod = 15 * time.Minute
	growJobs   = 100

	// overdueAfter is how late the run of a recurring entry is if no engine is about to
	// make it.
	overdueAfter = time.Minute

	maxNotices = 5 // of a kind
)

// notices are pauses, the problems of the engine, types whose attempts fail, queues that
// grow, recurring runs that nothing has made, and types that no engine runs.
func (h *Handler) notices(p *page, s *summary, types *typeRows) (out []notice, err error) {
	for _, pause := range s.pauses[:min(len(s.pauses), maxNotices)] {
		n := noticeOf("types/"+p.Seg(pause.Type)+"/", pause.Type, p.T("the type is paused"))
		n.Act, n.Post = pauseAction(Resume, pause.Type), n.Of[0].Path
		if pause.OfAll() {
			n.Of, n.Post, n.Text = nil, "queues/", p.T("Everything is paused: no engine gets jobs.")
		}
		n.At, n.By, n.Reason = pause.At, pause.By, pause.Reason
		out = append(out, n)
	}
	out = append(out, p.more("types/", "Types", "%s more types are paused", len(s.pauses)-maxNotices)...)
	if h.conf.visitor && !s.Stats.Running && len(types.nodes)+len(s.Stats.Workers) == 0 && s.waits() {
		out = append(out, notice{Text: p.T("Jobs wait, and no engine reports that it runs."),
			More: noticeLink{"workers/", p.T("Workers")}})
	}
	problems := s.Health.Problems
	for _, problem := range problems[:min(len(problems), maxNotices)] {
		out = append(out, notice{Text: p.Problem(problem), More: p.problemLink(problem.Code)})
	}
	out = append(out, p.more("system/", "System", "%s more problems", len(problems)-maxNotices)...)
	paused := 0
	for _, q := range s.Stats.Queues {
		if q.State == ojs.QueueActive {
			continue
		}
		if paused++; paused <= maxNotices {
			n := noticeOf("queues/"+p.Seg(q.Name)+"/", q.Name,
				p.T("the queue is")+" "+p.T(string(q.State)))
			n.Act, n.Post = Action{Do: Resume, On: "queue", Name: q.Name, Queue: q.Name}, n.Of[0].Path
			out = append(out, n)
		}
	}
	out = append(out, p.more("queues/", "Queues", "%s more queues are paused", paused-maxNotices)...)
	if types.Reported {
		out = append(out, p.failing(types.Types)...)
	}
	buckets, err := h.history(p.r.Context(), spanNamed("1h").window(p.Now), p.Now)
	if err != nil {
		return nil, err
	}
	out = append(out, p.growing(buckets, s.Stats.Queues)...)
	var late []cron.Entry
	if !slices.ContainsFunc(s.pauses, inspect.Pause.OfAll) { // else no run is made, as a notice says
		if late, err = h.overdue(p.r.Context(), p.Now); err != nil {
			return nil, err
		}
	}
	for _, e := range late[:min(len(late), maxNotices)] {
		n := noticeOf("cron/"+p.Seg(e.Name)+"/", e.Name,
			p.T("the run of %s ago has not been made", short(p.Now.Sub(e.NextRun))))
		n.Act, n.Post = Action{Do: Run, On: "cron", Name: e.Name, Type: e.Job.Type()}, n.Of[0].Path
		out = append(out, n)
	}
	out = append(out, p.more("cron/", "Recurring", "%s more entries are overdue", len(late)-maxNotices)...)
	idle := h.unhandled(p, &s.Stats, types.Types)
	for _, of := range idle[:min(len(idle), maxNotices)] {
		n := notice{Of: []noticeLink{of}, Text: p.T("no engine here or that reports has a handler")}
		n.More = noticeLink{"jobs/?q=" + escape("state:available "+p.TypeLine(of.Name)), p.T("Its jobs")}
		out = append(out, n)
	}
	out = append(out, p.more("types/", "Types", "%s more types have no handler", len(idle)-maxNotices)...)
	return out, nil
}

// more is a notice of those of a kind that have none of their own.
func (p *page) more(path, name, text string, n int) []notice {
	if n <= 0 {
		return nil
	}
	out := noticeOf(path, p.T(name), p.T(text, p.Num(n)))
	out.others = n - 1
	return []notice{out}
}

// problemLink leads to what a problem of the engine is about.
func (p *page) problemLink(code engine.ProblemCode) noticeLink {
	switch code {
	case engine.ProblemStuck:
		return noticeLink{"workers/?stacks=1", p.T("Show where they are")}
	case engine.ProblemSilent:
		return noticeLink{"workers/", p.T("Workers")}
	case engine.ProblemCron:
		return noticeLink{"cron/", p.T("Recurring")}
	}
	return noticeLink{"system/", p.T("System")}
}

const (
	// A type fails if in the last hour failShare of its attempts failed, and failMost of
	// them at least.
	failShare = 0.2
	failMost  = 10
)

// failing are the types whose attempts fail, those with the most failures first.
func (p *page) failing(types []typeRow) (out []notice) {
	types = slices.DeleteFunc(slices.Clone(types), func(t typeRow) bool {
		return t.Failed < failMost || t.FailShare() < failShare
	})
	slices.SortStableFunc(types, func(a, b typeRow) int { return cmp.Compare(b.Failed, a.Failed) })
	for _, t := range types[:min(len(types), maxNotices)] {
		n := noticeOf("types/"+p.Seg(t.Type)+"/", t.Type, p.T("%s of %s attempts of the last hour failed",
			p.Num(t.Failed), p.Num(t.Completed+t.Failed)))
		n.More = noticeLink{"failures/?type=" + escape(t.Type), p.T("Failures")}
		out = append(out, n)
	}
	return append(out, p.more("types/", "Types", "%s more types fail", len(types)-maxNotices)...)
}

// unhandled are types that were enqueued in the last hour and that nothing seems to run.
func (h *Handler) unhandled(p *page, stats *engine.Stats, types []typeRow) (out []noticeLink) {
	reports := slices.ContainsFunc(types, func(t typeRow) bool { return t.Elsewhere })
	if len(stats.Workers) > 0 || h.conf.visitor && !reports { // workers may run any type
		return nil
	}
	for _, t := range types {
		handled := t.Handled || t.Elsewhere || t.Completed+t.Failed > 0 || slices.Contains(noHandlers, t.Type)
		if t.Enqueued > 0 && !handled && t.Pause == nil {
			out = append(out, noticeLink{"types/" + p.Seg(t.Type) + "/", t.Type})
		}
	}
	return out
}

// ownTypes are the types of the engine's own jobs.
var ownTypes = []string{workflow.Type, workflow.JoinType, workflow.AddType}

// noHandlers are types of rows that need no handler.
var noHandlers = append([]string{telemetry.MeterOther}, ownTypes...)

// growing are the queues that grow, by what was reported of each minute before this one.
func (p *page) growing(buckets []telemetry.Bucket, queues []operate.QueueStats) (out []notice) {
	type growth struct {
		thirds [3]int
		sum    int
	}
	start := p.Now.Truncate(time.Minute).Add(-growPeriod)
	of := make(map[string]*growth)
	for _, b := range buckets {
		third := int(b.Start.Sub(start) / (growPeriod / 3))
		if b.Start.Before(start) || third > 2 {
			continue
		}
		for i := range b.Meters {
			m := &b.Meters[i]
			if of[m.Queue] == nil {
				of[m.Queue] = &growth{}
			}
			n := int(m.Enqueued) - int(m.Completed+m.Discarded+m.Cancelled+m.Expired)
			of[m.Queue].thirds[third] += n
			of[m.Queue].sum += n
		}
	}
	grows := slices.DeleteFunc(slices.Clone(queues), func(q operate.QueueStats) bool {
		g := of[q.Name]
		return g == nil || slices.Min(g.thirds[:]) <= 0 || g.sum < growJobs ||
			q.Counts[ojs.StateAvailable] < growJobs
	})
	slices.SortFunc(grows, func(a, b operate.QueueStats) int {
		return cmp.Or(cmp.Compare(of[b.Name].sum, of[a.Name].sum), cmp.Compare(a.Name, b.Name))
	})
	for _, q := range grows[:min(len(grows), maxNotices)] {
		text := p.T("the queue grows: in %s, %s more jobs came than ended", short(growPeriod),
			p.Num(of[q.Name].sum))
		out = append(out, noticeOf("queues/"+p.Seg(q.Name)+"/", q.Name, text))
	}
	return append(out, p.more("queues/", "Queues", "%s more queues grow", len(grows)-maxNotices)...)
}

// overdue are the entries whose run should have been made a while ago, the longest
// overdue first.
func (h *Handler) overdue(ctx context.Context, now time.Time) ([]cron.Entry, error) {
	entries, err := h.eng.Cron().Due(ctx, now.Add(-overdueAfter))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(entries, func(e cron.Entry) bool { return !isOverdue(&e, now) }), nil
}

func isOverdue(e *cron.Entry, now time.Time) bool {
	return !e.Paused && !e.NextRun.IsZero() && now.Sub(e.NextRun) >= overdueAfter
}

// Overdue reports whether an entry's run should have been made a while ago.
func (p *page) Overdue(e cron.Entry) bool { return isOverdue(&e, p.Now) }
