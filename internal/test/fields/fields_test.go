package fields_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

func TestDiffNamesTheFields(t *testing.T) {
	var a storage.Record
	a.ID, a.Retry.MaxInterval = "id", 5*time.Minute
	a.Unique = &ojs.UniquePolicy{Period: time.Hour, States: []ojs.State{ojs.StateActive}}
	a.Meta = map[string]any{"l": []any{1.0}, "k": "v"}
	b := fields.Clone(a)
	if d := fields.Diff(a, b); len(d) != 0 {
		t.Fatal(d)
	}
	b.Retry.MaxInterval, b.Unique.States[0] = 7*time.Second, ojs.StateRetryable
	b.Meta["l"].([]any)[0] = 2.0
	delete(b.Meta, "k")
	b.RateLimit, b.FinishedAt = &ojs.RateLimit{Key: "k"}, time.Unix(1, 0).UTC()
	want := []string{
		`Meta["k"]: "v", want none`,
		`Meta["l"][0]: 1, want 2`,
		"Retry.MaxInterval: 5m0s, want 7s",
		`RateLimit: nil, want {Key: "k"}`,
		fmt.Sprintf("Unique.States[0]: %q, want %q", ojs.StateActive, ojs.StateRetryable),
		"FinishedAt: no time, want 1970-01-01T00:00:01Z",
	}
	if got := fields.Diff(a, b); !reflect.DeepEqual(got, want) {
		t.Errorf("\ngot  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// Scribble on a copy changes every leaf of a full record, and no field of the original.
func TestScribble(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r storage.Record
		fields.Filler{Full: true}.Fill(t, &r)
		before, c := fields.Clone(r), fields.Clone(r)
		fields.Scribble(&c)
		if d := fields.Diff(r, before); len(d) != 0 {
			t.Fatalf("a copy shares %q", d)
		}
		for _, l := range fields.Leaves(reflect.TypeOf(r)) {
			a, ok := l.In(reflect.ValueOf(&r).Elem())
			b, _ := l.In(reflect.ValueOf(&c).Elem())
			if ok && l.Path != "Args" && len(fields.Diff(a.Interface(), b.Interface())) == 0 {
				t.Fatalf("%s is as it was", l.Path)
			}
		}
	})
}

// The copies that storages make of a job and of a recurring entry share nothing with it,
// in any field.
func TestCopiesShareNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r storage.Record
		fields.Filler{}.Fill(t, &r)
		before, c := fields.Clone(r), r.Copy()
		if d := fields.Diff(c, before); len(d) != 0 {
			t.Fatalf("Record.Copy changes %q", d)
		}
		fields.Scribble(&c)
		if d := fields.Diff(r, before); len(d) != 0 {
			t.Fatalf("Record.Copy shares %q", d)
		}
		var e storage.Cron
		fields.Filler{}.Fill(t, &e)
		entry, d := fields.Clone(e), e.Copy()
		if d := fields.Diff(d, entry); len(d) != 0 {
			t.Fatalf("Cron.Copy changes %q", d)
		}
		fields.Scribble(&d)
		if d := fields.Diff(e, entry); len(d) != 0 {
			t.Fatalf("Cron.Copy shares %q", d)
		}
	})
}

func TestUnknownTypesFail(t *testing.T) {
	for _, v := range []any{
		new(struct{ C chan int }), new(struct{ F func() }), new(struct{ M map[int]int }),
	} {
		func() {
			defer func() {
				if p := recover(); !strings.Contains(fmt.Sprint(p), "no values for a") {
					t.Errorf("%T: %v", v, p)
				}
			}()
			rapid.Custom(func(t *rapid.T) int { fields.Filler{}.Fill(t, v); return 0 }).Example(1)
		}()
	}
}
