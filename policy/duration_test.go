package policy_test

import (
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs/policy"
)

const day = 24 * time.Hour

func TestParseDuration(t *testing.T) {
	for _, tt := range []struct {
		ids, s string
		want   time.Duration
	}{
		{"A056", "PT0.5S", 500 * time.Millisecond},
		{"A057", "PT1S", time.Second},
		{"A057", "PT5S", 5 * time.Second},
		{"A057", "PT30S", 30 * time.Second},
		{"A058", "PT1M", time.Minute},
		{"A058", "PT5M", 5 * time.Minute},
		{"A058", "PT15M", 15 * time.Minute},
		{"A059", "PT1H", time.Hour},
		{"A059", "PT24H", day},
		{"A060", "PT1H2M3.25S", time.Hour + 2*time.Minute + 3*time.Second + 250*time.Millisecond},
		{"A060 more hours than a day has", "PT36H", 36 * time.Hour},
		{"A061", "P1D", day},
		{"A061", "P30D", 30 * day},
		{"A061 reading 16", "P1M", 30 * day},
		{"A061 reading 16", "P1Y", 365 * day},
		{"reading 16 weeks", "P1W", 7 * day},
		{"reading 16 weeks", "P1W2D", 9 * day},
		{"A055", "P1Y2M3W4DT5H6M7.000000008S",
			(365+60+21+4)*day + 5*time.Hour + 6*time.Minute + 7*time.Second + 8},
		{"zero", "PT0S", 0},
		{"leading zeros", "PT00000000000000000000001S", time.Second},
		{"the longest", "PT9223372036.854775807S", math.MaxInt64},
	} {
		t.Run(tt.ids+" "+tt.s, func(t *testing.T) {
			if got, err := policy.ParseDuration(tt.s); err != nil || got != tt.want {
				t.Errorf("%v, %v, want %v", got, err, tt.want)
			}
		})
	}
	for _, tt := range []struct{ ids, s string }{
		{"A158 nothing after P", "P"},
		{"A158 nothing after T", "PT"},
		{"A158 nothing after T", "P1DT"},
		{"A158 fraction", "PT1.5H"},
		{"A060 fraction", "PT1.5M"},
		{"A060 fraction", "P1.5D"},
		{"A060 no digits after the point", "PT1.S"},
		{"A060 no digits before the point", "PT.5S"},
		{"A062 A181", ""},
		{"A029 A062 A181 Go's form", "1s"},
		{"A029 A062 A181 bare number", "5"},
		{"A062 no unit", "PT1"},
		{"A062 sign", "-PT1S"},
		{"A062 sign", "+PT1S"},
		{"A062 sign", "PT-1S"},
		{"A055 order", "PT1M1H"},
		{"A055 order", "P1D1Y"},
		{"A055 repeated", "PT1S1S"},
		{"A055 T missing", "P1H"},
		{"A055 T misplaced", "PT1D"},
		{"A062 two T", "PT1HT1S"},
		{"A062 space", "PT1S "},
		{"A062 space", " PT1S"},
		{"A062 newline", "PT1S\n"},
		{"A062 comma", "PT1,5S"},
		{"A062 case", "pt1s"},
		{"A062 digits of another script", "PT\u0661S"},
		{"reading 16 overflow", "PT9223372036.854775808S"},
		{"reading 16 overflow", "P300Y"},
		{"reading 16 overflow", "PT99999999999999999999S"},
		{"reading 16 overflow of the sum", "P292YT999999H"},
	} {
		t.Run(tt.ids+" "+tt.s, func(t *testing.T) {
			if got, err := policy.ParseDuration(tt.s); err == nil || got != 0 ||
				!strings.HasPrefix(err.Error(), "ojs: ") {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// The durations of the vectors that come with the unique jobs documents.
func TestDurationVectors(t *testing.T) {
	for _, v := range []struct {
		s     string
		valid bool
	}{
		{"PT1S", true}, {"PT5M", true}, {"P1D", true}, {"P30D", true}, {"P1W2D", true}, {"PT36H", true},
		{"PT", false}, {"PT1", false}, {"P1.5D", false}, {"PT1.S", false}, {"1s", false}, {"-PT1S", false},
		{"PT1M1H", false}, {"PT1S\n", false},
	} {
		t.Run("A054 A062 vector "+v.s, func(t *testing.T) {
			if d, err := policy.ParseDuration(v.s); (err == nil) != v.valid {
				t.Errorf("%v, %v, want valid %v", d, err, v.valid)
			}
		})
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "PT0S", 1: "PT0.000000001S", 500 * time.Millisecond: "PT0.5S", time.Second: "PT1S",
		5 * time.Minute:  "PT5M",
		90 * time.Minute: "PT1H30M", 36 * time.Hour: "PT36H", math.MaxInt64: "PT2562047H47M16.854775807S",
		-1: "PT0S", math.MinInt64: "PT0S",
	} {
		t.Run("A054 A060 "+want, func(t *testing.T) {
			if got := policy.FormatDuration(d); got != want {
				t.Errorf("%d is written %s", d, got)
			}
		})
	}
	t.Run("A164 what is written is read back and fits the schema", rapid.MakeCheck(func(t *rapid.T) {
		d := time.Duration(rapid.OneOf(rapid.Int64Range(0, math.MaxInt64),
			rapid.Int64Range(0, int64(day))).Draw(t, "d"))
		s := policy.FormatDuration(d)
		if got, err := policy.ParseDuration(s); err != nil || got != d {
			t.Fatalf("%d is written %s and read %d, %v", d, s, got, err)
		}
		if !retrySchema.MatchString(s) {
			t.Fatalf("A158: %d is written %s", d, s)
		}
	}))
}

// The pattern of the retry schema (OJS retry, section 14). Its look-aheads, which Go's
// regexp lacks, refuse the same as "no bare P, no T at the end".
var retrySchema = regexp.MustCompile(`^P(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?$`)

// The units one by one, and in what order.
var (
	datePart = regexp.MustCompile(`^([0-9]+Y|)([0-9]+M|)([0-9]+W|)([0-9]+D|)$`)
	timePart = regexp.MustCompile(`^([0-9]+H|)([0-9]+M|)([0-9]+(?:\.[0-9]+)?S|)$`)
)

// readDuration is the grammar of reading 16 once more, in numbers of any size:
// nanoseconds, digits beyond them cut off.
func readDuration(s string) (time.Duration, bool) {
	if !strings.HasPrefix(s, "P") || s == "P" {
		return 0, false
	}
	date, clock, hasTime := strings.Cut(s[1:], "T")
	d, t := datePart.FindStringSubmatch(date), timePart.FindStringSubmatch(clock)
	if d == nil || t == nil || hasTime && clock == "" {
		return 0, false
	}
	sum := new(big.Rat)
	for i, seconds := range []int64{365 * 86400, 30 * 86400, 7 * 86400, 86400, 3600, 60, 1} {
		part := append(d[1:5:5], t[1:]...)[i]
		if part == "" {
			continue
		}
		n, ok := new(big.Rat).SetString(part[:len(part)-1])
		if !ok {
			return 0, false
		}
		sum.Add(sum, n.Mul(n, big.NewRat(seconds*1e9, 1)))
	}
	ns := new(big.Int).Quo(sum.Num(), sum.Denom())
	if !ns.IsInt64() || ns.Sign() == 0 && sum.Sign() > 0 { // too long, or too short to be told from nothing
		return 0, false
	}
	return time.Duration(ns.Int64()), true
}

func checkDuration(t interface{ Fatalf(string, ...any) }, s string) {
	got, err := policy.ParseDuration(s)
	want, ok := readDuration(s)
	if (err == nil) != ok || got != want {
		t.Fatalf("%q is %d, %v; want %d, valid %v", s, got, err, want, ok)
	}
	if !ok {
		return
	}
	if again, err := policy.ParseDuration(policy.FormatDuration(got)); err != nil || again != got {
		t.Fatalf("%q is %d, and %d when written and read again: %v", s, got, again, err)
	}
}

func TestDurationSyntax(t *testing.T) {
	t.Run("A062 A181 reading 16 near misses", rapid.MakeCheck(func(t *rapid.T) {
		const near = `P?([0-9]{1,3}[YMWD]){0,4}(T?([0-9]{1,12}(\.[0-9]{0,11})?[HMS]){0,3})[ TS]?`
		checkDuration(t, rapid.StringMatching(near).Draw(t, "s"))
	}))
	t.Run("A062 A181 reading 16 well formed", rapid.MakeCheck(func(t *rapid.T) {
		checkDuration(t,
			rapid.StringMatching(`P([0-9]{1,3}Y)?([0-9]{1,3}M)?([0-9]W)?([0-9]{1,5}D)?(T([0-9]{1,7}H)?([0-9]{1,9}M)?([0-9]{1,10}(\.[0-9]{1,12})?S)?)?`).Draw(t, "s"))
	}))
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{
		"", "P", "PT", "P1DT", "PT1S", "P1W2D", "PT1.5H", "P1Y2M3W4DT5H6M7.000000008S", "PT0.0000000001S",
		"PT1M0.0000000001S",
		"PT9223372036.854775807S", "PT9223372036.854775808S", "P99999999999999999999Y", "PT\u0661S", "PT1S\n",
		"P1M1M", "PT1M1M",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 1000 { // the oracle's numbers grow without bound
			t.Skip("too long for the oracle")
		}
		checkDuration(t, s)
	})
}
