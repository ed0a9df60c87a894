package cronspec_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cronspec"
)

func at(t *testing.T, s string) time.Time {
	t.Helper()
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if tm, err := time.Parse(layout, s); err == nil {
			return tm
		}
	}
	t.Fatalf("time %q", s)
	return time.Time{}
}

func TestNext(t *testing.T) {
	for _, tt := range []struct{ spec, zone, after, want string }{
		{"0 3 * * *", "", "2026-03-01 03:00", "2026-03-02 03:00"},
		{"*/15 9-17 * * mon-FRI", "", "2026-03-06 17:45", "2026-03-09 09:00"},
		{"30 0 12 * * *", "", "2026-03-01 12:00", "2026-03-01 12:00:30"},
		{"0 0 * * * ?", "", "2026-03-01 12:00", "2026-03-01 13:00"}, // E019
		{"0 0 L * *", "", "2026-02-01", "2026-02-28"},
		{"0 0 15W * *", "", "2026-02-01", "2026-02-16"},
		{"0 0 * * 5#2", "", "2026-02-01", "2026-02-13"},
		{"0 0 l,1 * *", "", "2026-02-01", "2026-02-28"},
		{"0 0 * * 5L", "", "2026-02-01", "2026-02-27"},
		{"0 0 * * fril,mon#1", "", "2026-02-03", "2026-02-27"},
		{"0 0 * * 0", "", "2026-02-02", "2026-02-08"},
		{"0 0 * * 7", "", "2026-02-02", "2026-02-08"},
		{"0 0 * * 7-1", "", "2026-02-02", "2026-02-08"}, {"0 0 * * sun-5/5", "", "2026-02-02", "2026-02-06"},
		{"0 0 * * 7-5/5", "", "2026-02-01", "2026-02-06"}, {"0 0 * * 5-7/2", "", "2026-02-07", "2026-02-08"},
		{"00 08 * * 0001", "", "2026-02-03", "2026-02-09 08:00"},
		{"0 ?,5 0 ? 1 ?", "", "2026-02-01", "2027-01-01"},
		{"50/5,*/30 * * * *", "", "2026-02-01 00:30", "2026-02-01 00:50"},
		{"*/60 */24 * * *", "", "2026-02-01", "2026-02-02"},
		{"0 0 1 JAN *", "", "2026-02-01", "2027-01-01"},
		{"0 0 1 jan-MAR/2,DEC *", "", "2026-02-01", "2026-03-01"},
		{"0 0 29 2 *", "", "2026-02-01", "2028-02-29"},
		{"@yearly", "", "2026-02-01", "2027-01-01"}, {"@annually", "", "2026-02-01", "2027-01-01"},
		{"@monthly", "", "2026-02-01", "2026-03-01"}, {"@weekly", "", "2026-02-02", "2026-02-08"},
		{"@daily", "", "2026-02-01 10:00", "2026-02-02"}, {"@midnight", "", "2026-02-01 10:00", "2026-02-02"},
		{"@hourly", "", "2026-02-01 10:30", "2026-02-01 11:00"},
		{"@every 1h30m", "", "2026-02-01", "2026-02-01 01:30"},
		{"0 3 * * *", "Europe/Berlin", "2026-01-01", "2026-01-01 02:00"},
		{"0 3 * * *", "Europe/Berlin", "2026-07-01", "2026-07-01 01:00"},
		{"0 9 * * *", "America/New_York", "2026-07-01", "2026-07-01 13:00"},
		{"0 9 * * *", "Asia/Kolkata", "2026-07-01", "2026-07-01 03:30"},
	} {
		s, err := cronspec.Parse(tt.spec, tt.zone)
		if err != nil {
			t.Errorf("P1.1 %s: %v", tt.spec, err)
			continue
		}
		if got, _ := s.Next(at(t, tt.after), time.Time{}); !got.Equal(at(t, tt.want)) {
			t.Errorf("P1.1 %s in %s after %s is %v, want %s", tt.spec, tt.zone, tt.after, got, tt.want)
		}
	}
}

