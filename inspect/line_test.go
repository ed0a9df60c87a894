package inspect_test

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestParse(t *testing.T) {
	for line, want := range map[string]inspect.Filter{
		"":   {},
		"  ": {},
		"state:discarded type:email.* error:smtp tag:vip args.user:42 since:1h": {
			States: []ojs.State{ojs.StateDiscarded}, Types: []string{"email.*"}, Error: "smtp",
			Tags: []string{"vip"}, Members: []inspect.Member{{Path: "args.user", Value: "42"}},
			CreatedFrom: noon.Add(-time.Hour),
		},
		"queue:a queue:b id:0196* worker:w-1 cron:nightly dead:true order:finished": {
			Queues: []string{"a", "b"}, IDs: []string{"0196*"}, Workers: []string{"w-1"},
			Crons:        []string{"nightly"},
			DeadLettered: true, Order: inspect.OrderFinished,
		},
		"workflow:0196": {Workflow: "0196"},
		"version:2.0 version:3.* key:order-7 fingerprint:a5*": {
			Versions: []string{"2.0", "3.*"}, Keys: []string{"order-7"}, Fingerprints: []string{"a5*"},
		},
		"priority:5 attempt:2..": {Priority: &inspect.Range{Min: 5, Max: 5},
			Attempt: &inspect.Range{Min: 2, Max: math.MaxInt}},
		"priority:..-1":  {Priority: &inspect.Range{Min: math.MinInt, Max: -1}},
		"priority:-3..4": {Priority: &inspect.Range{Min: -3, Max: 4}},
		`error:"connection reset" meta."a b":"" args:"\"n\":1"`: {
			Error: "connection reset", Members: []inspect.Member{}, Args: `"n":1`,
		},
		`"meta.a b":"" errortype:smtp.*`: {Members: []inspect.Member{{Path: "meta.a b", Value: ""}},
			ErrorTypes: []string{"smtp.*"}},
		"since:2026-02-01 until:2026-02-02T03:04:05+01:00 due.until:+2h finished.since:7d": {
			CreatedFrom:   time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC),
			CreatedBefore: time.Date(2026, 2, 2, 2, 4, 5, 0, time.UTC),
			DueBefore:     noon.Add(2 * time.Hour), FinishedFrom: noon.AddDate(0, 0, -7),
		},
	} {
		got, err := inspect.Parse(line, noon)
		if want.Members != nil && len(want.Members) == 0 { // a quote in the middle of a key is no quote
			if err == nil {
				t.Errorf("%s: no error, but %+v", line, got)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n\t%+v, not\n\t%+v", line, err, got, want)
		}
	}
}

func TestParseSaysWhere(t *testing.T) {
	for line, want := range map[string]struct {
		column int
		reason string
	}{
		"type:a smtp":           {8, `"smtp" is no term: write key:value, such as error:smtp`},
		"é:1":                   {1, `"é" is no key: use one of state, queue, type, `},
		`error:"é" stat:x`:      {11, `"stat" is no key: `},
		"type:a state:lost":     {14, `state: "lost" is none of `},
		`type:"a`:               {6, "a quote that does not end"},
		`type:"a"b`:             {9, "a space is missing after the quote"},
		"priority:high":         {10, `priority: "high" is no number and no range`},
		"priority:5..1":         {10, `priority: "5..1" is no number and no range`},
		"priority:..":           {10, `priority: ".." is no number and no range`},
		"since:yesterday":       {7, `since: "yesterday" is no time: write 2026-03-01`},
		"since:1h since:2h":     {16, "since: is given twice"},
		"order:oldest":          {7, `order: "oldest" is none of newest, finished, due and claim`},
		"dead:no":               {6, `dead: "no" is not true`},
		"type:":                 {6, "type: has no value"},
		"args.:1":               {1, `"args." is no key`},
		"order:due order:claim": {17, "order: is given twice"},
	} {
		_, err := inspect.Parse(line, noon)
		var at *inspect.FilterError
		if !errors.As(err, &at) || !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if at.Column != want.column || len(at.Reason) < len(want.reason) ||
			at.Reason[:len(want.reason)] != want.reason {
			t.Errorf("%s: column %d: %s", line, at.Column, at.Reason)
		}
	}
}

