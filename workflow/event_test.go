package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// heard are the events that a subscription has received.
func heard(sub *engine.Subscription) (events []event.Event) {
	for {
		select {
		case ev := <-sub.C():
			events = append(events, ev)
		default:
			return events
		}
	}
}

// told is what events say: their types without "workflow.", and their steps.
func told(events []event.Event) string {
	var list []string
	for _, ev := range events {
		text := strings.TrimPrefix(string(ev.Type), "workflow.")
		if ev.Workflow.Step != "" {
			text += " " + ev.Workflow.Step
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// W038 W090 W092 W093 W094: a workflow's events, in order and each once, with and without
// a listener to the events of jobs.
func TestEvents(t *testing.T) {
	tests := []struct {
		name  string
		part  workflow.Part
		fails string // a step
		want  string
	}{
		{"chain", workflow.Chain(step("a"), step("b")), "",
			"created, started a, step_completed a, step_completed b, completed"},
		{"chain that fails", workflow.Chain(step("a"), step("b"), step("c")), "b",
			"created, started a, step_completed a, step_failed b, failed b"},
		{"group", workflow.Group(step("a"), step("b"), step("c")), "b",
			"created, started a, step_completed a, job_completed a, step_failed b, job_failed b, " +
				"step_completed c, job_completed c, failed b"},
		{"batch", workflow.Batch(workflow.Group(step("a"), step("b")),
			workflow.OnSuccess(ojs.NewDraft("x", nil)), workflow.OnFailure(ojs.NewDraft("x", nil))), "b",
			"created, started a, step_completed a, job_completed a, step_failed b, job_failed b, " +
				"callback_fired on_failure, step_completed on_failure, completed"},
		{"batch whose callback fails", workflow.Batch(step("a"),
			workflow.OnSuccess(ojs.NewDraft("x", nil))), "on_success",
			"created, started a, step_completed a, job_completed a, callback_fired on_success, " +
				"step_failed on_success, failed on_success"},
		{"batch whose failure callback fails", workflow.Batch(workflow.Group(step("a"), step("b")),
			workflow.OnComplete(ojs.NewDraft("x", nil))), "on_complete",
			"created, started a, step_completed a, job_completed a, step_completed b, job_completed b, " +
				"callback_fired on_complete, step_failed on_complete, failed on_complete"},
		{"graph", workflow.Graph(
			workflow.Node{Name: "a", Job: ojs.NewDraft("x", nil)},
			workflow.Node{Name: "b", Job: ojs.NewDraft("x", nil), After: []string{"a"}},
			workflow.Node{Name: "c", Job: ojs.NewDraft("x", nil), After: []string{"b"}, When: ojs.AnyFailed}),
			"b", "created, started a, step_completed a, step_failed b, step_completed c, failed b"},
		{"group in a chain", workflow.Chain(step("a"), workflow.Group(step("b"), step("c")), step("d")), "c",
			"created, started a, step_completed a, step_completed b, job_completed b, " +
				"step_failed c, job_failed c, failed c"},
		{"batch in a chain", workflow.Chain(workflow.Batch(workflow.Chain(step("a"), step("b")),
			workflow.OnComplete(ojs.NewDraft("x", nil))), step("c")), "b",
			"created, started a, step_completed a, job_completed a, step_failed b, job_failed b, " +
				"callback_fired on_complete, step_completed on_complete, step_completed c, completed"},
		{"batch in a group", workflow.Group(workflow.Batch(step("a"),
			workflow.OnComplete(ojs.NewDraft("x", nil)))), "",
			"created, started a, step_completed a, job_completed a, callback_fired on_complete, " +
				"step_completed on_complete, completed"},
		{"group in a saga", workflow.Saga(workflow.Compensate, workflow.Group(undoable("a")), step("b")), "b",
			"created, started a, step_completed a, job_completed a, step_failed b, compensating, " +
				"step_completed undo-a, compensated b"},
		{"chain in a group", workflow.Group(workflow.Chain(step("a"), step("b"))), "",
			"created, started a, step_completed a, job_completed a, step_completed b, job_completed b, " +
				"completed"},
		{"saga", workflow.Saga(workflow.Compensate, undoable("a"), step("b")), "b",
			"created, started a, step_completed a, step_failed b, compensating, step_completed undo-a, " +
				"compensated b"},
		{"saga without compensations", workflow.Saga(workflow.Compensate, step("a"), step("b")), "a",
			"created, started a, step_failed a, compensating, compensated a"},
		{"saga whose compensation fails", workflow.Saga(workflow.Compensate, undoable("a"), step("b")),
			"b undo-a", "created, started a, step_completed a, step_failed b, compensating, " +
				"step_failed undo-a, failed b"},
		{"step", step("a"), "", "created, started a, step_completed a, completed"},
	}
	one := engine.WithConcurrency(1)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.handle("x", func(_ context.Context, step string) error {
					if slices.Contains(strings.Fields(tt.fails), step) {
						return ojs.Discard(errBoom)
					}
					return nil
				})
				sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"workflow.*"}})
				defer sub.Close()
				all := b.Subscribe(engine.EventFilter{Buffer: 1000})
				defer all.Close()
				id := b.start(workflow.New("w", tt.part))
				own := b.Subscribe(engine.EventFilter{JobIDs: []string{id},
					Types: []event.Type{"workflow.*"}})
				defer own.Close()
				other := b.Subscribe(engine.EventFilter{JobIDs: []string{anyID}})
				defer other.Close()
				b.run(time.Minute)
				events, shape := heard(sub), strings.Fields(tt.name)[0]
				if _, outer, ok := strings.Cut(tt.name, " in a "); ok {
					shape = outer
				}
				if got := told(events); got != tt.want {
					t.Errorf("published %s\nwant      %s", got, tt.want)
				}
				for _, ev := range events {
					w := ev.Workflow
					if ev.Subject != id || w.ID != id || w.Name != "w" || w.Shape != shape || ev.Job == nil {
						t.Errorf("%s is of %s, %q, a %s", ev.Type, ev.Subject, w.Name, w.Shape)
					}
				}
				if got := told(heard(own)); "created, "+got != tt.want {
					t.Errorf("a subscription of the id has %s", got)
				}
				if got := heard(other); got != nil {
					t.Errorf("a subscription of another id has %v", got)
				}
				var among []event.Event
				for _, ev := range heard(all) {
					if ev.Workflow != nil {
						among = append(among, ev)
					}
				}
				if got := told(among); got != tt.want {
					t.Errorf("among all events are %s\nwant %s", got, tt.want)
				}
			}, one)
		})
	}
}

