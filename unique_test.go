package ojs_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
)

func TestUniquePolicyJSON(t *testing.T) {
	const day = 24 * time.Hour
	for rule, tt := range map[string]struct {
		in   string
		want ojs.UniquePolicy
	}{
		"C004 the source's example": {`{"keys":["type","args"],"args_keys":["user_id"],"meta_keys":null,"period":"PT1H","states":["available","active","scheduled","retryable","pending"],"on_conflict":"reject"}`,
			ojs.UniquePolicy{Keys: ojs.ByType | ojs.ByArgs, ArgsKeys: []string{"user_id"}, Period: time.Hour,
				States:     []ojs.State{"available", "active", "scheduled", "retryable", "pending"},
				OnConflict: ojs.ConflictReject}},
		"C004 reading 57 the source's example, empty meta keys": {`{"keys":["type","queue","args"],"args_keys":["user_id"],"meta_keys":[],"period":"PT1H","states":["available","active","scheduled","retryable","pending"],"on_conflict":"reject"}`,
			ojs.UniquePolicy{Keys: ojs.ByType | ojs.ByQueue | ojs.ByArgs, ArgsKeys: []string{"user_id"},
				MetaKeys: []string{}, Period: time.Hour,
				States:     []ojs.State{"available", "active", "scheduled", "retryable", "pending"},
				OnConflict: ojs.ConflictReject}},
		"C004 reading 57 empty meta keys alone": {`{"meta_keys":[]}`,
			ojs.UniquePolicy{Keys: ojs.ByType, MetaKeys: []string{}}},
		"C005 reading 27 the empty policy": {`{}`, ojs.UniquePolicy{Keys: ojs.ByType}},
		"reading 27 a strategy alone": {`{"on_conflict":"ignore"}`,
			ojs.UniquePolicy{Keys: ojs.ByType, OnConflict: ojs.ConflictIgnore}},
		"C006 null is absent": {`{"keys":null,"args_keys":null,"meta_keys":null,"period":null,"states":null,"on_conflict":null}`, ojs.UniquePolicy{Keys: ojs.ByType}},
		"C007 C084 every dimension": {`{"keys":["meta","args","queue","type"],"meta_keys":["a","b"]}`,
			ojs.UniquePolicy{Keys: ojs.ByType | ojs.ByQueue | ojs.ByArgs | ojs.ByMeta,
				MetaKeys: []string{"a", "b"}}},
		"reading 36 no member at all": {`{"keys":["args"],"args_keys":[]}`,
			ojs.UniquePolicy{Keys: ojs.ByType | ojs.ByArgs, ArgsKeys: []string{}}},
		"C010 C083 replace": {`{"on_conflict":"replace"}`,
			ojs.UniquePolicy{Keys: ojs.ByType, OnConflict: ojs.ConflictReplace}},
		"C010 C083 C107 replace_except_schedule": {`{"on_conflict":"replace_except_schedule"}`,
			ojs.UniquePolicy{Keys: ojs.ByType, OnConflict: ojs.ConflictReplaceExceptSchedule}},
		"debounce": {`{"on_conflict":"ojs:debounce","max_wait":"PT1M"}`,
			ojs.UniquePolicy{Keys: ojs.ByType, OnConflict: ojs.ConflictDebounce, MaxWait: time.Minute}},
		"debounce without a bound": {`{"on_conflict":"ojs:debounce"}`,
			ojs.UniquePolicy{Keys: ojs.ByType, OnConflict: ojs.ConflictDebounce}},
		"C070 PT5M":  {`{"period":"PT5M"}`, ojs.UniquePolicy{Keys: ojs.ByType, Period: 5 * time.Minute}},
		"C070 P1D":   {`{"period":"P1D"}`, ojs.UniquePolicy{Keys: ojs.ByType, Period: day}},
		"C070 P7D":   {`{"period":"P7D"}`, ojs.UniquePolicy{Keys: ojs.ByType, Period: 7 * day}},
		"C070 P30D":  {`{"period":"P30D"}`, ojs.UniquePolicy{Keys: ojs.ByType, Period: 30 * day}},
		"C116 weeks": {`{"period":"P1W2D"}`, ojs.UniquePolicy{Keys: ojs.ByType, Period: 9 * day}},
		"C116 years and months are the calendar's": {`{"period":"P1Y2MT1.5S"}`,
			ojs.UniquePolicy{Keys: ojs.ByType, PeriodMonths: 14, Period: 1500 * time.Millisecond}},
		"C116 the longest period": {`{"period":"P9999YT2562047H47M16.854775807S"}`,
			ojs.UniquePolicy{Keys: ojs.ByType, PeriodMonths: 12 * 9999, Period: math.MaxInt64}},
	} {
		var p ojs.UniquePolicy
		if err := json.Unmarshal([]byte(tt.in), &p); err != nil || !reflect.DeepEqual(p, tt.want) {
			t.Errorf("%s: %+v, %v", rule, p, err)
			continue
		}
		raw, err := json.Marshal(p)
		var again ojs.UniquePolicy
		if err == nil {
			err = json.Unmarshal(raw, &again)
		}
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%s: %s comes back as %+v, %v", rule, raw, again, err)
		}
	}
	for rule, tt := range map[string]struct{ in, field string }{
		"C012 a misspelt dimension":        {`{"keys":["argz"]}`, "unique.keys"},
		"C018 dimensions have a case":      {`{"keys":["Type"]}`, "unique.keys"},
		"C113 a repeated dimension":        {`{"keys":["type","type"]}`, "unique.keys"},
		"C113 no list":                     {`{"keys":"type"}`, "unique.keys"},
		"C113 a number among them":         {`{"keys":[1]}`, "unique.keys"},
		"C114 a repeated member":           {`{"args_keys":["a","a"]}`, "unique.args_keys"},
		"C114 no string":                   {`{"args_keys":[null]}`, "unique.args_keys"},
		"C114 a repetition in a long list": {`{"args_keys":["0","1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17","0"]}`, "unique.args_keys"},
		"C115 a repeated meta key":         {`{"meta_keys":["a","a"]}`, "unique.meta_keys"},
		"C016 C115 meta and empty keys":    {`{"keys":["type","meta"],"meta_keys":[]}`, "unique.meta_keys"},
		"C015 C120 meta without its keys":  {`{"keys":["meta"]}`, "unique.meta_keys"},
		"C061 C117 an unknown state":       {`{"states":["running"]}`, "unique.states"},
		"C117 a repeated state":            {`{"states":["active","active"]}`, "unique.states"},
		"C117 no state at all":             {`{"states":[]}`, "unique.states"},
		"C118 reading 34 drop":             {`{"on_conflict":"drop"}`, "unique.on_conflict"},
		"C118 an empty strategy":           {`{"on_conflict":""}`, "unique.on_conflict"},
		"C119 an unknown field":            {`{"key":["a"]}`, "unique.key"},
		"C119 a field in another case":     {`{"Keys":["type"]}`, "unique.Keys"},
		"C069 a period of no duration":     {`{"period":"1h"}`, "unique.period"},
		"C134 an integer period":           {`{"period":3600}`, "unique.period"},
		"C116 a longer period":             {`{"period":"P9999Y1M"}`, "unique.period"},
		"a zero period":                    {`{"period":"PT0S"}`, "unique.period"},
		"a bound of nothing": {`{"on_conflict":"ojs:debounce","max_wait":"PT0S"}`,
			"unique.max_wait"},
		"a bound of no debounce": {`{"max_wait":"PT1M"}`, "unique.max_wait"},
		"a bound that is no duration": {`{"on_conflict":"ojs:debounce","max_wait":60}`,
			"unique.max_wait"},
		"a member that occurs twice": {`{"keys":["type"],"keys":["args"]}`, "unique"},
		"no object":                  {`["type"]`, "unique"},
	} {
		p := ojs.UniquePolicy{Key: "before"}
		err := json.Unmarshal([]byte(tt.in), &p)
		var inv *ojs.InvalidError
		if !errors.As(err, &inv) || inv.Field != tt.field || inv.Code != ojs.InvalidCodeUnique ||
			!reflect.DeepEqual(p, ojs.UniquePolicy{Key: "before"}) {
			t.Errorf("%s: %v, want %s refused; %+v", rule, err, tt.field, p)
		}
	}
}

