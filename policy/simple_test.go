package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// sameSimply holds the way without a library to the way with one. It reports whether the
// first was taken.
func sameSimply(t interface{ Errorf(string, ...any) }, p *ojs.UniquePolicy, job *ojs.JobInfo) bool {
	got, ok := policy.Simple(p, job)
	if !ok {
		return false
	}
	if want, err := policy.Canonical(p, job); err != nil || got != string(want) {
		t.Errorf("%+v of %s:\n got %s\nwant %s, %v", p, job.Args, got, want, err)
	}
	return true
}

// someJSON draws JSON, compact and mostly simple.
func someJSON(t *rapid.T, depth int) string {
	kinds := []string{"object", "object", "list", "string", "int", "literal", "number"}
	if depth == 0 {
		kinds = kinds[3:]
	}
	text := rapid.OneOf(
		rapid.StringMatching(`[a-cA-C_ ~]{0,3}`),
		rapid.SampledFrom([]string{`\n`, `\u0061`, "é", "\u212a", "K", "\x7f", `\"`, "e\u0301"}),
	)
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "object":
		var members []string
		for range rapid.IntRange(0, 5).Draw(t, "members") {
			members = append(members, `"`+text.Draw(t, "name")+`":`+someJSON(t, depth-1))
		}
		return "{" + strings.Join(members, ",") + "}"
	case "list":
		var elems []string
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			elems = append(elems, someJSON(t, depth-1))
		}
		return "[" + strings.Join(elems, ",") + "]"
	case "string":
		return `"` + text.Draw(t, "string") + `"`
	case "int":
		return fmt.Sprint(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3)).Draw(t, "int"))
	case "literal":
		return rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "literal")
	}
	return rapid.SampledFrom([]string{"-0", "1.0", "1e3", "0.5", "1E400", "999999999999999",
		"1000000000000000", "-9007199254740993"}).Draw(t, "number")
}

func TestSimpleIsCanonical(t *testing.T) {
	simple, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		raw := someJSON(t, 3)
		args, err := ojs.NewArgs(json.RawMessage(raw))
		if err != nil {
			return
		}
		job := &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "a.b", Queue: "q"}, Args: args}
		for _, p := range []ojs.UniquePolicy{
			{}, {Keys: ojs.ByType}, {Keys: ojs.ByArgs}, {Keys: ojs.ByArgs | ojs.ByQueue}, {Key: "k\u00e9y"},
			{Key: "key"}, {Keys: ojs.ByType | ojs.ByQueue},
			{ArgsKeys: []string{"a"}}, {ArgsKeys: []string{"b", "a"}}, {ArgsKeys: []string{}},
			{ArgsKeys: []string{"a", "a"}}, {ArgsKeys: []string{"\u212a"}}, {ArgsKeys: []string{"K"}},
			{ArgsKeys: []string{"a"}, Keys: ojs.ByType}, {Keys: ojs.ByMeta, MetaKeys: []string{"m"}},
		} {
			if p.Validate() != nil {
				continue
			}
			all++
			if sameSimply(t, &p, job) {
				simple++
			}
		}
	})
	if simple*5 < all {
		t.Errorf("only %d of %d took the simple way", simple, all)
	}
}

// The bounds of what is simple, from both sides.
func TestSimpleBounds(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + "1" + strings.Repeat("]", n) }
	members := func(n int) string {
		var m []string
		for i := range n {
			m = append(m, fmt.Sprintf(`"m%02d":%d`, n-i, i))
		}
		return "{" + strings.Join(m, ",") + "}"
	}
	for raw, want := range map[string]bool{
		`{"to":"a@b.c","n":7}`: true, `[]`: true, `null`: true, `"x"`: true, `-12`: true, `0`: true,
		`true`: true, `{}`: true, `[{},[],""]`: true,
		`{"b":1,"a":{"d":1,"c":2}}`: true, `{"a":1,"a":2}`: false, `{"b":1,"a":2,"b":3}`: false, `"é"`: false,
		`"\u0061"`: false, `-0`: false, `1.5`: false,
		`123456789012345`: true, `1234567890123456`: false, nested(7): true, nested(8): false,
		members(16): true, members(17): false,
	} {
		args, err := ojs.NewArgs(json.RawMessage(raw))
		if err != nil {
			t.Fatal(err)
		}
		job := &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "x"}, Args: args}
		if got := sameSimply(t, &ojs.UniquePolicy{Keys: ojs.ByArgs}, job); got != want {
			t.Errorf("%s is simple: %t", raw, got)
		}
	}
}

// A name that occurs twice is refused, whether it is asked for or not.
func TestSimpleRefusesDuplicates(t *testing.T) {
	for _, raw := range []string{`{"":{},"":{},"K":{}}`, `{"K":1,"a":1,"a":2}`, `{"b":1,"K":1,"b":2}`} {
		args, err := ojs.NewArgs(json.RawMessage(raw))
		if err != nil {
			t.Fatal(err)
		}
		job := &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "x"}, Args: args}
		if text, ok := policy.Simple(&ojs.UniquePolicy{ArgsKeys: []string{"K"}}, job); ok {
			t.Errorf("%s becomes %s", raw, text)
		}
		if _, err := policy.Fingerprint(&ojs.UniquePolicy{ArgsKeys: []string{"K"}}, job); err == nil {
			t.Errorf("%s has a fingerprint", raw)
		}
	}
}

func BenchmarkFingerprint(b *testing.B) {
	args, err := ojs.NewArgs(json.RawMessage(`{"id":7,"name":"Ada Lovelace"}`))
	if err != nil {
		b.Fatal(err)
	}
	job := &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "user.sync"}, Args: args}
	for name, p := range map[string]*ojs.UniquePolicy{"args": {Keys: ojs.ByArgs},
		"one member": {ArgsKeys: []string{"id"}}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := policy.Fingerprint(p, job); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+" by the library", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := policy.Canonical(p, job); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