func drawFilter(t *rapid.T) (f inspect.Filter) {
	text := rapid.OneOf(rapid.SampledFrom([]string{"a", "*", `"`, `a"b`, "a b", "x:y", "\xff", "é", "\t",
		"..", `\`}),
		rapid.StringN(1, 5, 20))
	list := func(name string) []string {
		if l := rapid.SliceOfN(text, 0, 2).Draw(t, name); len(l) > 0 {
			return l
		}
		return nil
	}
	at := func(name string) time.Time {
		if rapid.Bool().Draw(t, name+" is set") {
			return time.Unix(rapid.Int64Range(-6e10, 2e11).Draw(t, name),
				rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC()
		}
		return time.Time{}
	}
	ends := func(name string) *inspect.Range {
		r := inspect.Range{Min: math.MinInt, Max: math.MaxInt}
		kind := rapid.IntRange(0, 3).Draw(t, name+" kind")
		if kind&1 != 0 {
			r.Min = rapid.IntRange(-9, 9).Draw(t, name)
		}
		if kind&2 != 0 {
			r.Max = max(r.Min, 0) + rapid.IntRange(0, 9).Draw(t, name)
		}
		if kind == 0 {
			return nil
		}
		return &r
	}
	if l := rapid.SliceOfN(rapid.SampledFrom(ojs.AllStates()), 0, 2).Draw(t, "states"); len(l) > 0 {
		f.States = l
	}
	f.Queues, f.Types, f.ErrorTypes, f.IDs = list("queues"), list("types"), list("error types"), list("ids")
	f.Tags, f.Workers, f.Crons = list("tags"), list("workers"), list("crons")
	f.Versions, f.Keys, f.Fingerprints = list("versions"), list("keys"), list("fingerprints")
	f.DeadLettered = rapid.Bool().Draw(t, "dead")
	if rapid.Bool().Draw(t, "texts") {
		f.Error, f.Args = text.Draw(t, "error"), text.Draw(t, "args")
	}
	for range rapid.IntRange(0, 2).Draw(t, "members") {
		prefix := rapid.SampledFrom([]string{"args.", "meta."}).Draw(t, "of")
		f.Members = append(f.Members, inspect.Member{Path: prefix + text.Draw(t, "path"),
			Value: rapid.String().Draw(t, "value")})
	}
	f.Priority, f.Attempt = ends("priority"), ends("attempt")
	f.CreatedFrom, f.CreatedBefore = at("created from"), at("created before")
	f.FinishedFrom, f.FinishedBefore = at("finished from"), at("finished before")
	f.DueFrom, f.DueBefore = at("due from"), at("due before")
	f.Order = rapid.SampledFrom([]inspect.Order{"", inspect.OrderNewest, inspect.OrderFinished,
		inspect.OrderDue, inspect.OrderClaim}).Draw(t, "order")
	return f
}

// Every filter is the filter that its line is read as.
func TestFilterRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFilter(t)
		got, err := inspect.Parse(f.String(), noon)
		if err != nil || !reflect.DeepEqual(got, f) {
			t.Fatalf("%s: %v\n\t%+v, not\n\t%+v", f, err, got, f)
		}
	})
}

// A line that is read as a filter says the same as the filter's line.
func FuzzParse(f *testing.F) {
	for _, line := range []string{"state:active", `error:"a b" since:1h`, "priority:1..2 meta.a:1",
		`"args.x":"\xff"`} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		first, err := inspect.Parse(line, noon)
		if err != nil {
			if at := new(inspect.FilterError); !errors.As(err, &at) || at.Column < 1 ||
				at.Column > len([]rune(line))+1 {
				t.Fatalf("%q: %v", line, err)
			}
			return
		}
		again, err := inspect.Parse(first.String(), noon.Add(time.Hour))
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Fatalf("%q: %v\n\t%+v\n\t%+v", line, err, first, again)
		}
	})
}
