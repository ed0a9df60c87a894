package dashboard

import (
	"bytes"
	"flag"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/workflow"
)

var update = flag.Bool("update", false, "write the pictures of testdata anew")

// The pictures are those of testdata. After a change that is meant:
//
//	go test -run Pictures -update .
func TestPictures(t *testing.T) {
	for name, svg := range pictures(t) {
		t.Run(name, func(t *testing.T) {
			got := picture(svg)
			wellFormed(t, name, got)
			file := filepath.Join("testdata", name+".svg")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the picture has changed; if that is meant, give the test -update\n%s", got)
			}
		})
	}
}

// picture is an element of a page as a file of its own, with a line for each element.
func picture(svg string) string {
	svg = strings.ReplaceAll(svg, "\n", "")
	svg = strings.Replace(svg, "<svg ", `<svg xmlns="http://www.w3.org/2000/svg" `, 1)
	return `<?xml-stylesheet type="text/css" href="../assets/style.css"?>` + "\n" +
		strings.ReplaceAll(svg, "><", ">\n<") + "\n"
}

func pictures(t *testing.T) map[string]string {
	p := &page{display: display{Lang: "en", Zone: time.FixedZone("", 3600)}, Root: "./"}
	named := bars("a & b")
	for i, n := range []float64{0, 3, 12, 0.1, 7} {
		named.add(strings.Repeat("<", i), "tag:<"+strings.Repeat("b", i), n)
	}
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	nan := math.NaN()
	times := func(n int, width time.Duration) (out []time.Time) {
		for i := range n {
			out = append(out, start.Add(time.Duration(i)*width))
		}
		return out
	}
	bounded := &chart{Times: times(8, time.Minute), End: start.Add(8 * time.Minute), Now: true,
		Series: []series{
			{"done", "s-ok", false, []float64{4, 9, 0, 3, 3, 5, 8, 2}},
			{"failed", "s-bad", false, []float64{1, 0, 0, 0, 2, 0, 0, 1}},
			{"new", "s-line", true, []float64{5, 8, nan, 3, 4, nan, nan, 6}},
		}}
	latency := &chart{Times: times(5, 6*time.Hour), End: start.Add(30 * time.Hour), Seconds: true,
		Log: true, Series: []series{
			{"p50", "s-line", true, []float64{0.001, 0.002, nan, 0.004, 0.02}},
			{"p99", "s-dots", true, []float64{0.03, 0.9, nan, 12, 700}},
		}}
	none := []series{{"done", "s-ok", false, make([]float64, 3)}}
	empty := &chart{Times: times(3, 30*day), End: start.Add(90 * day), Series: none}
	job := &ojs.JobInfo{State: ojs.StateRetryable}
	job.CreatedAt = start
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	life := &inspect.Timeline{Job: job, Attempts: []inspect.Attempt{
		{N: 1, Start: at(10), End: at(20), Outcome: inspect.OutcomeFailed},
		{N: 2, Start: at(40), End: at(41), Outcome: inspect.OutcomeSnoozed},
		{N: 2, End: at(80), Outcome: inspect.OutcomeFailed},
	}, Next: []inspect.NextAttempt{{N: 3, At: at(130)}, {N: 4, At: at(200)}, {N: 5, At: at(400)}}}
	ended := *life
	ended.Next, ended.Job = nil, &ojs.JobInfo{State: ojs.StateCompleted, FinishedAt: at(100)}
	ended.Job.CreatedAt = start
	return map[string]string{
		"bars":       plot(p, named),
		"spark":      string(spark([]int{0, 1, 5, 9, 0, 3})),
		"time":       plot(p, bounded),
		"time-log":   plot(p, latency),
		"time-empty": plot(p, empty),
		"life":       string(stripOf(life, at(100)).SVG()),
		"life-ended": string(stripOf(&ended, at(500)).SVG()),
		"graph":      graphPicture(t),
	}
}

// plot is a chart, whose axes are pictures of their own, as one element.
func plot(p *page, c *chart) string {
	parts := strings.NewReplacer("<svg ", "<g ", "</svg>", "</g>")
	return "<svg >" + parts.Replace(string(p.Plot(c))) + "</svg>"
}

// graphPicture is the graph of a workflow with steps in all states, and one whose job has
// been deleted.
func graphPicture(t *testing.T) string {
	t.Helper()
	step := func(name string, state ojs.State, after ...string) workflow.StepStatus {
		return workflow.StepStatus{Name: name, JobID: name, Type: "order." + name, After: after,
			Job: &ojs.JobInfo{State: state}}
	}
	status := &workflow.Status{Steps: []workflow.StepStatus{
		step("confirm", ojs.StateCompleted),
		step("invoice", ojs.StateDiscarded, "confirm"), step("charge", ojs.StateRetryable, "confirm"),
		step("pack", ojs.StateActive, "confirm"), {Name: "weigh <it>", After: []string{"confirm", "gone"}},
		step("a name that is longer than a node is wide", ojs.StatePending, "charge", "pack"),
		step("ship", ojs.StatePending, "invoice", "a name that is longer than a node is wide"),
		step("thank", ojs.StateCancelled),
	}}
	s := newSite(t)
	p := s.pages.newPage(httptest.NewRecorder(), httptest.NewRequest("GET", "/workflows/x/", nil))
	var b bytes.Buffer
	g := layout(p, partsOf(status, true))
	if err := templates["workflow"].ExecuteTemplate(&b, "graph", p.With(g)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
