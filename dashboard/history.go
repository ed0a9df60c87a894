package dashboard

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/telemetry"
)

// The charts over time come from the history that engines keep in their storage
// (engine.WithReports), so they have the jobs of all processes and survive restarts.

// span is a period that charts show and that ends now.
type span struct {
	Name   string
	N      int // columns
	Column time.Duration
}

var spans = []span{
	{"15m", 90, 10 * time.Second},
	{"1h", 60, time.Minute},
	{"6h", 180, 2 * time.Minute},
	{"24h", 144, 10 * time.Minute},
	{"7d", 168, time.Hour},
	{"30d", 180, 4 * time.Hour},
}

// tiers are how finely the history is kept, and for how long (telemetry.History).
var tiers = telemetry.Tiers()

// keeps is how long the history reaches back.
var keeps = tiers[len(tiers)-1].Keep

// maxColumns is how many columns a chart of a chosen period has.
const maxColumns = 180

// columnWidths are the columns of a chosen period.
var columnWidths = []time.Duration{10 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
	10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 12 * time.Hour}

// window is a period as columns. The history has it in buckets of a tier, which are wider
// than a column where it keeps no finer ones.
type window struct {
	Start  time.Time
	N      int
	Column time.Duration
	Tier   time.Duration
	Chosen bool // a reader has chosen its ends: it is no span
}

// column is the beginning of a column.
func (w window) column(i int) time.Time { return w.Start.Add(time.Duration(i) * w.Column) }

// End is the end of the last column.
func (w window) End() time.Time { return w.column(w.N) }

// tierFor is the coarsest tier that is as fine as a column and reaches back to a time, or
// else the finest that reaches back.
func tierFor(start, now time.Time, column time.Duration) time.Duration {
	var fits time.Duration
	for _, t := range tiers {
		if now.Sub(start) <= t.Keep+t.Width && (t.Width <= column || fits == 0) {
			fits = t.Width
		}
	}
	if fits == 0 {
		fits = tiers[len(tiers)-1].Width
	}
	return fits
}

// window is the span until now.
func (s span) window(now time.Time) window {
	start := now.UTC().Truncate(s.Column).Add(-time.Duration(s.N-1) * s.Column)
	return window{Start: start, N: s.N, Column: s.Column, Tier: tierFor(start, now, s.Column)}
}

// spanNamed is the span of a name, or that of an hour.
func spanNamed(name string) span {
	if i := slices.IndexFunc(spans, func(s span) bool { return s.Name == name }); i >= 0 {
		return spans[i]
	}
	return spans[1]
}

// windowOf is a period from one time until another.
func windowOf(from, to, now time.Time) window {
	w := window{Column: columnWidths[len(columnWidths)-1], Tier: tierFor(from, now, 0), Chosen: true}
	for _, width := range columnWidths {
		if width >= w.Tier && to.Sub(from) <= maxColumns*width {
			w.Column = width
			break
		}
	}
	w.Start, w.Tier = from.UTC().Truncate(w.Tier), tierFor(from, now, w.Column)
	w.N = min(max(1, int((to.Sub(w.Start)+w.Column-1)/w.Column)), maxColumns+1)
	return w
}

// before is the same period some time before.
func (w window) before(ago time.Duration, now time.Time) window {
	w.Start = w.Start.Add(-ago)
	w.Tier = tierFor(w.Start, now, w.Column)
	return w
}

const (
	// historyAge is how old the history of a page may be. Engines report as often.
	historyAge = 5 * time.Second
	// overAge is the same of a period that is over. Late reports may change it.
	overAge = time.Minute

	maxChosen     = 2             // reads of chosen periods at a time
	maxChosenKept = 3 * maxChosen // a page has its period and two that it is compared with
)

// histories has the latest reads of the history, so that many open pages cost one read.
// The first page that needs a window reads it, and other pages that need it wait for that
// read. The windows of spans are as few as these, and none makes way for a chosen one.
type histories struct {
	mu     sync.Mutex // guards reads
	reads  map[window]*readHistory
	chosen chan struct{} // full while maxChosen chosen periods are read
}

type readHistory struct {
	at      time.Time
	done    chan struct{} // closed when the read has ended, which sets the fields below
	buckets []telemetry.Bucket
	err     error
}

