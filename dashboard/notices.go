package dashboard

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/telemetry"
	"github.com/ojsengine/ojs/workflow"
)

// notice is something that an operator should look at and that no engine reports of
// itself.
type notice struct {
	Of   []noticeLink
	Text string
}

type noticeLink struct {
	Path string // below the overview
	Name string
}

func noticeOf(path, name, text string) notice { return notice{[]noticeLink{{path, name}}, text} }

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

// notices are queues that grow, recurring runs that nothing has made, and types that no
// engine runs.
func (h *Handler) notices(p *page, stats *engine.Stats, types []typeRow) ([]notice, error) {
	read, err := h.history(p.r.Context(), spanNamed("1h"), p.Now)
	if err != nil {
		return nil, err
	}
	out := p.growing(read.buckets, stats.Queues)
	late, err := h.overdue(p.r.Context(), p.Now)
	if err != nil {
		return nil, err
	}
	for _, e := range late[:min(len(late), maxNotices)] {
		out = append(out, noticeOf("cron/"+p.Seg(e.Name)+"/", e.Name,
			p.T("the run of %s ago has not been made", short(p.Now.Sub(e.NextRun)))))
	}
	if more := len(late) - maxNotices; more > 0 {
		out = append(out, noticeOf("cron/", p.T("Recurring"),
			p.T("%s more entries are overdue", p.Num(more))))
	}
	if of := h.unhandled(p, stats, types); len(of) > 0 {
		out = append(out, notice{of, p.T("no engine here or that reports has a handler")})
	}
	return out, nil
}

// unhandled are types that were enqueued in the last hour and that nothing seems to run.
func (h *Handler) unhandled(p *page, stats *engine.Stats, types []typeRow) (out []noticeLink) {
	reports := slices.ContainsFunc(types, func(t typeRow) bool { return t.Elsewhere })
	if len(stats.Workers) > 0 || h.conf.visitor && !reports { // workers may run any type
		return nil
	}
	for _, t := range types {
		handled := t.Handled || t.Elsewhere || t.Completed+t.Failed > 0 || slices.Contains(noHandlers, t.Type)
		if t.Enqueued > 0 && !handled && t.Pause == nil && len(out) < maxNotices {
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
	return out
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