func TestUniquePolicy(t *testing.T) {
	for rule, tt := range map[string]struct {
		p    ojs.UniquePolicy
		dims ojs.UniqueKeys
	}{
		"C013 type is always there": {ojs.UniquePolicy{Keys: ojs.ByQueue}, ojs.ByType | ojs.ByQueue},
		"zero keys":                 {ojs.UniquePolicy{}, ojs.ByType},
		"zero keys with args keys": {ojs.UniquePolicy{ArgsKeys: []string{"a"}},
			ojs.ByType | ojs.ByArgs},
		"zero keys with meta keys": {ojs.UniquePolicy{MetaKeys: []string{"a"}},
			ojs.ByType | ojs.ByMeta},
		"C004 reading 57 no meta, no keys": {ojs.UniquePolicy{Keys: ojs.ByQueue, MetaKeys: []string{}},
			ojs.ByType | ojs.ByQueue},
		"explicit keys with args keys": {ojs.UniquePolicy{Keys: ojs.ByType, ArgsKeys: []string{"a"}},
			ojs.ByType},
		"C008 C009 C010 C044 C058 defaults": {ojs.UniquePolicy{}, ojs.ByType},
	} {
		if got := tt.p.Dimensions(); got != tt.dims || tt.p.Validate() != nil {
			t.Errorf("%s: %b, %v", rule, got, tt.p.Validate())
		}
	}
	for field, p := range map[string]ojs.UniquePolicy{
		"unique.keys":      {Keys: 1 << 7},
		"unique.period":    {Period: -1},
		"unique.key":       {Key: "k", Keys: ojs.ByArgs},
		"unique.states":    {States: []ojs.State{}},
		"unique.meta_keys": {MetaKeys: []string{}},
		"unique.args_keys": {ArgsKeys: []string{"a", "a"}},
	} {
		var inv *ojs.InvalidError
		if err := p.Validate(); !errors.As(err, &inv) || inv.Field != field {
			t.Errorf("C089 %s: %v", field, err)
		}
		var o ojs.Options
		if o = ojs.DefaultOptions(); true {
			o.Apply(ojs.WithUnique(p))
		}
		if err := o.Validate(); !errors.As(err, &inv) || inv.Field != field {
			t.Errorf("C089 %s as an option: %v", field, err)
		}
	}
	// A key that is the fingerprint is one.
	digits := strings.Repeat("0123456789abcdef", 4)
	for key, ok := range map[string]bool{digits: true, "": false, "k": false, digits[1:]: false,
		digits + "0": false, strings.ToUpper(digits): false, digits[1:] + "g": false,
		digits[1:] + "\n": false} {
		p := ojs.UniquePolicy{Key: key, Keys: 1<<7 | ojs.ByType}
		var inv *ojs.InvalidError
		err := p.Validate()
		if ok && err != nil || !ok && (!errors.As(err, &inv) || inv.Field != "unique.keys") {
			t.Errorf("C012 K013 %q as the fingerprint: %v", key, err)
		}
	}
	for _, months := range []int{-1, 12*9999 + 1} {
		if err := (&ojs.UniquePolicy{PeriodMonths: months}).Validate(); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%d months: %v", months, err)
		}
	}
	// The caller's lists may change afterwards.
	keys := []string{"a"}
	opt := ojs.WithUnique(ojs.UniquePolicy{ArgsKeys: keys})
	keys[0] = "b"
	o := ojs.DefaultOptions()
	o.Apply(opt)
	if o.Unique.ArgsKeys[0] != "a" {
		t.Error("the option shares the caller's list")
	}
}