// ended reports whether the read has ended.
func (r *readHistory) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// stale reports whether the read of a window is over and too old.
func (r *readHistory) stale(w window, now time.Time) bool {
	age := historyAge
	if now.Sub(w.End()) > overAge {
		age = overAge
	}
	return r.ended() && (now.Before(r.at) || now.Sub(r.at) >= age)
}

// history returns the buckets of a window.
func (h *Handler) history(ctx context.Context, w window, now time.Time) ([]telemetry.Bucket, error) {
	for {
		r, mine := h.past.join(w, now)
		if mine {
			h.read(ctx, w, r)
			return r.buckets, r.err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if r.err == nil {
			return r.buckets, nil
		}
		// The page that has read it may have failed because its client left.
	}
}

// join returns the read of a window, and whether it is the caller's to make.
func (c *histories) join(w window, now time.Time) (r *readHistory, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.reads[w]; ok && !r.stale(w, now) {
		return r, false
	}
	maps.DeleteFunc(c.reads, func(w window, r *readHistory) bool { return r.stale(w, now) })
	if c.reads == nil {
		c.reads = make(map[window]*readHistory)
	}
	r = &readHistory{at: now, done: make(chan struct{})}
	c.reads[w] = r
	return r, true
}

// read makes a read, for all pages that wait for it. A failed one is not kept.
func (h *Handler) read(ctx context.Context, w window, r *readHistory) {
	c := &h.past
	r.err = errUnread // if the engine panics
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.err != nil {
			delete(c.reads, w)
		}
		close(r.done)
		c.trim()
	}()
	if w.Chosen {
		select {
		case c.chosen <- struct{}{}:
			defer func() { <-c.chosen }()
		case <-ctx.Done():
			r.err = ctx.Err()
			return
		}
	}
	r.buckets, r.err = h.eng.History(ctx, w.Start, w.End(), w.Tier)
}

// trim takes out the oldest reads of chosen periods, but for a few.
func (c *histories) trim() {
	var chosen []window
	for w, r := range c.reads {
		if w.Chosen && r.ended() {
			chosen = append(chosen, w)
		}
	}
	slices.SortFunc(chosen, func(a, b window) int { return c.reads[b].at.Compare(c.reads[a].at) })
	for _, w := range chosen[min(len(chosen), maxChosenKept):] {
		delete(c.reads, w)
	}
}

var errUnread = errors.New("ojs: dashboard: the history was not read")

// past is what was counted in each column of a window.
type past struct {
	window
	Columns []telemetry.Meter // of the tier, if that is wider than a column
	Any     bool              // something was counted
}

// columns adds up the history of a window, of a queue and type if they are named.
func (h *Handler) columns(p *page, w window, queue, jobType string) (*past, error) {
	return h.summed(p, w, func(sum, m *telemetry.Meter) bool {
		ok := (queue == "" || m.Queue == queue) && (jobType == "" || m.Type == jobType)
		if ok {
			sum.Add(m)
		}
		return ok
	})
}

// completed is what was completed in a window, without the histograms, whose sums cost
// more than all else of a page.
func (h *Handler) completed(p *page, w window) (*past, error) {
	return h.summed(p, w, func(sum, m *telemetry.Meter) bool {
		sum.Completed += m.Completed
		return true
	})
}

// summed adds up the history of a window. add reports whether it has added a meter.
func (h *Handler) summed(p *page, w window, add func(sum, m *telemetry.Meter) bool) (*past, error) {
	buckets, err := h.history(p.r.Context(), w, p.Now)
	if err != nil {
		return nil, err
	}
	out := &past{window: w}
	out.Columns = make([]telemetry.Meter, out.at(w.End().Add(-1))+1)
	for _, b := range buckets {
		i := out.at(b.Start)
		if i < 0 || i >= len(out.Columns) {
			continue
		}
		for j := range b.Meters {
			if add(&out.Columns[i], &b.Meters[j]) {
				out.Any = true
			}
		}
	}
	return out, nil
}

// coarse reports whether the tier is wider than a column.
func (of *past) coarse() bool { return of.Tier > of.Column }

// at is the place in Columns that has a time.
func (of *past) at(t time.Time) int {
	start, width := of.Start, of.Column
	if of.coarse() {
		start, width = start.Truncate(of.Tier), of.Tier
	}
	if t.Before(start) {
		return -1
	}
	return int(t.Sub(start) / width)
}

