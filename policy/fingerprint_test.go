package policy_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// vectors are computed by two independent implementations that agree
// (testdata/fingerprint_vectors.json).
type vectors struct {
	Vectors []struct {
		ID, Title, Job, Canonical, SHA256 string
		CanonicalHex                      string `json:"canonical_utf8_hex"`
		SameAsJob                         string `json:"same_as_job"`
		Policy                            json.RawMessage
	}
	Errors []struct {
		ID, Title, Job string
		Policy         json.RawMessage
	}
	Numbers   []struct{ IEEE754, JSON string }
	Durations []struct {
		S     string
		Valid bool
	}
}

func load(t *testing.T) (v vectors) {
	t.Helper()
	raw, err := os.ReadFile("testdata/fingerprint_vectors.json")
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// vectorJob makes a job of a vector's JSON, whose args may be an object.
func vectorJob(t *testing.T, text string) *ojs.JobInfo {
	t.Helper()
	var w struct {
		Type, Queue string
		Args        json.RawMessage
		Meta        map[string]any
	}
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	if w.Queue == "" {
		w.Queue = ojs.DefaultQueue
	}
	args, err := ojs.NewArgs(w.Args)
	if err != nil {
		t.Fatal(err)
	}
	return &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: w.Type, Queue: w.Queue, Meta: w.Meta}, Args: args}
}

func TestFingerprintVectors(t *testing.T) {
	all := load(t)
	if len(all.Vectors) < 19 || len(all.Errors) < 18 || len(all.Numbers) < 12 {
		t.Fatalf("only %d vectors, %d errors, %d numbers", len(all.Vectors), len(all.Errors),
			len(all.Numbers))
	}
	for _, v := range all.Vectors {
		t.Run("C036 C040 "+v.ID+" "+v.Title, func(t *testing.T) {
			var p ojs.UniquePolicy
			if err := json.Unmarshal(v.Policy, &p); err != nil {
				t.Fatal(err)
			}
			text, err := policy.Canonical(&p, vectorJob(t, v.Job))
			sameSimply(t, &p, vectorJob(t, v.Job))
			if err != nil || v.Canonical != "" && string(text) != v.Canonical {
				t.Errorf("canonical\n got %s, %v\nwant %s", text, err, v.Canonical)
			}
			if v.CanonicalHex != "" && hex.EncodeToString(text) != v.CanonicalHex {
				t.Errorf("canonical bytes %x, want %s", text, v.CanonicalHex)
			}
			if got, err := policy.Fingerprint(&p, vectorJob(t, v.Job)); err != nil || got != v.SHA256 {
				t.Errorf("C034 C035 C037: %s, %v, want %s", got, err, v.SHA256)
			}
			if v.SameAsJob != "" {
				if got, err := policy.Fingerprint(&p, vectorJob(t, v.SameAsJob)); err != nil ||
					got != v.SHA256 {
					t.Errorf("%s has %s, %v", v.SameAsJob, got, err)
				}
			}
		})
	}
	for _, e := range all.Errors {
		t.Run("C011 "+e.ID+" "+e.Title, func(t *testing.T) {
			var p ojs.UniquePolicy
			err := json.Unmarshal(e.Policy, &p)
			if err == nil {
				_, err = policy.Fingerprint(&p, vectorJob(t, e.Job))
			}
			var inv *ojs.InvalidError
			if !errors.As(err, &inv) || inv.Code != ojs.InvalidCodeUnique || inv.Field == "" ||
				inv.Reason == "" {
				t.Errorf("%v", err)
			}
		})
	}
	for _, n := range all.Numbers {
		t.Run("C033 RFC 8785 appendix B "+n.IEEE754, func(t *testing.T) {
			bits, err := strconv.ParseUint(n.IEEE754, 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			f := math.Float64frombits(bits)
			text, err := policy.Canonical(&ojs.UniquePolicy{Keys: ojs.ByArgs},
				&ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "x"},
					Args: args(t, json.RawMessage(strconv.FormatFloat(f, 'e', -1, 64)))})
			want := `{"args":[` + n.JSON + `],"type":"x"}`
			if math.IsNaN(f) || math.IsInf(f, 0) {
				return // no JSON number is one
			}
			if err != nil || string(text) != want {
				t.Errorf("%s, %v, want %s", text, err, want)
			}
		})
	}
	for _, d := range all.Durations {
		t.Run("C069 C070 C116 period "+d.S, func(t *testing.T) {
			raw, _ := json.Marshal(map[string]string{"period": d.S})
			var p ojs.UniquePolicy
			if err := json.Unmarshal(raw, &p); (err == nil) != d.Valid {
				t.Errorf("%v, valid %v", err, d.Valid)
			}
		})
	}
}

