package dashboard

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/telemetry"
)

// The charts have what engines have reported, by queue and type, also an engine of a
// process that serves no pages.
func TestHistory(t *testing.T) {
	st, cl := memory.New(), clock.NewMock()
	cl.Set(time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC))
	other, err := engine.New[any](st, engine.WithReports(engine.Reports{}), engine.WithClock(cl),
		engine.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	other.Handle("works", func(context.Context, *ojs.Job[any]) error { return nil })
	other.Handle("fails", func(context.Context, *ojs.Job[any]) error { return errors.New("no") })
	s := &site{t: t, eng: other}
	for range 3 {
		s.enqueue("works", nil, ojs.WithQueue("a"))
	}
	s.enqueue("fails", nil, ojs.WithQueue("b"), ojs.WithMaxAttempts(1))
	s.run()
	eng, err := engine.New[any](st, engine.WithClock(cl), engine.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := New(eng, WithClock(cl), WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	s = &site{t: t, eng: eng, pages: pages, clock: cl}
	for path, want := range map[string][]int{
		"/history/":                    {3, 1, 4},
		"/history/?span=15m":           {3, 1, 4},
		"/history/?span=30d":           {3, 1, 4},
		"/history/?queue=a":            {3, 0, 3},
		"/history/?type=fails":         {0, 1, 1},
		"/history/?queue=a&type=fails": nil,
	} {
		body := s.ok(path)
		if n := strings.Count(body, `class="over-time"`); (n == 0) != (want == nil) {
			t.Errorf("%s has %d charts", path, n)
		}
		wellFormed(t, path, body)
		if want == nil {
			continue
		}
		p := pages.newPage(nil, httptest.NewRequest("GET", path, nil))
		hour := spanNamed("1h").window(cl.Now())
		of, err := pages.columns(p, hour, p.r.FormValue("queue"), p.r.FormValue("type"))
		if err != nil {
			t.Fatal(err)
		}
		sum := telemetry.Meter{}
		for i := range of.Columns {
			sum.Add(&of.Columns[i])
		}
		got := []int{int(sum.Completed), int(sum.Failed), int(sum.Enqueued)}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", path, got, want)
		}
	}
	for path, want := range map[string]int{"/": 3, "/queues/a/": 1} {
		if n := strings.Count(s.ok(path), `class="over-time"`); n != want {
			t.Errorf("%s has %d charts", path, n)
		}
	}
	cl.Add(time.Minute) // the rate is that of whole minutes
	const rate = "Completed in a minute"
	s.has("/queues/", rate, `<td class="num">0.6</td></tr>`, `<td class="num">0</td></tr>`)
	s.has("/queues/a/", rate, "<strong>0.6</strong>")
}

// wellFormed reports a picture that is no XML.
func wellFormed(t *testing.T, path, body string) {
	t.Helper()
	for rest := body; ; {
		_, after, ok := strings.Cut(rest, "<svg")
		if !ok {
			return
		}
		picture, end, _ := strings.Cut(after, "</svg>")
		d := xml.NewDecoder(strings.NewReader("<svg" + picture + "</svg>"))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v in <svg%s", path, err, picture)
			}
		}
		if strings.Contains(picture, "NaN") || strings.Contains(picture, "Inf") ||
			strings.Contains(picture, "%!") {
			t.Errorf("%s: a place that is no number: %s", path, picture)
		}
		rest = end
	}
}

// The depth of the past follows from the depth of now.
func TestDepthIsReckonedBack(t *testing.T) {
	p := &page{display: display{Lang: "en"}}
	of := &past{window: window{N: 4, Column: time.Minute}, Columns: []telemetry.Meter{{}, {Enqueued: 10},
		{Completed: 4, Discarded: 1}, {Enqueued: 2, Expired: 1}}}
	got := p.depth(period{of: of}, 6).Series[0].Values
	if want := []float64{10, 5, 6}; !math.IsNaN(got[0]) || !slices.Equal(got[1:], want) {
		t.Errorf("%v, want none and %v", got, want)
	}
}

