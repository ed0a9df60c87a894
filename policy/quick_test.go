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

// The quick way to a fingerprint says the same as the long one, or nothing.
func TestQuickFingerprint(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "a!", "a b", "ab", "A", "", "z9", "\u00e9", "a\"b", "~"})
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			most := 8
			if depth == 0 {
				most = 6
			}
			switch rapid.IntRange(0, most).Draw(t, "kind") {
			case 0:
				return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "literal")
			case 1:
				return fmt.Sprint(rapid.Int64().Draw(t, "int"))
			case 2:
				return rapid.SampledFrom([]string{"0", "-0", "1.0", "1e3", "-1.5", "123456789012345678901234567890", "1e400", strings.Repeat("9", 301), strings.Repeat("9", 400)}).Draw(t, "number")
			case 3, 4, 5, 6:
				b, _ := json.Marshal(rapid.OneOf(names, rapid.StringMatching("[ -~]*"), rapid.String()).Draw(t, "string"))
				return string(b)
			case 7:
				return "[" + strings.Join(rapid.SliceOfN(value(depth-1), 0, 4).Draw(t, "list"), ",") + "]"
			}
			var members []string
			for _, name := range rapid.SliceOfN(names, 0, 20).Draw(t, "names") {
				b, _ := json.Marshal(name)
				members = append(members, string(b)+":"+value(depth-1).Draw(t, "member"))
			}
			return "{" + strings.Join(members, ",") + "}"
		})
	}
	said := 0
	rapid.Check(t, func(t *rapid.T) {
		args, err := ojs.NewArgs(json.RawMessage(value(3).Draw(t, "args")))
		if err != nil {
			t.Skip(err)
		}
		p := ojs.UniquePolicy{Keys: rapid.SampledFrom([]ojs.UniqueKeys{0, ojs.ByArgs, ojs.ByQueue, ojs.ByArgs | ojs.ByQueue}).Draw(t, "keys")}
		if p.Keys&ojs.ByArgs == 0 {
			p.Key = rapid.SampledFrom([]string{"", "k", "\u00e9", "\\"}).Draw(t, "key")
		}
		job := ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "mail.send", Queue: "q-1"}, Args: args}
		quick, ok := policy.Quick(nil, &p, &job)
		if !ok {
			return
		}
		said++
		long, err := policy.Canonical(&p, &job)
		if err != nil || string(quick) != string(long) {
			t.Fatalf("%s: quick says %s, else %s, %v", args, quick, long, err)
		}
	})
	if said == 0 {
		t.Error("the quick way was never taken")
	}
}

func TestFingerprintCostsLittle(t *testing.T) {
	args, err := ojs.NewArgs(struct {
		To string
		N  int
	}{"ada@example.com", 7})
	if err != nil {
		t.Fatal(err)
	}
	p := ojs.UniquePolicy{Keys: ojs.ByArgs | ojs.ByQueue}
	job := ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "mail.send", Queue: "q-1"}, Args: args}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := policy.Fingerprint(&p, &job); err != nil {
			t.Fatal(err)
		}
	}); n > 3 {
		t.Errorf("%v allocations", n)
	}
}
