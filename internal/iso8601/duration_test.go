package iso8601_test

import (
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs/internal/iso8601"
)

func TestParse(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"PT1S": time.Second, "PT5M": 5 * time.Minute, "P1D": day, "P30D": 30 * day, "P1W2D": 9 * day,
		"PT36H": 36 * time.Hour,
		"P1Y":   365 * day, "P1M": 30 * day, "P2Y3M": 820 * day, "PT0S": 0, "PT007S": 7 * time.Second,
		"PT0.1S": 100 * time.Millisecond, "PT1.000000001S": time.Second + 1,
		"PT1.0000000019S": time.Second + 1,
		"PT0.000000000S":  0, "P0D": 0, "PT9223372036.854775807S": math.MaxInt64,
		"PT1M0.0000000001S": time.Minute,
	} {
		t.Run("A029 A055 A060 A061 reading 16 "+s, func(t *testing.T) {
			if got, err := iso8601.Parse(s); err != nil || got != want {
				t.Errorf("%v, %v, want %v", got, err, want)
			}
		})
	}
	refused := map[string]string{
		"PT9223372036.854775808S": "overflows", "P300Y": "overflows",
		"PT99999999999999999999S": "overflows", "PT2562047H47M16.9S": "overflows",
		"PT0.0000000001S": "less than a nanosecond",
	}
	for _, s := range []string{
		"", "P", "PT", "P1DT", "PT1", "P1.5D", "PT1.5H", "PT1.S", "1s", "-PT1S", "P-1D", "PT1M1H",
		"P1D1D", "PT1S\n", " PT1S", "PT1s", "pt1s", "P1H", "PT1D", "PT1H2M3", "PP1D", "PTT1S",
		"PT1H T1S", "PT1,5S", "PT\u0661S", "PT.5S", "P292YP1D", "P1DT1D",
	} {
		refused[s] = "is not like"
	}
	for s, reason := range refused {
		t.Run("A062 A124 A158 A181 "+s, func(t *testing.T) {
			got, err := iso8601.Parse(s)
			if err == nil || !strings.Contains(err.Error(), reason) || !strings.HasPrefix(err.Error(),
				"ojs: duration ") || got != 0 {
				t.Errorf("%v, %v, want %q", got, err, reason)
			}
		})
	}
	if _, err := iso8601.Parse("P" + strings.Repeat("9", 10_000)); err == nil || len(err.Error()) > 200 {
		t.Errorf("a long input: %.300v", err)
	}
}

func TestFormat(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "PT0S", -1: "PT0S", 1: "PT0.000000001S", time.Second: "PT1S", 500 * time.Millisecond: "PT0.5S",
		90 * time.Second: "PT1M30S",
		5 * time.Minute:  "PT5M", 24 * time.Hour: "PT24H", time.Hour + time.Millisecond: "PT1H0.001S",
		time.Hour + time.Second: "PT1H1S",
		math.MaxInt64:           "PT2562047H47M16.854775807S",
	} {
		if got := iso8601.Format(d); got != want {
			t.Errorf("%d is written %s, want %s", d, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d"))
		s := iso8601.Format(d)
		if got, err := iso8601.Parse(s); err != nil || got != d {
			t.Fatalf("%d is written %s and read %d, %v", d, s, got, err)
		}
	})
}

// The syntax of the two JSON schemas joined (OJS retry, section 14; OJS unique jobs,
// section 13), in a notation of its own.
var syntax = regexp.MustCompile(`^P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?$`)

// oracle computes with numbers of any size.
func oracle(s string) (ns *big.Int, ok bool) {
	m := syntax.FindStringSubmatch(s)
	if m == nil || s == "P" || strings.HasSuffix(s, "T") {
		return nil, false
	}
	sum := new(big.Rat)
	for group, unit := range map[int]time.Duration{1: 365 * 24 * time.Hour, 2: 30 * 24 * time.Hour,
		3: 7 * 24 * time.Hour, 4: 24 * time.Hour,
		6: time.Hour, 7: time.Minute, 8: time.Second} {
		if m[group] == "" {
			continue
		}
		n, _ := new(big.Rat).SetString(m[group])
		sum.Add(sum, n.Mul(n, new(big.Rat).SetInt64(int64(unit))))
	}
	if m[9] != "" {
		frac, _ := new(big.Rat).SetString("0." + m[9])
		sum.Add(sum, frac.Mul(frac, new(big.Rat).SetInt64(int64(time.Second))))
	}
	ns = new(big.Int).Quo(sum.Num(), sum.Denom())
	if !ns.IsInt64() {
		return nil, false
	}
	if sum.Sign() > 0 && ns.Sign() == 0 { // less than a nanosecond
		return nil, false
	}
	return ns, true
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"PT1S", "P1Y2M3W4DT5H6M7.8S", "P", "PT", "P1DT", "PT1.5H", "PT0.0000000001S",
		"PT9223372036.854775808S", "PT١S"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 1000 {
			return
		}
		got, err := iso8601.Parse(s)
		want, ok := oracle(s)
		if ok != (err == nil) {
			t.Fatalf("%q: %v, %v; the oracle says %v, %v", s, got, err, want, ok)
		}
		if ok && want.Int64() != int64(got) || got < 0 {
			t.Fatalf("%q is %d, want %v", s, got, want)
		}
	})
}