func args(t *testing.T, v any) ojs.Args {
	t.Helper()
	a, err := ojs.NewArgs(v)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestFingerprint(t *testing.T) {
	of := func(t *testing.T, p ojs.UniquePolicy, jobType, queue string, v any, meta map[string]any) string {
		t.Helper()
		fp, err := policy.Fingerprint(&p,
			&ojs.JobInfo{JobHeader: ojs.JobHeader{Type: jobType, Queue: queue, Meta: meta}, Args: args(t, v)})
		if err != nil {
			t.Fatal(err)
		}
		return fp
	}
	type user struct {
		ID   int64 `json:"user_id"`
		Lang string
	}
	same := func(name string, want bool, a, b string) {
		if (a == b) != want {
			t.Errorf("%s: equal %v", name, a == b)
		}
	}
	all, some := ojs.UniquePolicy{Keys: ojs.ByArgs},
		ojs.UniquePolicy{Keys: ojs.ByArgs, ArgsKeys: []string{"user_id"}}
	zero := ojs.UniquePolicy{}
	same("C005 C013 C019 C027 the type alone", true, of(t, zero, "x", "a", 1, nil),
		of(t, zero, "x", "b", 2, map[string]any{"m": 1}))
	same("C014 C135 types never collide", false, of(t, all, "email.send", "a", 1, nil),
		of(t, all, "sms.send", "a", 1, nil))
	same("C020 queues are distinct if they count", false, of(t, ojs.UniquePolicy{Keys: ojs.ByQueue}, "x", "a",
		1, nil), of(t, ojs.UniquePolicy{Keys: ojs.ByQueue}, "x", "b", 1, nil))
	same("C021 and not otherwise", true, of(t, all, "x", "a", 1, nil), of(t, all, "x", "b", 1, nil))
	same("C022 whole args", false, of(t, all, "x", "a", user{42, "de"}, nil),
		of(t, all, "x", "a", user{42, "en"}, nil))
	same("C006 C023 C028 named members only", true, of(t, some, "x", "a", user{42, "de"}, nil),
		of(t, some, "x", "a", user{42, "en"}, nil))
	same("C023 of another value", false, of(t, some, "x", "a", user{42, "de"}, nil),
		of(t, some, "x", "a", user{43, "de"}, nil))
	same("C030 C031 C032 C038 order of names at every level", true,
		of(t, all, "x", "a", json.RawMessage(`{"a":{"c":1,"b":[1,{"y":1,"x":2}]},"b":2}`), nil),
		of(t, all, "x", "a", json.RawMessage(` { "b":2, "a":{"b":[1,{"x":2,"y":1}],"c":1}}`), nil))
	same("C039 normal form", true, of(t, all, "x", "a", "e\u0301", nil), of(t, all, "x", "a", "\u00e9", nil))
	// each has the other's NFKC
	for _, pair := range [][2]string{{"\ufb01", "fi"}, {"\uff21", "A"}, {"\u2460", "1"}, {"x\u00b2", "x2"},
		{"\u00bd", "1\u20442"}} {
		a, b := pair[0], pair[1]
		same("C039 the compatibility form is another value: "+b, false, of(t, all, "x", "a", a, nil),
			of(t, all, "x", "a", b, nil))
		same("C039 also within: "+b, false, of(t, all, "x", "a", []any{map[string]any{"k": []string{a}}},
			nil), of(t, all, "x", "a", []any{map[string]any{"k": []string{b}}}, nil))
		same("C039 and as a name: "+b, false, of(t, all, "x", "a", map[string]any{a: 1}, nil),
			of(t, all, "x", "a", map[string]any{b: 1}, nil))
		named := func(key string) ojs.UniquePolicy {
			return ojs.UniquePolicy{Keys: ojs.ByArgs | ojs.ByMeta, ArgsKeys: []string{key},
				MetaKeys: []string{key}}
		}
		same("C039 C132 and as a caller's key: "+b, false, of(t, ojs.UniquePolicy{Key: a}, "x", "a", 1, nil),
			of(t, ojs.UniquePolicy{Key: b}, "x", "a", 1, nil))
		both := map[string]any{a: 1, b: 2}
		same("C039 and as a key: "+b, false, of(t, named(a), "x", "a", both, both),
			of(t, named(b), "x", "a", both, both))
	}
	same("reading 24 a value and the list of it", true, of(t, all, "x", "a", user{42, "de"}, nil),
		of(t, all, "x", "a", []user{{42, "de"}}, nil))
	same("integers beyond 2^53 keep their digits", false, of(t, all, "x", "a", int64(9007199254740993), nil),
		of(t, all, "x", "a", int64(9007199254740992), nil))
	byMeta := ojs.UniquePolicy{MetaKeys: []string{"tenant_id"}}
	same("C007 C024 C025 C029 named meta only", true,
		of(t, byMeta, "x", "a", 1, map[string]any{"tenant_id": "t", "trace_id": 1}),
		of(t, byMeta, "x", "a", 2, map[string]any{"tenant_id": "t", "trace_id": 2}))
	same("C024 of another value", false, of(t, byMeta, "x", "a", 1, map[string]any{"tenant_id": "t"}),
		of(t, byMeta, "x", "a", 1, map[string]any{"tenant_id": "u"}))
	key := func(k string) ojs.UniquePolicy { return ojs.UniquePolicy{Key: k} }
	same("C132 a key of the caller's", true, of(t, key("k"), "x", "a", 1, nil),
		of(t, key("k"), "x", "a", 2, nil))
	same("C132 another key", false, of(t, key("k"), "x", "a", 1, nil), of(t, key("l"), "x", "a", 1, nil))
	same("C132 a key is no computed one", false, of(t, key("k"), "x", "a", 1, nil),
		of(t, zero, "x", "a", 1, nil))
	same("C071 period, states and conflict do not count", true, of(t, all, "x", "a", 1, nil),
		of(t, ojs.UniquePolicy{Keys: ojs.ByArgs, Period: time.Hour, States: ojs.AllStates(),
			OnConflict: ojs.ConflictIgnore}, "x", "a", 1, nil))
	same("reading 36 no named member at all", true, of(t, ojs.UniquePolicy{ArgsKeys: []string{}}, "x", "a", 1,
		nil), of(t, ojs.UniquePolicy{ArgsKeys: []string{}}, "x", "a", 2, nil))

	for name, tt := range map[string]struct {
		p     ojs.UniquePolicy
		args  any
		meta  map[string]any
		field string
	}{
		"C017 a member that is not there": {p: ojs.UniquePolicy{Keys: ojs.ByArgs,
			ArgsKeys: []string{"b"}}, args: json.RawMessage(`{"a":1}`), field: "unique.args_keys"},
		"reading 36 though args do not count": {p: ojs.UniquePolicy{Keys: ojs.ByType,
			ArgsKeys: []string{"b"}}, args: json.RawMessage(`{"a":1}`), field: "unique.args_keys"},
		"reading 24 positional args": {p: ojs.UniquePolicy{ArgsKeys: []string{"a"}},
			args: []int{1, 2}, field: "unique.args_keys"},
		"args that are no object": {p: ojs.UniquePolicy{ArgsKeys: []string{"a"}}, args: 7,
			field: "unique.args_keys"},
		"args that are a list of no object": {p: ojs.UniquePolicy{ArgsKeys: []string{"a"}},
			args: []int{7}, field: "unique.args_keys"},
		"reading 36 meta that is not there": {p: ojs.UniquePolicy{MetaKeys: []string{"m"}},
			field: "unique.meta_keys"},
		"C015 C016 C120 meta without its keys": {p: ojs.UniquePolicy{Keys: ojs.ByMeta},
			field: "unique.meta_keys"},
		"a string that is not UTF-8": {p: ojs.UniquePolicy{Keys: ojs.ByArgs}, args: "a\xff",
			field: "args"},
		"meta that is not UTF-8": {p: byMeta, meta: map[string]any{"tenant_id": "\xff"},
			field: "meta"},
		"a lone surrogate": {p: ojs.UniquePolicy{Keys: ojs.ByArgs},
			args: json.RawMessage(`"\ud800"`), field: "args"},
		"names that become equal in normal form": {p: ojs.UniquePolicy{Keys: ojs.ByArgs},
			args: map[string]int{"K": 1, "\u212a": 2}, field: "args"},
		"a name that occurs twice": {p: ojs.UniquePolicy{ArgsKeys: []string{"a"}},
			args: json.RawMessage(`{"a":1,"a":1}`), field: "args"},
	} {
		a, err := ojs.NewArgs(tt.args)
		if err != nil {
			t.Fatal(err)
		}
		_, err = policy.Fingerprint(&tt.p,
			&ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "x", Meta: tt.meta}, Args: a})
		var inv *ojs.InvalidError
		if !errors.As(err, &inv) || inv.Field != tt.field || inv.Code != ojs.InvalidCodeUnique {
			t.Errorf("%s: %v, want %s refused", name, err, tt.field)
		}
	}
	if fp := of(t, all, "x", "a", `\ufffd and `+"\ufffd", nil); len(fp) != 64 || strings.ToLower(fp) != fp {
		t.Errorf("C035: %s", fp)
	}
}

