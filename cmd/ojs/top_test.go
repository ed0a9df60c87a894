package main

import (
	"context"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/telemetry"
)

// Rates are those of the history that engines report, and not of the stored jobs.
func TestTopRates(t *testing.T) {
	sh := newShell(t, onMemory, true)
	counted := []telemetry.Meter{{Queue: "mail", Type: "email.send", Enqueued: 120, Completed: 60}}
	var r telemetry.Recorder
	var values []document.Value
	r.Record(counted, noon.Add(-30*time.Second), "w", stored.Into(&values))
	sh.shop.must(document.Of(sh.shop.st).PutValues(context.Background(), noon, values))
	if out := sh.run("ojs top --once"); !strings.Contains(out, "in 2.0/s  out 1.0/s") {
		t.Error(out)
	}
}

// The keys of top select a queue, and pause and resume it only after a confirmation.
func TestTopKeys(t *testing.T) {
	sh := newShell(t, onMemory, true)
	p := &program{env: environment("USER", "ada"), clock: sh.shop.clock, storage: sh.shop.st}
	c := &call{program: p, ctx: context.Background(), flags: &flags{Storage: "memory"}}
	snap, err := c.snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var m tea.Model = topModel{call: c, now: snap, every: 1, height: 24}
	send := func(msgs ...tea.Msg) {
		for _, msg := range msgs {
			var do tea.Cmd
			m, do = m.Update(msg)
			if _, isKey := msg.(tea.KeyPressMsg); isKey && do != nil {
				m, _ = m.Update(do())
				if snap, err = c.snapshot(); err != nil {
					t.Fatal(err)
				}
				m, _ = m.Update(snapshotMsg{snap, nil})
			}
		}
	}
	key := func(name string) tea.Msg { return tea.KeyPressMsg{Text: name, Code: []rune(name)[0]} }
	shows := func(text string) {
		t.Helper()
		if view := m.View().Content; !strings.Contains(view, text) {
			t.Errorf("no %q in\n%s", text, view)
		}
	}
	send(tea.WindowSizeMsg{Width: 80, Height: 24}, tea.KeyPressMsg{Code: tea.KeyDown}, key("j"))
	shows("> mail")
	send(key("p"))
	shows("pause queue mail? y or n")
	send(key("n"))
	shows("not changed")
	send(key("p"), key("y"))
	shows("queue mail is paused")
	shows("> mail                     paused")
	send(key("p"))
	shows("resume queue mail? y or n")
	send(key("y"), key("k"), tea.KeyPressMsg{Code: tea.KeyUp}, key("k"))
	shows("queue mail is active")
	shows("> billing")
	if n := strings.Count(m.View().Content, "\n"); n != 23 {
		t.Errorf("%d lines", n+1)
	}
	if _, do := m.Update(key("q")); do == nil {
		t.Error("q does not end")
	} else if _, quits := do().(tea.QuitMsg); !quits {
		t.Error("q does not end")
	}
}
