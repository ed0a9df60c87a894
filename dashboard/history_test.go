package dashboard

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
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
		of, err := pages.columns(p, spanNamed("1h"), p.r.FormValue("queue"), p.r.FormValue("type"))
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
	of := &past{Columns: []telemetry.Meter{{}, {Enqueued: 10}, {Completed: 4, Discarded: 1},
		{Enqueued: 2, Expired: 1}}}
	of.Times = make([]time.Time, len(of.Columns))
	got := p.depth(of, 6).Series[0].Values
	if want := []float64{10, 5, 6}; !math.IsNaN(got[0]) || !slices.Equal(got[1:], want) {
		t.Errorf("%v, want none and %v", got, want)
	}
}

// An attempt that another one follows is retried, and no other series has it.
func TestThroughputTellsRetries(t *testing.T) {
	p := &page{display: display{Lang: "en"}}
	of := &past{Times: make([]time.Time, 1), Columns: []telemetry.Meter{
		{Enqueued: 9, Completed: 4, Failed: 5, Retried: 3, Discarded: 2},
	}}
	got := make(map[string]float64)
	for _, s := range p.throughput(of).Series {
		got[s.Name] = s.Values[0]
	}
	want := map[string]float64{"Completed": 4, "Retried": 3, "Failed": 2, "Enqueued": 9}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
