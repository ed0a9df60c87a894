package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs/telemetry"
)

type historyVerb struct {
	Since string `default:"1h" placeholder:"TIME" help:"How far to go back: up to 90d."`
	Every string `placeholder:"TIME" help:"The width of a row, such as 10s, 5m or 1h; at most 24 rows by default."`
	Queue string `short:"q" placeholder:"NAME" help:"Only a queue."`
	Type  string `placeholder:"TYPE" help:"Only a job type."`
}

func (historyVerb) Help() string {
	return `The counts are those that engines report (engine.WithReports), in buckets of 10 s for 2 h, of a
minute for 48 h and of an hour for 90 days. A row in which nothing has happened is left out.`
}

// historyRow is a period in JSON.
type historyRow struct {
	Start     time.Time `json:"start"`
	Seconds   float64   `json:"seconds"`
	Enqueued  uint64    `json:"enqueued"`
	Started   uint64    `json:"started"`
	Completed uint64    `json:"completed"`
	Failed    uint64    `json:"failed"` // attempts
	Discarded uint64    `json:"discarded"`
	Cancelled uint64    `json:"cancelled"`
	Expired   uint64    `json:"expired"`
	WaitP50   float64   `json:"wait_p50_seconds"`
	WaitP99   float64   `json:"wait_p99_seconds"`
	RunP50    float64   `json:"run_p50_seconds"`
	RunP99    float64   `json:"run_p99_seconds"`

	sum telemetry.Meter
}

// rowWidths are the widths of rows without --every.
var rowWidths = []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
	6 * time.Hour, 24 * time.Hour, 4 * 24 * time.Hour}

// widths returns the width of a row, and that of the buckets that are kept for it.
func (v *historyVerb) widths() (since, every, bucket time.Duration, err error) {
	tiers := telemetry.Tiers()
	if since, err = parseSpan(v.Since); err != nil || since <= 0 || since > tiers[len(tiers)-1].Keep {
		err = fmt.Errorf("--since takes a duration up to 90d, and not %q", clean(v.Since))
		return 0, 0, 0, usageError{err}
	}
	bucket = tiers[slices.IndexFunc(tiers, func(t telemetry.Tier) bool { return since <= t.Keep })].Width
	for _, every = range rowWidths {
		if every >= bucket && since <= 24*every {
			break
		}
	}
	if v.Every != "" {
		if every, err = parseSpan(v.Every); err != nil || every < bucket || every%bucket != 0 {
			err = fmt.Errorf("--every takes a multiple of %s, which is kept for %s, and not %q",
				period(bucket), v.Since, clean(v.Every))
			return 0, 0, 0, usageError{err}
		}
	}
	return since, every, bucket, nil
}

// Run shows what engines have counted.
func (v *historyVerb) Run(c *call) error {
	since, every, bucket, err := v.widths()
	if err != nil {
		return err
	}
	if _, err := c.store(); err != nil {
		return err
	}
	now := c.now().UTC()
	buckets, err := telemetry.History(c.ctx, c.opened, now, now.Add(-since).Truncate(every), now, bucket)
	if err != nil {
		return err
	}
	rows := v.rows(buckets, every)
	return show(c, listing[historyRow]{
		columns: []column{{title: "FROM"}, {title: "ENQUEUED", right: true},
			{title: "STARTED", right: true, rank: 2}, {title: "COMPLETED", right: true},
			{title: "FAILED", right: true}, {title: "DISCARDED", right: true},
			{title: "CANCELLED", right: true, rank: 4}, {title: "EXPIRED", right: true, rank: 3},
			{title: "WAIT", right: true}, {title: "WAIT99", right: true, rank: 1},
			{title: "RUN", right: true}, {title: "RUN99", right: true, rank: 1}},
		row:  func(r historyRow) []cell { return r.cells(every) },
		id:   func(r historyRow) string { return r.Start.Format(time.RFC3339) },
		none: "nothing is counted: no engine reports, or nothing has happened",
	}, all(rows), nil)
}

// rows adds buckets to rows of a width.
func (v *historyVerb) rows(buckets []telemetry.Bucket, every time.Duration) (rows []historyRow) {
	for i := range buckets {
		start := buckets[i].Start.Truncate(every).UTC()
		for j := range buckets[i].Meters {
			m := &buckets[i].Meters[j]
			if v.Queue != "" && m.Queue != v.Queue || v.Type != "" && m.Type != v.Type {
				continue
			}
			if n := len(rows); n == 0 || !rows[n-1].Start.Equal(start) {
				rows = append(rows, historyRow{Start: start, Seconds: every.Seconds()})
			}
			rows[len(rows)-1].sum.Add(m)
		}
	}
	for i := range rows {
		r := &rows[i]
		m := &r.sum
		r.Enqueued, r.Started, r.Completed, r.Failed = m.Enqueued, m.Started, m.Completed, m.Failed
		r.Discarded, r.Cancelled, r.Expired = m.Discarded, m.Cancelled, m.Expired
		r.WaitP50, r.WaitP99 = m.Wait.Quantile(0.5).Seconds(), m.Wait.Quantile(0.99).Seconds()
		r.RunP50, r.RunP99 = m.Run.Quantile(0.5).Seconds(), m.Run.Quantile(0.99).Seconds()
	}
	return rows
}

func (r *historyRow) cells(every time.Duration) []cell {
	form := "15:04:05Z"
	if every >= time.Hour {
		form = "2006-01-02 15:04Z"
	}
	count := func(n uint64, t tint) cell {
		if n == 0 {
			t = dim
		}
		return cell{number(int(n)), t}
	}
	took := func(n uint64, seconds float64) cell {
		if n == 0 {
			return cell{}
		}
		return of(span(time.Duration(seconds * float64(time.Second))))
	}
	return []cell{of(r.Start.Format(form)), count(r.Enqueued, plain), count(r.Started, plain),
		count(r.Completed, green), count(r.Failed, yellow), count(r.Discarded, red),
		count(r.Cancelled, plain), count(r.Expired, plain), took(r.sum.Wait.Count, r.WaitP50),
		took(r.sum.Wait.Count, r.WaitP99),
		took(r.sum.Run.Count, r.RunP50), took(r.sum.Run.Count, r.RunP99)}
}
