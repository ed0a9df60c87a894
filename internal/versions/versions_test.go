package versions_test

import (
	"fmt"
	"testing"

	"github.com/ojsengine/ojs/internal/versions"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]string{
		"2.1": "2.1", "0.0": "0.0", "10.20": "10.20", "2": "2.0",
		"4611686018427387903.1": "4611686018427387903.1",
	} {
		if v, err := versions.Parse(s); err != nil || v.String() != want {
			t.Errorf("V001 %q is %v, %v", s, v, err)
		}
	}
	for _, s := range []string{
		"", ".", "1.", ".1", "01.1", "1.01", "1.2.3", "v1.0", "1.0-rc", "-1.0", "+1.0", " 1.0", "1e3",
		"99999999999999999999.0",
	} {
		if v, err := versions.Parse(s); err == nil {
			t.Errorf("V001 %q is %v", s, v)
		}
	}
}

func TestRanges(t *testing.T) {
	t.Run("V005 compared as numbers", func(t *testing.T) {
		for _, c := range []struct {
			within  string
			has     []string
			hasNone []string
		}{
			{"*", []string{"0.0", "99.99", "3"}, []string{"", "x"}},
			{"2.0", []string{"2.0", "2"}, []string{"2.1", "1.9", "20.0"}},
			{"2", []string{"2.0"}, []string{"2.1"}},
			{">=2.0", []string{"2.0", "2.10", "9.0"}, []string{"1.99"}},
			{"<2.0", []string{"0.1", "1.10"}, []string{"2.0", "10.0"}},
			{">=1.9 <2.0", []string{"1.9", "1.10"}, []string{"1.8", "2.0"}},
			{">=1.9,<2.0", []string{"1.10"}, []string{"2.0"}},
			{"<3.0, >=1.0 >=2.0", []string{"2.0"}, []string{"1.5", "3.0"}},
			{">=2.0 >=1.0 <3.0 <4.0", []string{"2.0"}, []string{"1.5", "3.0"}},
		} {
			for _, v := range c.has {
				if !versions.Matches(c.within, v) {
					t.Errorf("%q does not have %q", c.within, v)
				}
			}
			for _, v := range c.hasNone {
				if versions.Matches(c.within, v) {
					t.Errorf("%q has %q", c.within, v)
				}
			}
		}
	})
	t.Run("V005 others are refused", func(t *testing.T) {
		for _, s := range []string{
			"", " ", "^1.0", "~1.0", ">1.0", "<=1.0", "=1.0", ">= 1.0", "1.0 2.0", "1.x", "* *", "1.0-2.0",
			">=3.0 <2.0",
			">=2.0 <2.0", ">=", "<", "!", "latest", ">=1.0 *",
		} {
			if r, err := versions.ParseRange(s); err == nil {
				t.Errorf("%q is %v", s, r)
			}
			if versions.Matches(s, "1.0") {
				t.Errorf("%q has 1.0", s)
			}
		}
	})
	t.Run("V007 ranges overlap if a version is in both", func(t *testing.T) {
		list := []string{"*", "2.0", "2.1", ">=2.0", "<2.0", ">=1.0 <2.1", ">=2.1 <3.0", ">=3.0"}
		var all []string
		for i := range 40 {
			all = append(all, fmt.Sprintf("%d.%d", i/10, i%10))
		}
		for _, a := range list {
			for _, b := range list {
				want := false
				for _, v := range all {
					want = want || versions.Matches(a, v) && versions.Matches(b, v)
				}
				ra, _ := versions.ParseRange(a)
				rb, _ := versions.ParseRange(b)
				if ra.Overlaps(rb) != want {
					t.Errorf("%q and %q: %t", a, b, !want)
				}
			}
		}
	})
}

func TestTakes(t *testing.T) {
	for _, c := range []struct {
		pattern, jobType, version string
		want                      bool
	}{
		{"a", "a", "", true}, {"a", "a", "1.0", true}, {"a", "b", "", false},
		{"a@", "a", "", true}, {"a@", "a", "1.0", false}, {"a@1.0", "a", "", false},
		{"a@1.0", "a", "1.0", true}, {"a@*", "a", "", false}, {"a@*", "a", "7.0", true},
		{"a@>=2.0 <3.0", "a", "2.5", true}, {"a@x", "a", "1.0", false},
	} {
		if versions.Takes(c.pattern, c.jobType, c.version) != c.want {
			t.Errorf("V003 V006 %+v", c)
		}
	}
}

func FuzzRange(f *testing.F) {
	f.Add(">=2.0 <3.0", "2.1")
	f.Fuzz(func(t *testing.T, within, version string) {
		_, err := versions.ParseRange(within)
		if versions.Matches(within, version) && err != nil {
			t.Errorf("%q is none and has %q", within, version)
		}
	})
}
