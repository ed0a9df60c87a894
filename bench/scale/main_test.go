package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Everything is measured, at sizes that say nothing.
func TestMeasure(t *testing.T) {
	r, err := measure(t.Context(), config{
		rounds: 1, few: 10, many: 200, calls: 20, perSecond: 100, dueFor: 100 * time.Millisecond,
		idleFor: time.Millisecond, sections: "fitu", activeShare: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.Write(&text, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"claim and ack, with jobs active", "200 scheduled jobs", "scheduler.Heap",
		"Lateness", "unique, a duplicate"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if _, err := measure(t.Context(), config{sections: "x"}); err == nil {
		t.Error("there is a section x")
	}
}