// The rarest dates are found from every year of the calendar's cycle, and then not taken
// for ones that never come.
func TestRareDates(t *testing.T) {
	for _, spec := range []string{"59 59 23 29 2 */7", "0 0 * 2 5#5", "0 0 29W 2 *", "0 0 */28 2 1#5"} {
		s, err := cronspec.Parse(spec, "")
		if err != nil {
			t.Errorf("P1.1: %v", err)
			continue
		}
		for year := 2000; year < 2400; year += 8 {
			after := time.Date(year, 3, 1, 0, 0, 0, 0, time.UTC)
			if next, _ := s.Next(after, time.Time{}); !next.After(after) {
				t.Errorf("P1.1 %s after %v is %v", spec, after, next)
			}
		}
	}
}

// A reading that the clock skips each time it names never comes, and to find that out
// takes no longer than a moment.
func TestAlwaysSkipped(t *testing.T) {
	for spec, zone := range map[string]string{
		"30 2 * 3 0#2": "America/New_York", "* * 2 * 3 0#2": "America/New_York",
		"30 2 29-31 3 */7": "Europe/Berlin",
	} {
		s, err := cronspec.Parse(spec, zone)
		if err != nil {
			t.Errorf("P1.1: %v", err)
			continue
		}
		began := time.Now()
		next, _ := s.Next(at(t, "2026-01-01"), time.Time{})
		if took := time.Since(began); !next.IsZero() || took > time.Minute {
			t.Errorf("P1.1 %s in %s is %v, found in %v", spec, zone, next, took)
		}
	}
}