// reversing is a storage that reports the jobs that an end has moved in reverse order.
type reversing struct{ storage.Storage }

func (s reversing) Settle(
	ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled,
) ([]storage.Settled, error) {
	settled, err := s.Storage.Settle(ctx, now, changes, dst)
	for i := range settled {
		slices.Reverse(settled[i].Moved)
	}
	return settled, err
}

// W094: the event of the end is the last, in whichever order a storage moves jobs.
func TestEventsOfAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng, err := engine.New[any](reversing{memory.New()},
			engine.WithLogger(slog.New(slog.DiscardHandler)), engine.WithConcurrency(1))
		must(t, err)
		b := &rig{Engine: eng, t: t, ctx: t.Context()}
		b.handle("x", func(context.Context, string) error { return ojs.Discard(errBoom) })
		sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"workflow.*"}})
		defer sub.Close()
		b.start(workflow.New("", workflow.Saga(workflow.Compensate, step("a"))))
		b.run(time.Minute)
		const want = "created, started a, step_failed a, compensating, compensated a"
		if got := told(heard(sub)); got != want {
			t.Errorf("published %s\nwant %s", got, want)
		}
	})
}

// W094: the events of workflows that are cancelled or retried, and those of a step that
// was added.
func TestEventsOfCalls(t *testing.T) {
	inBubble(t, func(b *rig) {
		fails := true
		b.handle("x", func(ctx context.Context, step string) error {
			if step == "add" {
				_, err := workflow.Add(ctx, workflow.Step("more", ojs.NewDraft("x", nil)))
				return err
			}
			if step == "add/more" && fails {
				return ojs.Discard(errBoom)
			}
			return nil
		})
		sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"workflow.*"}})
		defer sub.Close()
		id := b.start(workflow.New("w", workflow.Chain(adder("add"), step("b"))))
		b.run(time.Minute)
		events := heard(sub)
		const first = "created, started add, step_completed add, step_failed add/more, failed add/more"
		if got := told(events); got != first {
			t.Errorf("published %s", got)
		}
		for _, ev := range events {
			if w := ev.Workflow; w.Name != "w" || w.Shape != "chain" {
				t.Errorf("%s is of %q, a %s", ev.Type, w.Name, w.Shape)
			}
		}
		fails = false
		must(t, b.Workflows().Retry(b.ctx, id))
		b.run(time.Minute)
		const again = "retried, step_completed add/more, step_completed b, completed"
		if got := told(heard(sub)); got != again {
			t.Errorf("published after the retry %s", got)
		}

		id = b.start(workflow.New("", workflow.Chain(step("a"), step("b"))))
		must(t, b.Workflows().Cancel(b.ctx, id))
		b.run(time.Minute)
		if got := told(heard(sub)); got != "created, cancelled" {
			t.Errorf("published of a cancelled one %s", got)
		}
		// A step that is cancelled by itself has failed.
		id = b.start(workflow.New("", workflow.Group(step("a"), step("b"))))
		must(t, b.Cancel(b.ctx, b.status(id).Step("a").JobID))
		b.run(time.Minute)
		const cancelled = "created, step_failed a, job_failed a, started b, step_completed b, " +
			"job_completed b, failed a"
		if got := told(heard(sub)); got != cancelled {
			t.Errorf("published of one with a cancelled step %s", got)
		}
	}, engine.WithConcurrency(1))
}