// A copy of a policy is equal to it and shares no memory with it. Policies that differ in
// any field are not equal.
func TestUniquePolicyEqual(t *testing.T) {
	whole := ojs.UniquePolicy{
		Keys: ojs.ByArgs, Key: "k", ArgsKeys: []string{"a"}, MetaKeys: []string{"m"}, Period: time.Second,
		PeriodMonths: 1, States: []ojs.State{ojs.StateActive}, OnConflict: ojs.ConflictIgnore,
		MaxWait: time.Minute,
	}
	for i := range reflect.TypeFor[ojs.UniquePolicy]().NumField() {
		name := reflect.TypeFor[ojs.UniquePolicy]().Field(i).Name
		other := whole.Clone()
		if !other.Equal(&whole) {
			t.Fatalf("a copy of %+v is not equal to it", whole)
		}
		field := reflect.ValueOf(other).Elem().Field(i)
		if field.Kind() == reflect.Slice {
			if field.Index(0).SetString("x"); other.Equal(&whole) {
				t.Errorf("a copy shares %s", name)
			}
			field.Set(field.Slice(0, 0))
		} else {
			field.SetZero()
		}
		if other.Equal(&whole) || whole.Equal(other) {
			t.Errorf("policies of another %s are equal", name)
		}
		empty := other.Clone()
		if field.SetZero(); field.Kind() == reflect.Slice && other.Equal(empty) {
			t.Errorf("an empty %s equals none", name)
		}
	}
	var none *ojs.UniquePolicy
	if !none.Equal(none.Clone()) || none.Equal(&whole) || whole.Equal(nil) {
		t.Error("no policy equals one, or does not equal none")
	}
}