func TestChangesOfTheClock(t *testing.T) {
	s, err := cronspec.Parse("30 2 * * *", "Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	// Forward on 29 March 2026: 2:30 does not come.
	next, skipped := s.Next(at(t, "2026-03-28 02:00"), time.Time{})
	if !next.Equal(at(t, "2026-03-30 00:30")) || len(skipped) != 1 ||
		!skipped[0].At.Equal(at(t, "2026-03-29 01:30")) || skipped[0].Repeated {
		t.Errorf("P1.1: next %v, skipped %v", next, skipped)
	}
	// Back on 25 October 2026: 2:30 comes twice, and counts the first time.
	next, _ = s.Next(at(t, "2026-10-24 12:00"), time.Time{})
	if !next.Equal(at(t, "2026-10-25 00:30")) {
		t.Errorf("P1.1: the first 2:30 is %v", next)
	}
	if next, _ = s.Next(next, time.Time{}); !next.Equal(at(t, "2026-10-26 01:30")) {
		t.Errorf("P1.1: after the first 2:30 comes %v", next)
	}
	if next, _ = s.Next(at(t, "2026-10-25 01:10"), time.Time{}); !next.Equal(at(t, "2026-10-26 01:30")) {
		t.Errorf("P1.1: between the two 3:00 comes %v", next)
	}
	// Every half hour over both changes: each reading once.
	half, err := cronspec.Parse("*/30 * * * *", "Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for day, want := range map[string]int{"2026-03-28 23:00": 46, "2026-10-24 22:00": 48} {
		seen := make(map[string]bool)
		berlin, _ := time.LoadLocation("Europe/Berlin")
		tm := at(t, day).Add(-time.Second)
		n := 0
		for {
			tm, _ = half.Next(tm, time.Time{})
			if !tm.Before(at(t, day).Add(time.Duration(want+2)*30*time.Minute)) ||
				tm.In(berlin).Format("02") != at(t, day).Add(2*time.Hour).In(berlin).Format("02") {
				break
			}
			wall := tm.In(berlin).Format("15:04")
			if seen[wall] {
				t.Errorf("P1.1: %s twice", wall)
			}
			seen[wall] = true
			n++
		}
		if n != want {
			t.Errorf("P1.1: %d times on the day after %s, want %d", n, day, want)
		}
	}
}

func TestEvery(t *testing.T) {
	s, err := cronspec.Parse("@every 10m", "")
	if err != nil {
		t.Fatal(err)
	}
	anchor := at(t, "2026-01-01 00:03")
	for after, want := range map[string]string{"2026-01-01 00:03": "2026-01-01 00:13",
		"2026-01-01 00:12": "2026-01-01 00:13", "2026-01-01 00:13": "2026-01-01 00:23",
		"2026-01-02 00:00": "2026-01-02 00:03"} {
		if got, _ := s.Next(at(t, after), anchor); !got.Equal(at(t, want)) {
			t.Errorf("P1.1: after %s comes %v, want %s", after, got, want)
		}
	}
}

// A reading that comes twice counts the first time, and the second is told: between 02:45
// and 03:00 lie 75 minutes.
func TestRepeatedHour(t *testing.T) {
	for _, tt := range []struct{ spec, zone, after, next, missed string }{
		{"*/15 * * * *", "Europe/Berlin", "2026-10-25 00:45", "2026-10-25 02:00", "01:00 01:15 01:30 01:45"},
		{"*/15 * * * *", "Europe/Berlin", "2026-10-25 01:20", "2026-10-25 02:00",
			"01:30 01:45"}, // set in the repeated hour
		{"*/15 * * * *", "Europe/Berlin", "2026-10-25 00:30", "2026-10-25 00:45", ""},
		{"*/15 * * * *", "Europe/Berlin", "2026-10-25 02:00", "2026-10-25 02:15", ""},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25 00:30", "2026-10-26 01:30", "01:30"},
		{"30 3 * * *", "Europe/Berlin", "2026-10-24 12:00", "2026-10-25 02:30", ""},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04 14:45", "2026-04-05 15:15",
			"15:15"}, // put back by half an hour
		{"*/15 * * * *", "UTC", "2026-10-25 00:45", "2026-10-25 01:00", ""},
		{"30 2 1 1 *", "Europe/Berlin", "2026-01-02 00:00", "2027-01-01 01:30", ""},
	} {
		s, err := cronspec.Parse(tt.spec, tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		next, missed := s.Next(at(t, tt.after), time.Time{})
		var got []string
		for _, m := range missed {
			if !m.Repeated {
				t.Errorf("P1.1 %s after %s: %v is skipped", tt.spec, tt.after, m.At)
			}
			got = append(got, m.At.Format("15:04"))
		}
		if !next.Equal(at(t, tt.next)) || strings.Join(got, " ") != tt.missed {
			t.Errorf("P1.1 %s after %s: next %v, missed %q; want %s, %q", tt.spec, tt.after, next, got,
				tt.next, tt.missed)
		}
	}
}

// Next looks at the times that it returns, and not at those of an hour that has come
// twice before or is coming twice: its allocations are those of some looks.
func TestNextCostsTheSameInEveryZone(t *testing.T) {
	for _, spec := range []string{"* * * * * *", "* * * * *", "0 3 * * *"} {
		for _, after := range []string{"2026-07-01 00:00", "2026-11-01 00:00", "2026-12-24 18:00:30",
			"2027-03-01 00:00", "2026-10-25 02:00"} {
			allocs := func(zone string) float64 {
				s, err := cronspec.Parse(spec, zone)
				if err != nil {
					t.Fatal(err)
				}
				from := at(t, after)
				return testing.AllocsPerRun(1, func() { s.Next(from, time.Time{}) })
			}
			for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
				if got, most := allocs(zone), 2*allocs("UTC")+200; got > most {
					t.Errorf("%s in %s after %s: %v allocations, more than %v", spec, zone, after, got, most)
				}
			}
		}
	}
	s, err := cronspec.Parse("* * * * * *", "Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	second := at(t, "2026-10-25 01:00") // the second coming of 2:00
	if n := testing.AllocsPerRun(1, func() { s.Next(second, time.Time{}) }); n > 5000 {
		t.Errorf("in an hour that comes twice: %v allocations", n)
	}
}

// A reading that the clock skips counts at the change if the schedule says so: once for
// all readings of a change, and not again beside a reading that falls on the change.
func TestRunInGap(t *testing.T) {
	for _, tt := range []struct{ spec, zone, after, next, then string }{
		{"30 2 * * *", "Europe/Berlin", "2026-03-28 02:00", "2026-03-29 01:00", "2026-03-30 00:30"},
		{"30 2 * * *", "Europe/Berlin", "2026-03-29 01:00", "2026-03-30 00:30", "2026-03-31 00:30"},
		{"*/15 2 * * *", "Europe/Berlin", "2026-03-29 00:00", "2026-03-29 01:00", "2026-03-30 00:00"},
		{"*/15 * * * *", "Europe/Berlin", "2026-03-29 00:45", "2026-03-29 01:00", "2026-03-29 01:15"},
		{"*/7 * * * *", "Europe/Berlin", "2026-03-29 00:56", "2026-03-29 01:00", "2026-03-29 01:07"},
		{"@daily", "Africa/Cairo", "2026-04-23 00:00", "2026-04-23 22:00", "2026-04-24 21:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24 02:00", "2026-10-25 00:30", "2026-10-26 01:30"},
		{"30 2 * * *", "UTC", "2026-03-28 02:00", "2026-03-28 02:30", "2026-03-29 02:30"},
	} {
		s, err := cronspec.Parse(tt.spec, tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		s = s.RunInGap()
		next, missed := s.Next(at(t, tt.after), time.Time{})
		then, more := s.Next(next, time.Time{})
		if !next.Equal(at(t, tt.next)) || !then.Equal(at(t, tt.then)) {
			t.Errorf("%s in %s after %s: %v and %v, not %s and %s", tt.spec, tt.zone, tt.after, next, then,
				tt.next, tt.then)
		}
		for _, m := range append(missed, more...) {
			if !m.Repeated {
				t.Errorf("%s in %s after %s: %v is skipped", tt.spec, tt.zone, tt.after, m.At)
			}
		}
	}
}

// The next time is after its input, shows a reading that the expression names, and none
// between them does.
func TestNextAgainstAModel(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}
	rapid.Check(t, func(t *rapid.T) {
		minute, hour := rapid.IntRange(0, 59).Draw(t, "minute"), rapid.IntRange(0, 23).Draw(t, "hour")
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Skip(err)
		}
		s, err := cronspec.Parse(time.Date(0, 1, 1, hour, minute, 0, 0, time.UTC).Format("4 15")+
			" * * *", zone)
		if err != nil {
			t.Fatal(err)
		}
		after := time.Unix(rapid.Int64Range(1_770_000_000, 1_800_000_000).Draw(t, "after")/60*60, 0).UTC()
		got, _ := s.Next(after, time.Time{})
		seen := make(map[string]bool) // days on which the reading has come before: it counts the first time
		for m := after.Add(-30 * time.Hour).Truncate(time.Minute); ; m = m.Add(time.Minute) {
			local := m.In(loc)
			day := local.Format("2006-01-02")
			if local.Hour() != hour || local.Minute() != minute || seen[day] {
				continue
			}
			seen[day] = true
			if m.After(after) {
				if !got.Equal(m) {
					t.Fatalf("%d:%02d in %s after %v is %v, want %v", hour, minute, zone, after, got, m)
				}
				return
			}
		}
	})
}