// values are a value of each column.
func (of *past) values(f func(m *telemetry.Meter) float64) []float64 {
	out := make([]float64, of.N)
	for i := range out {
		out[i] = f(&of.Columns[of.at(of.column(i))])
	}
	return out
}

// share is the part of a count that a column has of what Columns has in its place.
func (of *past) share() float64 {
	if of.coarse() {
		return float64(of.Column) / float64(of.Tier)
	}
	return 1
}

// period is what a page has charts of.
type period struct {
	of             *past
	queue, jobType string   // "": all
	scale          string   // linear or log, or "": numbers linear, durations logarithmic
	ended          []string // the filter lines of the columns
	befores        []before
}

// before is an earlier period that charts compare theirs with.
type before struct {
	of          *past
	name, class string
}

// periodOf is a period whose charts are compared with nothing.
func periodOf(of *past, queue, jobType string) period {
	return period{of: of, queue: queue, jobType: jobType, ended: linesOf(of, queue, jobType, "finished.")}
}

// linesOf are the filter lines of the jobs that ended in each column of a window, or that
// were created in it.
func linesOf(of *past, queue, jobType, key string) (lines []string) {
	var f inspect.Filter
	if queue != "" {
		f.Queues = []string{queue}
	}
	if jobType != "" {
		f.Types = []string{jobType}
	}
	base := f.String()
	if base != "" {
		base += " "
	}
	for i := range of.N {
		from, to := of.column(i).Format(time.RFC3339), of.column(i+1).Format(time.RFC3339)
		lines = append(lines, base+key+"since:"+from+" "+key+"until:"+to)
	}
	return lines
}

// chart is an empty chart of the period. A column leads to the jobs of its line.
func (p *page) chart(of period, title string, lines []string) *chart {
	end := of.of.End()
	c := &chart{Title: title, End: end, Now: end.After(p.Now), Log: of.scale == "log", Lines: lines}
	for i := range of.of.N {
		c.Times = append(c.Times, of.of.column(i))
	}
	return c
}

// throughput is what was done in each column.
func (p *page) throughput(of period) *chart {
	c := p.chart(of, p.T("Throughput"), of.ended)
	add := func(from *past, name, class string, line bool, f func(m *telemetry.Meter) uint64) {
		c.Series = append(c.Series, series{name, class, line, from.values(func(m *telemetry.Meter) float64 {
			if from != of.of && m.IsZero() {
				return math.NaN() // it may be older than the history
			}
			return float64(f(m)) * from.share()
		})})
	}
	completed := func(m *telemetry.Meter) uint64 { return m.Completed }
	add(of.of, p.T("Completed"), "s-ok", false, completed)
	add(of.of, p.T("Retried"), "s-again", false, func(m *telemetry.Meter) uint64 { return m.Retried })
	failed := func(m *telemetry.Meter) uint64 { return m.Failed - min(m.Failed, m.Retried) }
	add(of.of, p.T("Failed"), "s-bad", false, failed)
	add(of.of, p.T("Enqueued"), "s-line", true, func(m *telemetry.Meter) uint64 { return m.Enqueued })
	for _, b := range of.befores {
		add(b.of, p.T("Completed")+", "+b.name, b.class, true, completed)
	}
	c.Note = p.T("In each %s. Retried are failed attempts that others follow.", short(of.of.Column))
	return c
}

func (p *page) count(v float64) string { return p.Num(strconv.FormatFloat(v, 'f', 0, 64)) }

// quantiles are percentiles of durations in each column.
func (p *page) quantiles(
	of period, title string, which func(*telemetry.Meter) *telemetry.Histogram,
) *chart {
	c := p.chart(of, title, nil) // no filter selects the jobs whose attempts began or ended in a column
	c.Seconds, c.Log = true, of.scale != "linear"
	add := func(of *past, name, class string, value func(h *telemetry.Histogram) time.Duration) {
		c.Series = append(c.Series, series{name, class, true, of.values(func(m *telemetry.Meter) float64 {
			h := which(m)
			if h.Count == 0 {
				return math.NaN()
			}
			return value(h).Seconds()
		})})
	}
	p95 := func(h *telemetry.Histogram) time.Duration { return h.Quantile(0.95) }
	add(of.of, "p50", "s-line", func(h *telemetry.Histogram) time.Duration { return h.Quantile(0.5) })
	add(of.of, "p95", "s-dash", p95)
	add(of.of, "p99", "s-dots", func(h *telemetry.Histogram) time.Duration { return h.Quantile(0.99) })
	add(of.of, p.T("longest"), "s-top", longest)
	for _, b := range of.befores {
		add(b.of, "p95, "+b.name, b.class, p95)
	}
	return c
}