// W090 W091 W092: the envelopes.
func TestEventData(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", func(_ context.Context, step string) error {
			pace.Virtual(time.Second)
			if step == "b" {
				return ojs.Discard(errBoom)
			}
			return nil
		})
		sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"workflow.*"}})
		defer sub.Close()
		id := b.start(workflow.New("w", workflow.Chain(step("a"), step("b"), step("c"))))
		b.run(time.Minute)
		s := b.status(id)
		const of = `"workflow_id":%q,"workflow_name":"w","workflow_type":"chain"`
		const failure = `"error":{"code":"HANDLER_ERROR","message":"boom","type":"error"}`
		a, c := s.Step("a").JobID, s.Step("b").JobID
		want := []string{
			fmt.Sprintf(`{"total_steps":3,`+of+`}`, id),
			fmt.Sprintf(`{"total_steps":3,`+of+`}`, id),
			fmt.Sprintf(`{"duration_ms":1000,"job_id":%q,"remaining_steps":2,"step_id":"a","step_index":0,`+
				`"step_type":"x","steps_remaining":2,`+of+`}`, a, id),
			fmt.Sprintf(`{`+failure+`,"job_id":%q,"step_id":"b","step_index":1,"step_type":"x",`+of+`}`,
				c, id),
			fmt.Sprintf(`{"duration_ms":2000,`+failure+`,"failed_step_id":"b","failed_step_type":"x",`+
				`"total_steps":3,`+of+`}`, id),
		}
		events := heard(sub)
		for i, ev := range events {
			data, err := json.Marshal(ev.Data())
			must(t, err)
			if i >= len(want) || string(data) != want[i] {
				t.Errorf("%s has %s", ev.Type, data)
			}
		}
		if len(events) != len(want) {
			t.Errorf("%d events, not %d", len(events), len(want))
		}
	}, engine.WithConcurrency(1))
}

// W090 W091 W093: the data of a callback, of a success and of a cancellation.
func TestEventDataOfEnds(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", func(context.Context, string) error {
			pace.Virtual(time.Second)
			return nil
		})
		sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.WorkflowCallbackFired,
			event.WorkflowCompleted, event.WorkflowCancelled}})
		defer sub.Close()
		part := workflow.Batch(step("a"), workflow.OnSuccess(ojs.NewDraft("x", nil)).Named("b"))
		id := b.start(workflow.New("", part))
		b.run(time.Minute)
		cancelled := b.start(workflow.New("", part))
		must(t, b.Workflows().Cancel(b.ctx, cancelled))
		b.run(0)
		const of = `"workflow_id":%q,"workflow_name":"","workflow_type":"batch"`
		want := []string{
			fmt.Sprintf(`{"callback":"on_success","job_id":%q,"step_id":"b","step_index":1,"step_type":"x",`+of+`}`,
				b.status(id).Step("b").JobID, id),
			fmt.Sprintf(`{"duration_ms":2000,"total_steps":2,`+of+`}`, id),
			fmt.Sprintf(`{`+of+`}`, cancelled),
		}
		var got []string
		for _, ev := range heard(sub) {
			data, err := json.Marshal(ev.Data())
			must(t, err)
			got = append(got, string(data))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}, engine.WithConcurrency(1))
}