// An accepted schedule has a next time after any time, unless the clock of its zone skips
// it. A refused one has an error with the reason.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"* * * * *", "0 0 L * *", "15W", "5#2", "@every 1h", "*/5 1-10/2 1,2 JAN mon-fri", "0 0 0 29 2 ?",
		"@daily", "0 0 * * 1L",
		"0,foo 3 * * *", "0 0 1 1 * 2020", "0 3 1-5,8-7 * *", "0 0 30,31 2 */7", "0 0 */28 2 5#5",
		"30 2 29-31 3 */7",
	} {
		f.Add(s, "Europe/Berlin", int64(1_774_000_000))
	}
	f.Fuzz(func(t *testing.T, spec, zone string, sec int64) {
		s, err := cronspec.Parse(spec, zone)
		if err != nil {
			var invalid *ojs.InvalidError
			if !errors.As(err, &invalid) || invalid.Reason == "" {
				t.Errorf("%q in %q: %v", spec, zone, err)
			}
			return
		}
		after := time.Unix(sec%(1<<33), 0).UTC()
		if next, _ := s.Next(after, time.Time{}); !next.IsZero() && !next.After(after) {
			t.Errorf("%q in %q after %v is %v", spec, zone, after, next)
		}
		s, err = cronspec.Parse(spec, "")
		if err != nil {
			t.Fatalf("%q in %q only: %v", spec, zone, err)
		}
		if next, _ := s.Next(after, time.Time{}); !next.After(after) {
			t.Errorf("%q after %v is %v", spec, after, next)
		}
	})
}