func TestUniquePeriod(t *testing.T) {
	at := func(s string) time.Time {
		tm, err := time.Parse("2006-01-02", s)
		if err != nil {
			t.Fatal(err)
		}
		return tm
	}
	for _, tt := range []struct {
		months    int
		from, end string
	}{
		{1, "2026-01-15", "2026-02-15"}, {1, "2026-01-31", "2026-02-28"}, {1, "2028-01-31", "2028-02-29"},
		{12, "2028-02-29", "2029-02-28"}, {13, "2026-12-31", "2028-01-31"}, {2, "2026-12-31", "2027-02-28"},
	} {
		p := ojs.UniquePolicy{PeriodMonths: tt.months}
		if got := p.PeriodEnd(at(tt.from)); !got.Equal(at(tt.end)) {
			t.Errorf("%d months from %s end %v", tt.months, tt.from, got)
		}
	}
	// An older job's period ends before a newer one's, or less than a day after it: two
	// days may end on the last one of a short month, each at its own time of day.
	rapid.Check(t, func(t *rapid.T) {
		p := ojs.UniquePolicy{PeriodMonths: rapid.IntRange(0, 40).Draw(t, "months"),
			Period: time.Duration(rapid.Int64Range(1, 1e15).Draw(t, "rest"))}
		a := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "a"), 0).UTC()
		b := a.Add(time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "later")))
		if end := p.PeriodEnd(a); !end.Before(p.PeriodEnd(b).Add(24*time.Hour)) ||
			p.PeriodMonths == 0 && end.After(p.PeriodEnd(b)) {
			t.Fatalf("%+v: from %v to %v, from %v to %v", p, a, p.PeriodEnd(a), b, p.PeriodEnd(b))
		}
		for _, s := range ojs.AllStates() {
			checked := !s.Terminal()
			if p.Counts(s, a, p.PeriodEnd(a).Add(-1)) != checked || p.Counts(s, a, p.PeriodEnd(a)) {
				t.Fatalf("C071: %s", s)
			}
		}
	})
}

func TestIdempotencyKeyOnTheWire(t *testing.T) {
	for in, field := range map[string]string{
		`{"type":"x","idempotency_key":""}`:                                    "idempotency_key",
		`{"type":"x","idempotency_key":7}`:                                     "idempotency_key",
		`{"type":"x","idempotency_key":"` + strings.Repeat("k", 257) + `"}`:    "unique.key",
		`{"type":"x","idempotency_key":"k","unique":{"keys":["type","args"]}}`: "unique.key",
		`{"type":"x","unique":{"keys":["args"]},"options":{"unique":{}}}`:      "unique",
	} {
		_, err := ojs.ParseDraft([]byte(in))
		var inv *ojs.InvalidError
		if !errors.As(err, &inv) || inv.Field != field {
			t.Errorf("%.60s: %v, want %s refused", in, err, field)
		}
	}
}
