package cronspec

import (
	"testing"
	"time"

	"github.com/adhocore/gronx"
)

// The head of this package is right about gronx.
func TestGronx(t *testing.T) {
	g := gronx.New()
	for _, expr := range []string{
		"+5 * * * *", "*/70 * * * *", "0 0 * * 5#6", "0 0 1 1 * 2027", "@5minutes",
	} {
		if !g.IsValid(expr) {
			t.Errorf("gronx refuses %q", expr)
		}
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	midnight := func(month time.Month, day int) time.Time {
		return time.Date(2026, month, day, 0, 0, 0, 0, berlin)
	}
	for _, tt := range []struct {
		expr  string
		after time.Time
		want  time.Duration // from then on
	}{
		{"30 2 * * *", midnight(3, 29), 25*time.Hour + 30*time.Minute}, // skips a day
		{"30 2 * * *", midnight(10, 25), 3*time.Hour + 30*time.Minute}, // comes after 2.5 h, too
		{"*/15,x * * * *", midnight(3, 1), 15 * time.Minute},
	} {
		got, err := gronx.NextTickAfter(tt.expr, tt.after, false)
		if err != nil || got.Sub(tt.after) != tt.want {
			t.Errorf("%q after %v: %v, %v", tt.expr, tt.after, got, err)
		}
	}
	if _, err := gronx.NextTick("@every 5m", false); err == nil {
		t.Error("gronx reads @every")
	}
}
