package dashboard

import (
	"context"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ojsengine/ojs/telemetry"
)

// The charts over time come from the history that engines keep in their storage
// (engine.WithReports), so they have the jobs of all processes and survive restarts.

// span is a period that charts show: columns, each of one or several buckets of a tier of
// the history.
type span struct {
	Name         string
	Columns      int
	Column, Tier time.Duration
}

var spans = []span{
	{"15m", 90, 10 * time.Second, 10 * time.Second},
	{"1h", 60, time.Minute, time.Minute},
	{"6h", 180, 2 * time.Minute, time.Minute},
	{"24h", 144, 10 * time.Minute, time.Minute},
	{"7d", 168, time.Hour, time.Hour},
	{"30d", 180, 4 * time.Hour, time.Hour},
}

// spanNamed is the span of a name, or that of an hour.
func spanNamed(name string) span {
	if i := slices.IndexFunc(spans, func(s span) bool { return s.Name == name }); i >= 0 {
		return spans[i]
	}
	return spans[1]
}

// historyAge is how old the history of a page may be. Engines report as often.
const historyAge = 5 * time.Second

// histories has the latest reads of the history, so that many open pages cost one read.
type histories struct {
	mu    sync.Mutex // held during a read, so that pages wait for it and do not read too
	spans map[string]readHistory

	before struct { // of dayBefore
		at time.Time // the end of the period
		n  uint64
	}
}

type readHistory struct {
	at      time.Time
	buckets []telemetry.Bucket
}

// history returns the buckets of a span until now.
func (h *Handler) history(ctx context.Context, s span, now time.Time) (readHistory, error) {
	c := &h.past
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.spans[s.Name]; ok && !now.Before(r.at) && now.Sub(r.at) < historyAge {
		return r, nil
	}
	buckets, err := h.eng.History(ctx, s.start(now), now.Add(s.Column), s.Tier)
	if err != nil {
		return readHistory{}, err
	}
	if c.spans == nil {
		c.spans = make(map[string]readHistory)
	}
	r := readHistory{now, buckets}
	c.spans[s.Name] = r
	return r, nil
}

// dayBefore is how many jobs were completed a day before a period. It changes with the
// minute.
func (h *Handler) dayBefore(ctx context.Context, from, to time.Time) (n uint64, err error) {
	c := &h.past
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.before.at.Equal(to) {
		return c.before.n, nil
	}
	const day = 24 * time.Hour
	buckets, err := h.eng.History(ctx, from.Add(-day), to.Add(-day), time.Minute)
	if err != nil {
		return 0, err
	}
	for _, b := range buckets {
		for i := range b.Meters {
			n += b.Meters[i].Completed
		}
	}
	c.before.at, c.before.n = to, n
	return n, nil
}

// start is the beginning of the first column.
func (s span) start(now time.Time) time.Time {
	return now.UTC().Truncate(s.Column).Add(-time.Duration(s.Columns-1) * s.Column)
}

// past is what was counted in each column of a span.
type past struct {
	span
	Times   []time.Time
	Columns []telemetry.Meter
	Any     bool // something was counted
}

// columns adds up the history of a span, of a queue and type if they are named.
func (h *Handler) columns(p *page, s span, queue, jobType string) (*past, error) {
	read, err := h.history(p.r.Context(), s, p.Now)
	if err != nil {
		return nil, err
	}
	start := s.start(p.Now)
	out := &past{span: s, Columns: make([]telemetry.Meter, s.Columns)}
	for i := range s.Columns {
		out.Times = append(out.Times, start.Add(time.Duration(i)*s.Column))
	}
	for _, b := range read.buckets {
		i := int(b.Start.Sub(start) / s.Column)
		if b.Start.Before(start) || i >= s.Columns {
			continue
		}
		for j := range b.Meters {
			m := &b.Meters[j]
			if (queue == "" || m.Queue == queue) && (jobType == "" || m.Type == jobType) {
				out.Columns[i].Add(m)
				out.Any = true
			}
		}
	}
	return out, nil
}

// values are a value of each column.
func (of *past) values(f func(m *telemetry.Meter) float64) []float64 {
	out := make([]float64, len(of.Columns))
	for i := range of.Columns {
		out[i] = f(&of.Columns[i])
	}
	return out
}

// throughput is what was done in each column.
func (p *page) throughput(of *past) *timeChart {
	completed := of.values(func(m *telemetry.Meter) float64 { return float64(m.Completed) })
	retried := of.values(func(m *telemetry.Meter) float64 { return float64(m.Retried) })
	failed := of.values(func(m *telemetry.Meter) float64 { return float64(m.Failed) - float64(m.Retried) })
	enqueued := of.values(func(m *telemetry.Meter) float64 { return float64(m.Enqueued) })
	return &timeChart{Zone: p.Zone, Title: p.T("Throughput"), Times: of.Times, Series: []series{
		{p.T("Completed"), "s-ok", false, completed},
		{p.T("Retried"), "s-again", false, retried},
		{p.T("Failed"), "s-bad", false, failed},
		{p.T("Enqueued"), "s-line", true, enqueued},
	}, Text: p.count,
		Note: p.T("In each %s. Retried are failed attempts that others follow.", short(of.Column))}
}

