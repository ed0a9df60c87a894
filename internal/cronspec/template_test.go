package cronspec

import (
	"errors"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

func TestFill(t *testing.T) {
	// 00:30 on the 27th in Berlin, the day after the change of the clock
	due := time.Date(2000, 3, 26, 22, 30, 0, 0, time.UTC)
	for args, want := range map[string]string{
		`null`:    `null`,
		`"{run}"`: `"2000-03-27T00:30:00+02:00"`,
		`{"day":"{run-1d:Jan 2}","n":1.50,"s":"\"{ru"}`:            `{"day":"Mar 26","n":1.50,"s":"\"{ru"}`,
		`["{run:Jan 2} to {run+36h:Jan 2}", "a\\", "{run:15:04}"]`: `["Mar 27 to Mar 28", "a\\", "00:30"]`,
		`{"{run}" : "x","a" :{"b":["{run-30m:\"15\"}"]}}`:          `{"{run}" : "x","a" :{"b":["\"00\""]}}`,
	} {
		got, err := Fill([]byte(args), due, "Europe/Berlin")
		if err != nil || string(got) != want {
			t.Errorf("%s: got  %s, %v\nwant %s", args, got, err, want)
		}
	}
	days := []byte(`"{run-24h:02 15:04} {run-1d:02 15:04}"`)
	got, err := Fill(days, due.Add(-12*time.Hour), "Europe/Berlin")
	if want := `"25 11:30 25 12:30"`; err != nil || string(got) != want {
		t.Errorf("over the change of the clock: got %s, %v, want %s", got, err, want)
	}
	for _, args := range []string{
		`"{run"`, `"{runs}"`, `"{run-1x}"`, `"{run+}"`, `"{run 1d}"`, `"{run:}"`, `"{run+99999999999d}"`,
		`["x","{run1d}"]`,
	} {
		var invalid *ojs.InvalidError
		if got, err := Fill([]byte(args), due, ""); !errors.As(err, &invalid) || invalid.Field != "args" {
			t.Errorf("%s: %s, %v", args, got, err)
		}
	}
}