// longest is the bound of the last bucket that has a duration.
func longest(h *telemetry.Histogram) (end time.Duration) {
	for bound := range h.Buckets() {
		end = bound
	}
	return end
}

// depth is how many jobs had not ended at the end of each column of a period until now,
// reckoned back from how many there are. A column leads to the jobs that were enqueued in
// it.
func (p *page) depth(of period, now int) *chart {
	c := p.chart(of, p.T("Unfinished jobs"), linesOf(of.of, of.queue, of.jobType, ""))
	c.Note = p.T("Reckoned back from now by what was enqueued and what has ended.")
	values := make([]float64, of.of.N)
	first := slices.IndexFunc(of.of.Columns, func(m telemetry.Meter) bool { return !m.IsZero() })
	depth := float64(now)
	for i := len(values) - 1; i >= 0; i-- {
		m := &of.of.Columns[i]
		if values[i] = max(0, depth); i < first || first < 0 {
			values[i] = math.NaN() // nothing is known of that time
		}
		depth -= float64(m.Enqueued) - float64(m.Completed+m.Discarded+m.Cancelled+m.Expired)
	}
	c.Series = []series{{p.T("Unfinished"), "s-line", true, values}}
	return c
}

// historyTab leads to a period.
type historyTab struct {
	Name, Link string
	On         bool
}

// choice is an option of a field of a form.
type choice struct {
	Value, Name string
	On          bool
}

type historyData struct {
	Tabs        []historyTab
	Queue, Type string
	Span        string // "": From and To are given
	From, To    string // of the form
	Bad         bool   // From and To are no period
	With        []choice
	Scales      []choice
	Charts      []*chart
	Absent      bool // nothing was reported
	Notes       []string
}

// fieldTime is the layout of a field of a form with a day and a time.
const fieldTime = "2006-01-02T15:04"

// comparisons are what the charts of a period can be compared with.
var comparisons = []struct {
	value, name, class string
	ago                time.Duration
}{{"day", "the day before", "s-day", day}, {"week", "the week before", "s-week", 7 * day}}

// scales are the axes of values. As it fits, numbers are linear and durations
// logarithmic.
var scales = []choice{{Name: "as it fits"}, {Value: "linear", Name: "linear"},
	{Value: "log", Name: "logarithmic"}}

// historyPage shows charts over time, of everything, or of a queue or type.
func (h *Handler) historyPage(p *page) error {
	form := p.r.URL.Query()
	data := &historyData{Queue: form.Get("queue"), Type: form.Get("type")}
	w := h.chosen(p, form, data)
	counted, err := h.columns(p, w, data.Queue, data.Type)
	if err != nil {
		return err
	}
	of := periodOf(counted, data.Queue, data.Type)
	of.scale = form.Get("scale")
	for _, c := range scales {
		data.Scales = append(data.Scales, choice{c.Value, p.T(c.Name), c.Value == of.scale})
	}
	note := func(text string) { data.Notes = append(data.Notes, text) }
	for _, c := range comparisons {
		on := slices.Contains(form["with"], c.value)
		data.With = append(data.With, choice{c.value, p.T(c.name), on})
		if !on {
			continue
		}
		b, err := h.columns(p, w.before(c.ago, p.Now), data.Queue, data.Type)
		switch {
		case err != nil:
			return err
		case !b.Any:
			note(p.T("Nothing was reported of %s.", p.T(c.name)))
			continue
		case b.coarse():
			note(p.T("Of %s the history has whole periods of %s only: the line is their average.",
				p.T(c.name), short(b.Tier)))
		}
		of.befores = append(of.befores, before{b, p.T(c.name), c.class})
	}
	if data.Absent = !of.of.Any; data.Absent {
		return p.show("history", p.T("History"), data)
	}
	data.Charts = append(data.Charts, p.throughput(of))
	times := p.times(of)
	times[0].Note = p.T("The longest is how old the oldest job was that started then.")
	data.Charts = append(data.Charts, times...)
	if data.Type == "" && data.Span != "" {
		stats, err := h.stats(p.r.Context())
		if err != nil {
			return err
		}
		now := 0
		for _, q := range stats.Queues {
			if data.Queue == "" || q.Name == data.Queue {
				now += q.Depth()
			}
		}
		data.Charts = append(data.Charts, p.depth(of, now))
	}
	return p.show("history", p.T("History"), data)
}