func (p *page) count(v float64) string { return p.Num(strconv.FormatFloat(v, 'f', 0, 64)) }

// quantiles are percentiles of durations in each column.
func (p *page) quantiles(
	of *past, title string, which func(*telemetry.Meter) *telemetry.Histogram,
) *timeChart {
	c := &timeChart{Zone: p.Zone, Title: title, Times: of.Times, Log: true,
		Text: func(v float64) string { return short(time.Duration(v * float64(time.Second))) }}
	add := func(name, class string, value func(h *telemetry.Histogram) time.Duration) {
		c.Series = append(c.Series, series{name, class, true, of.values(func(m *telemetry.Meter) float64 {
			h := which(m)
			if h.Count == 0 {
				return math.NaN()
			}
			return value(h).Seconds()
		})})
	}
	add("p50", "s-line", func(h *telemetry.Histogram) time.Duration { return h.Quantile(0.5) })
	add("p95", "s-dash", func(h *telemetry.Histogram) time.Duration { return h.Quantile(0.95) })
	add("p99", "s-dots", func(h *telemetry.Histogram) time.Duration { return h.Quantile(0.99) })
	add(p.T("longest"), "s-top", longest)
	return c
}

// longest is the bound of the last bucket that has a duration.
func longest(h *telemetry.Histogram) (end time.Duration) {
	for bound := range h.Buckets() {
		end = bound
	}
	return end
}

// depth is how many jobs had not ended at the end of each column, reckoned back from how
// many there are now.
func (p *page) depth(of *past, now int) *timeChart {
	values := make([]float64, len(of.Columns))
	first := slices.IndexFunc(of.Columns, func(m telemetry.Meter) bool { return !m.IsZero() })
	depth := float64(now)
	for i := len(values) - 1; i >= 0; i-- {
		m := &of.Columns[i]
		if values[i] = max(0, depth); i < first || first < 0 {
			values[i] = math.NaN() // nothing is known of that time
		}
		depth -= float64(m.Enqueued) - float64(m.Completed+m.Discarded+m.Cancelled+m.Expired)
	}
	return &timeChart{Zone: p.Zone, Title: p.T("Unfinished jobs"), Times: of.Times, Text: p.count,
		Series: []series{{p.T("Unfinished"), "s-line", true, values}},
		Note:   p.T("Reckoned back from now by what was enqueued and what has ended.")}
}

type historyData struct {
	Spans       []span
	Span        string
	Queue, Type string
	Charts      []*timeChart
	Absent      bool // nothing was reported
}

// historyPage shows charts over time, of everything, or of a queue or type.
func (h *Handler) historyPage(p *page) error {
	s := spanNamed(p.r.FormValue("span"))
	data := &historyData{Spans: spans, Span: s.Name, Queue: p.r.FormValue("queue"),
		Type: p.r.FormValue("type")}
	of, err := h.columns(p, s, data.Queue, data.Type)
	if err != nil {
		return err
	}
	if data.Absent = !of.Any; data.Absent {
		return p.show("history", p.T("History"), data)
	}
	data.Charts = append(data.Charts, p.throughput(of))
	times := p.times(of)
	times[0].Note = p.T("The longest is how old the oldest job was that started then.")
	data.Charts = append(data.Charts, times...)
	if data.Type == "" {
		stats, err := h.eng.Stats(p.r.Context())
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

// times are how long jobs waited, and how long attempts took.
func (p *page) times(of *past) []*timeChart {
	return []*timeChart{
		p.quantiles(of, p.T("Time from being available to the first attempt"),
			func(m *telemetry.Meter) *telemetry.Histogram { return &m.Wait }),
		p.quantiles(of, p.T("Time of an attempt"),
			func(m *telemetry.Meter) *telemetry.Histogram { return &m.Run }),
	}
}

// lately is the throughput of the last hour; nil if nothing was reported.
func (h *Handler) lately(p *page, queue, jobType string) (*timeChart, error) {
	of, err := h.columns(p, spanNamed("1h"), queue, jobType)
	if err != nil || !of.Any {
		return nil, err
	}
	return p.lately(of), nil
}

func (p *page) lately(of *past) *timeChart {
	c := p.throughput(of)
	c.Title = p.T("The last hour")
	return c
}

// rateMinutes is over how many minutes a rate is taken, before the one that goes on.
const rateMinutes = 5

// rates are how many jobs of each queue were completed in a minute lately; nil if nothing
// was reported.
func (h *Handler) rates(p *page) (map[string]float64, error) {
	read, err := h.history(p.r.Context(), spanNamed("1h"), p.Now)
	if err != nil || len(read.buckets) == 0 {
		return nil, err
	}
	end := p.Now.Truncate(time.Minute)
	start := end.Add(-rateMinutes * time.Minute)
	out := make(map[string]float64)
	for _, b := range read.buckets {
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