// An attempt that another one follows is retried, and no other series has it.
func TestThroughputTellsRetries(t *testing.T) {
	p := &page{display: display{Lang: "en"}}
	of := &past{window: window{N: 1, Column: time.Minute}, Columns: []telemetry.Meter{
		{Enqueued: 9, Completed: 4, Failed: 5, Retried: 3, Discarded: 2},
	}}
	got := make(map[string]float64)
	for _, s := range p.throughput(period{of: of}).Series {
		got[s.Name] = s.Values[0]
	}
	want := map[string]float64{"Completed": 4, "Retried": 3, "Failed": 2, "Enqueued": 9}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A period is chosen by its ends, in the zone of the reader. The history of its time has
// it, as finely as it is kept.
func TestChosenPeriod(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)
	for _, tt := range []struct {
		ago, length, column, tier time.Duration
		n                         int
	}{
		{time.Hour, 20 * time.Minute, 10 * time.Second, 10 * time.Second, 120},
		{5 * time.Hour, time.Hour, time.Minute, time.Minute, 61},
		{36 * time.Hour, day, 10 * time.Minute, time.Minute, 145},
		{3 * day, time.Hour, time.Hour, time.Hour, 2},
		{60 * day, 50 * day, 12 * time.Hour, time.Hour, 101},
	} {
		from := now.Add(-tt.ago)
		w := windowOf(from, from.Add(tt.length), now)
		if w.Column != tt.column || w.Tier != tt.tier || w.N != tt.n || w.Start.After(from) {
			t.Errorf("%v %v ago: %+v", tt.length, tt.ago, w)
		}
	}
	// Before the finest tier begins there is a coarser one, whose buckets columns share.
	before := spanNamed("1h").window(now).before(7*day, now)
	if before.Tier != time.Hour || before.Column != time.Minute {
		t.Errorf("%+v", before)
	}
	of := &past{window: before}
	if n := of.at(before.End().Add(-1)) + 1; n != 2 || !of.coarse() || of.share() != 1./60 {
		t.Errorf("%d buckets", n)
	}
}

// Charts are compared with the day and the week before, and say where the history has
// nothing or no more than whole hours. A column leads to its jobs.
func TestChartsOfAPeriod(t *testing.T) {
	store := memory.New()
	s := siteOn(t, store)
	now := s.clock.Now()
	minute := now.Truncate(time.Minute).Add(-30 * time.Minute)
	report(t, store, now, minute, "email.send", [5]int{30, 30, 0, 0, 0})
	report(t, store, now, minute.Add(-day), "email.send", [5]int{40, 41, 0, 0, 0})
	body := s.has("/history/?with=day&with=week", "Completed, the day before", "p95, the day before",
		"Nothing was reported of the week before.", "11:30 · Completed 30",
		"Completed, the day before 41", `<a href="../jobs/?q=`+
			`finished.since%3A2026-03-01T11%3A30%3A00Z&#43;finished.until%3A2026-03-01T11%3A31%3A00Z"`)
	wellFormed(t, "compared", body)
	s.enqueue("t", nil)
	s.has("/jobs/?q=finished.since:1h", `aria-current="true">latest end first`)
	week := minute.Truncate(time.Hour).Add(-7 * day)
	hour := document.Value{Key: fmt.Sprintf("history/1h/%010d/e", week.Unix()),
		Data: []byte(`[{"q":"mail","t":"email.send","n":[0,120,0,0,0,0,0,0,0]}]`)}
	if err := document.Of(store).PutValues(t.Context(), now, []document.Value{hour}); err != nil {
		t.Fatal(err)
	}
	s.clock.Add(2 * time.Minute)
	s.has("/history/?with=week", "whole periods of 1h only", "Completed, the week before 2")
	// The day before is from midnight to midnight of the reader's zone.
	w := s.do("GET", "/history/", "", "Cookie", "ojs_zone=Europe/Berlin")
	yesterday := `./?from=2026-02-28T00%3A00&amp;to=2026-03-01T00%3A00">yesterday`
	if body := w.Body.String(); !strings.Contains(body, yesterday) {
		t.Errorf("no yesterday in %s", body)
	}
	s.has("/history/?from=2026-02-28T11:00&to=2026-02-28T12:00&scale=log", "Completed 41",
		`<option value="log" selected>`)
	body = s.ok("/history/?from=2026-02-28T11:00&to=2026-02-28T12:00")
	if strings.Contains(body, "Unfinished jobs") {
		t.Error("how many jobs were unfinished yesterday is not known")
	}
	s.has("/history/?from=2025-01-01T00:00", "The history reaches back for 90d.")
	for _, bad := range []string{"from=x", "from=2026-03-01T11:00&to=2026-03-01T10:00", "to=2026-03-01T10:00",
		"from=2027-03-01T11:00"} {
		s.has("/history/?"+bad, "From is before To", `aria-invalid="true"`)
	}
}

// slowHistory is an engine whose reads of the history end when the test says.
type slowHistory struct {
	*engine.Engine[any]
	begun chan time.Time
	end   chan error
}