// chosen is the period that a request names, or else the last hour. It fills in the tabs
// and the form.
func (h *Handler) chosen(p *page, form url.Values, data *historyData) (w window) {
	at := func(field string) time.Time {
		t, _ := time.ParseInLocation(fieldTime, form.Get(field), p.Zone) // zero: it is none
		return t
	}
	from, to := at("from"), at("to")
	if to.IsZero() || to.After(p.Now) {
		to = p.Now
	}
	s := spanNamed(form.Get("span"))
	switch given := form.Get("from")+form.Get("to") != ""; {
	case given && !from.IsZero() && from.Before(to):
		if oldest := p.Now.Add(-keeps); from.Before(oldest) && to.After(oldest) {
			from = oldest
			data.Notes = append(data.Notes, p.T("The history reaches back for %s.", short(keeps)))
		}
		w = windowOf(from, to, p.Now)
	default:
		data.Bad, data.Span = given, s.Name
		w = s.window(p.Now)
	}
	end := w.End()
	if end.After(p.Now) {
		end = p.Now
	}
	data.From, data.To = w.Start.In(p.Zone).Format(fieldTime), end.In(p.Zone).Format(fieldTime)
	add := func(name string, on bool, set ...string) {
		to := url.Values{}
		for _, key := range []string{"queue", "type", "scale", "with"} {
			if v := form[key]; len(v) > 0 && v[0] != "" {
				to[key] = v
			}
		}
		for i := 0; i < len(set); i += 2 {
			to.Set(set[i], set[i+1])
		}
		data.Tabs = append(data.Tabs, historyTab{name, "./?" + to.Encode(), on})
	}
	for _, s := range spans {
		add(s.Name, s.Name == data.Span, "span", s.Name)
	}
	now := p.Now.In(p.Zone)
	today := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, p.Zone)
	since, until := today.AddDate(0, 0, -1), today
	add(p.T("yesterday"), data.Span == "" && from.Equal(since) && to.Equal(until),
		"from", since.Format(fieldTime), "to", until.Format(fieldTime))
	return w
}

// times are how long jobs waited, and how long attempts took.
func (p *page) times(of period) []*chart {
	return []*chart{
		p.quantiles(of, p.T("Time from being available to the first attempt"),
			func(m *telemetry.Meter) *telemetry.Histogram { return &m.Wait }),
		p.quantiles(of, p.T("Time of an attempt"),
			func(m *telemetry.Meter) *telemetry.Histogram { return &m.Run }),
	}
}

// lately is the throughput of the last hour; nil if nothing was reported.
func (h *Handler) lately(p *page, queue, jobType string) (*chart, error) {
	of, err := h.columns(p, spanNamed("1h").window(p.Now), queue, jobType)
	if err != nil || !of.Any {
		return nil, err
	}
	return p.lately(periodOf(of, queue, jobType)), nil
}

func (p *page) lately(of period) *chart {
	c := p.throughput(of)
	c.Title = p.T("The last hour")
	return c
}

// rateMinutes is over how many minutes a rate is taken, before the one that goes on.
const rateMinutes = 5

// rates are how many jobs of each queue were completed in a minute lately; nil if nothing
// was reported.
func (h *Handler) rates(p *page) (map[string]float64, error) {
	buckets, err := h.history(p.r.Context(), spanNamed("1h").window(p.Now), p.Now)
	if err != nil || len(buckets) == 0 {
		return nil, err
	}
	end := p.Now.Truncate(time.Minute)
	start := end.Add(-rateMinutes * time.Minute)
	out := make(map[string]float64)
	for _, b := range buckets {
		if b.Start.Before(start) || !b.Start.Before(end) {
			continue
		}
		for _, m := range b.Meters {
			out[m.Queue] += float64(m.Completed) / rateMinutes
		}
	}
	return out, nil
}

// Rate is a rate as a number.
func (p *page) Rate(v float64) string {
	if v > 0 && v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return p.count(v)
}

// HistoryLink is the address of the charts of a queue or type.
func (p *page) HistoryLink(key, name string) string {
	return p.Root + "history/?" + key + "=" + escape(name)
}
