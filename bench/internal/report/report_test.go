package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	s := &Section{Title: "speed", Metrics: []Metric{{Name: "jobs/s"}, {Name: "allocs/job", Decimals: 1}},
		Base: "b"}
	for _, round := range [][2]float64{{10, 1}, {40, 2}, {20, 3}} {
		s.Add("a", round[0], round[1])
		s.Add("b", round[0]*2, round[1])
	}
	s.Add("c", 1, 1)
	s.Fail("c", errors.New("hangs"))
	if !s.Failed("c") || s.Failed("a") || s.Failed("unknown") || len(s.Rows) != 3 {
		t.Errorf("wrong about who has failed: %v", s.Rows)
	}
	r := &Report{Sections: []*Section{s}}
	var text bytes.Buffer
	if err := r.Write(&text, false); err != nil {
		t.Fatal(err)
	}
	fields := strings.Join(strings.Fields(text.String()), " ")
	for _, want := range []string{"a 20 2.0 0.50 10 40", "b 40 2.0 1.00 20 80", "c failed: hangs"} {
		if !strings.Contains(fields, want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "hangs") {
		t.Errorf("got %v", err)
	}
}

func TestMedianOfAnEvenNumber(t *testing.T) {
	r := &Row{Rounds: [][]float64{{4}, {1}, {2}, {100}}}
	if got := r.median(0); got != 3 {
		t.Errorf("got %v", got)
	}
}

func TestJSONHasEveryRound(t *testing.T) {
	s := &Section{Metrics: []Metric{{Name: "jobs/s"}}}
	s.Add("a", 1)
	s.Add("a", 2)
	var b bytes.Buffer
	if err := (&Report{Machine: ThisMachine(), Sections: []*Section{s}}).Write(&b, true); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Sections[0].Rows[0].Rounds) != 2 {
		t.Errorf("got %s", b.String())
	}
}