// The fingerprint does not depend on how JSON is written.
func TestFingerprintOfAnySpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyJSON(t, 3)
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		indented, err := json.MarshalIndent(v, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		var prints []string
		for _, text := range []json.RawMessage{raw, indented} {
			a, err := ojs.NewArgs(text)
			if err != nil {
				t.Fatal(err)
			}
			fp, err := policy.Fingerprint(&ojs.UniquePolicy{Keys: ojs.ByArgs},
				&ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "x"}, Args: a})
			if err != nil {
				t.Fatal(err)
			}
			prints = append(prints, fp)
		}
		if prints[0] != prints[1] {
			t.Fatalf("%s", raw)
		}
	})
}

func anyJSON(t *rapid.T, depth int) any {
	if depth == 0 || rapid.IntRange(0, 3).Draw(t, "scalar") == 0 {
		return rapid.SampledFrom([]any{nil, true, "", "\u2028<&>", "Z\u0308", "\x00\x1f\"\\/",
			math.Copysign(0, -1), 1e21, 5e-324, 0.1, 1e-7, 123456789012345678, "\U0001F600"}).Draw(t, "v")
	}
	if rapid.Bool().Draw(t, "list") {
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) any { return anyJSON(t, depth-1) }), 0,
			3).Draw(t, "elems")
	}
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "\ufb33", "\u20ac", "\U0001F600", "\uff21", ""}),
		rapid.Custom(func(t *rapid.T) any { return anyJSON(t, depth-1) }), 0, 4).Draw(t, "members")
}

func FuzzFingerprint(f *testing.F) {
	f.Add(`[{"a":1,"b":[1e400,"\u212a"]}]`, "a")
	f.Add(`{"K":1,"\u212a":2}`, "K")
	f.Fuzz(func(t *testing.T, raw, key string) {
		a, err := ojs.NewArgs(json.RawMessage(raw))
		if err != nil {
			return
		}
		job := &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "x"}, Args: a}
		for _, p := range []ojs.UniquePolicy{{Keys: ojs.ByArgs}, {ArgsKeys: []string{key}}} {
			text, err := policy.Canonical(&p, job)
			sameSimply(t, &p, job)
			if err != nil {
				continue
			}
			if !json.Valid(text) {
				t.Errorf("%q", text)
			}
			// Canonical JSON stays as it is.
			var again struct{ Args json.RawMessage }
			if err := json.Unmarshal(text, &again); err != nil {
				t.Fatal(err)
			}
			b, err := ojs.NewArgs(again.Args)
			if err != nil {
				continue
			}
			text2, err := policy.Canonical(&p, &ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "x"}, Args: b})
			if err != nil || string(text2) != string(text) {
				t.Errorf("%s becomes %s, %v", text, text2, err)
			}
		}
	})
}