func (e *slowHistory) History(
	ctx context.Context, from, _ time.Time, _ time.Duration,
) ([]telemetry.Bucket, error) {
	e.begun <- from
	select {
	case err := <-e.end:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A window of the history is read once at a time, and no window waits for another one.
// Chosen periods are read two at a time, and leave those of spans where they are.
func TestReadsOfTheHistory(t *testing.T) { synctest.Test(t, testReadsOfTheHistory) }

func testReadsOfTheHistory(t *testing.T) {
	s := siteOn(t, memory.New())
	e := &slowHistory{s.eng, make(chan time.Time, 99), make(chan error)}
	s.pages.eng = e
	now := s.clock.Now()
	hour := spanNamed("1h").window(now)
	read := func(ctx context.Context, w window) <-chan error {
		out := make(chan error, 1)
		go func() {
			_, err := s.pages.history(ctx, w, now)
			out <- err
		}()
		return out
	}
	leaves, leave := context.WithCancel(t.Context())
	left := read(leaves, hour)
	<-e.begun
	waits := read(t.Context(), hour)
	leave() // the page that waits reads for itself
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-e.begun
	other := read(t.Context(), spanNamed("6h").window(now))
	<-e.begun // while the other one is read
	e.end <- nil
	e.end <- nil
	if err := errors.Join(<-waits, <-other); err != nil {
		t.Fatal(err)
	}
	var chosen []<-chan error
	for i := range 10 {
		from := now.Add(-time.Duration(i+2) * time.Hour)
		chosen = append(chosen, read(t.Context(), windowOf(from, from.Add(time.Hour), now)))
	}
	synctest.Wait()
	if n := len(e.begun); n != maxChosen {
		t.Errorf("%d reads of chosen periods at the same time", n)
	}
	for range chosen {
		e.end <- nil
	}
	for _, c := range chosen {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	before := len(e.begun)
	if _, err := s.pages.history(t.Context(), hour, now); err != nil || len(e.begun) != before {
		t.Errorf("the window of a span was read again: %v", err)
	}
	if n := len(s.pages.past.reads); n != 2+maxChosenKept {
		t.Errorf("%d reads are kept", n)
	}
}

// No column of a chart of durations leads to jobs: a filter has no jobs by when their
// attempts began.
func TestTimesLeadNowhere(t *testing.T) {
	p := &page{display: display{Lang: "en"}}
	of := &past{window: window{N: 1, Column: time.Minute}, Columns: make([]telemetry.Meter, 1)}
	for _, c := range p.times(periodOf(of, "", "")) {
		if c.Lines != nil {
			t.Errorf("%s leads to %v", c.Title, c.Lines)
		}
	}
}

// A day with 23 or 25 hours has its ticks at the same hours as any other.
func TestTicksOfLongDays(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	p := &page{display: display{Lang: "en", Zone: berlin}}
	for _, date := range []string{"2026-03-29", "2026-10-25", "2026-06-01"} {
		midnight, err := time.ParseInLocation(time.DateOnly, date, berlin)
		if err != nil {
			t.Fatal(err)
		}
		for _, length := range []int{1, 3} { // days
			c := &chart{Times: []time.Time{midnight}, End: midnight.AddDate(0, 0, length)}
			for _, tick := range p.ticks(c) {
				if hour, minute, ok := strings.Cut(tick.text, ":"); ok && (minute != "00" || hour > "23" ||
					strings.Contains("01 05 07 11 13 17 19 23", hour)) {
					t.Errorf("%s, %d days: a tick at %s", date, length, tick.text)
				}
			}
		}
	}
	days := p.failureChart("", day, make([]uint64, 2))
	if name := p.ColumnName(days, 1); name != "0001-01-01" {
		t.Errorf("a day of UTC is named %s", name)
	}
}

// On a logarithmic axis each series has bars of its own, which no other one hides. The
// least value shows, and 0 has no place.
func TestLogarithmicBars(t *testing.T) {
	p := &page{display: display{Lang: "en", Zone: time.UTC}, Root: "./"}
	c := &chart{Labels: []string{"a", "b"}, Log: true, Series: []series{
		{"done", "s-ok", false, []float64{1000, 1000}}, {"failed", "s-bad", false, []float64{1, 10}},
		{"new", "s-line", true, []float64{0, 5}}}}
	svg := plot(p, c)
	for _, want := range []string{`class="s-bad" d="M180.0 120.0V91.0h144.0V120.0z`,
		`class="s-ok" d="M36.0 120.0V4.0h144.0`, `class="s-line" d="M360.0 `} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}