// W092: the members of steps that run side by side, and of those that Add has added, have
// their places, and nothing says how many are left.
func TestEventPlaces(t *testing.T) {
	inBubble(t, func(b *rig) {
		b.handle("x", func(ctx context.Context, step string) error {
			x := ojs.NewDraft("x", nil)
			var part workflow.Part
			switch step {
			case "add":
				part = workflow.Chain(workflow.Step("a", x), workflow.Step("b", x))
			case "group":
				part = workflow.Chain(workflow.Group(workflow.Step("c", x), workflow.Step("d", x)),
					workflow.Step("e", x))
			default:
				return nil
			}
			_, err := workflow.Add(ctx, part)
			return err
		})
		sub := b.Subscribe(engine.EventFilter{Types: []event.Type{event.WorkflowJobCompleted}})
		defer sub.Close()
		b.start(workflow.New("", workflow.Group(step("one"), step("two"), adder("add"))))
		b.run(time.Minute)
		b.start(workflow.New("", workflow.Chain(step("three"), adder("group"), step("four"))))
		b.run(time.Minute)
		want := []string{"one 0", "two 1", "add 2", "add/a 0", "add/b 1", "group/c 0", "group/d 1"}
		var got []string
		for _, ev := range heard(sub) {
			data := ev.Data()
			got = append(got, fmt.Sprint(data["step_id"], " ", data["step_index"]))
			_, left := data["steps_remaining"]
			if _, ms := data["duration_ms"]; left || !ms || data["job_id"] == nil {
				t.Errorf("%v", data)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, not %v", got, want)
		}
	}, engine.WithConcurrency(1))
}

// checkEvents returns what is wrong with the events of a workflow from a first one to its
// end. Events of different steps have no order: their calls may overlap. before is what
// the workflow was before that, nil if it is new.
func checkEvents(events []event.Event, first event.Type, s, before *workflow.Status) string {
	end := event.Type("workflow." + string(s.State))
	if len(events) < 2 || events[0].Type != first {
		return fmt.Sprintf("a workflow that is %s has the events %s", s.State, told(events))
	}
	seen := make(map[string]event.Type) // of steps
	count := make(map[event.Type]int)
	for _, ev := range events {
		count[ev.Type]++
		switch ev.Type {
		case event.WorkflowStepCompleted, event.WorkflowStepFailed:
			if seen[ev.Workflow.Step] != "" {
				return fmt.Sprintf("step %s ends twice in %s", ev.Workflow.Step, told(events))
			}
			seen[ev.Workflow.Step] = ev.Type
		case event.WorkflowCallbackFired:
			if seen[ev.Workflow.Step] != "" {
				return fmt.Sprintf("callback %s ends before it fires in %s", ev.Workflow.Step, told(events))
			}
		}
	}
	for i := range s.Steps {
		p := &s.Steps[i]
		want := map[ojs.State]event.Type{ojs.StateCompleted: event.WorkflowStepCompleted,
			ojs.StateDiscarded: event.WorkflowStepFailed}[p.State()]
		if before != nil {
			if was := before.Step(p.Name); was != nil && was.State() == p.State() && seen[p.Name] == "" {
				want = "" // it has not run again
			}
		}
		if seen[p.Name] != want {
			return fmt.Sprintf("step %s, which is %s, has the event %q", p.Name, p.State(), seen[p.Name])
		}
	}
	ends := count[event.WorkflowCompleted] + count[event.WorkflowFailed] +
		count[event.WorkflowCompensated] + count[event.WorkflowCancelled]
	if count[first] != 1 || count[end] != 1 || ends != 1 || count[event.WorkflowStarted] > 1 ||
		count[event.WorkflowCompensating] > 1 {
		return fmt.Sprintf("a workflow that is %s has the events %s", s.State, told(events))
	}
	return ""
}
