package cronspec_test

import (
	"testing"

	"github.com/ojsengine/ojs/internal/cronspec"
)

func TestZones(t *testing.T) {
	for _, zone := range []string{
		"", "UTC", "Etc/UTC", "Etc/GMT", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Tokyo",
	} {
		if _, err := cronspec.Parse("@daily", zone); err != nil {
			t.Errorf("P1.1 %q: %v", zone, err)
		}
	}
}

func TestZonesRefused(t *testing.T) {
	for _, tt := range []struct{ zone, want string }{
		{"+02:00", `"+02:00" is not written as Area/City, such as Europe/Berlin`},
		{"EST", `"EST" is not written as Area/City, such as Europe/Berlin`},
		{"CET", `"CET" is not written as Area/City, such as Europe/Berlin`},
		{"Local", `"Local" is not written as Area/City, such as Europe/Berlin`},
		{"Japan", `"Japan" is not written as Area/City, such as Europe/Berlin`},
		{"Etc/GMT+5", `"Etc/GMT+5" is an offset and not a place, such as Europe/Berlin`},
		{"Nowhere/City", `"Nowhere/City" is not in the time zone database of this machine`},
		{"../etc/passwd", `"../etc/passwd" is not in the time zone database of this machine`},
	} {
		t.Run("P1.1 "+tt.zone, func(t *testing.T) {
			wantRefused(t, "@daily", tt.zone, "ojs: invalid time_zone: "+tt.want)
		})
	}
}
