package engine_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage/memory"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A member is found however its value is written.
func TestMembersAreFoundHoweverTheyAreWritten(t *testing.T) {
	inBubble(t, func(b *rig) {
		for raw, values := range map[string][]string{
			`{"n":42}`: {"42", "42.0", "4.2e1"}, `{"n":4.2e1}`: {"42"}, `{"n":42.0}`: {"42"},
			`{"n":-0}`:        {"0"},
			`{"n":"a\u0062"}`: {"ab"}, `{"n":"\\"}`: {`\`}, `{"n":9007199254740993}`: {"9007199254740993"},
			`{"n":{"x":[1, 2]}}`: {`{"x":[1,2]}`}, `{"n":null}`: {"null"}, `{"n":"NaN"}`: {"NaN"},
			`{"n":0.5}`: {"0.50", "5e-1"},
		} {
			id, err := b.Enqueue(b.ctx, "x", json.RawMessage(raw))
			must(t, err)
			for _, value := range values {
				f := inspect.Filter{Members: []inspect.Member{{Path: "args.n", Value: value}}}
				if got := b.listed(f); !slices.Contains(got, id.ID) {
					t.Errorf("%s is not found in %s", value, raw)
				}
			}
		}
	})
}

// Jobs are found by the version of their type and by their ordering key.
func TestFilterByVersionAndKey(t *testing.T) {
	eng, err := engine.New[any](memory.New(), quiet)
	must(t, err)
	old := ojs.Define[int]("a")
	tickets, err := eng.EnqueueMany(t.Context(),
		old.New(1), old.New(2, ojs.WithOrderingKey("order-7")),
		old.New(3, ojs.WithVersion("2.1"), ojs.WithOrderingKey("order-8")),
	)
	must(t, err)
	for line, want := range map[string][]int{
		"version:2.1": {2}, "version:2.*": {2}, "version:3.*": nil,
		"key:order-7": {1}, "key:order-*": {1, 2}, "key:order-7 version:2.1": nil,
	} {
		f, err := inspect.Parse(line, noon)
		must(t, err)
		var got []int
		for job, err := range eng.Jobs().List(t.Context(), f) {
			must(t, err)
			is := func(ticket ojs.Ticket) bool { return ticket.ID == job.ID }
			got = append(got, slices.IndexFunc(tickets, is))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s selects %v, not %v", line, got, want)
		}
	}
}
