package cronspec_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cronspec"
)

// wantRefused parses what is bad and checks the error's type and text.
func wantRefused(t *testing.T, spec, zone, want string) {
	t.Helper()
	s, err := cronspec.Parse(spec, zone)
	var invalid *ojs.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("accepted as %+v, or an error of another type: %v", s, err)
	}
	if got := err.Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRefused(t *testing.T) {
	const notWeekday = " is not from 0 to 7 or SUN to SAT"
	for _, tt := range []struct{ spec, want string }{
		{"", "has 0 fields, neither 5 nor 6"},
		{"* * * *", "has 4 fields, neither 5 nor 6"},
		{"* * * * * * *", "has 7 fields, neither 5 nor 6"},
		{strings.Repeat("1,", 300) + "1 * * * *", "has 609 bytes, more than 512"},
		{"60 * * * * *", `second "60" is not from 0 to 59`},
		{"60 * * * *", `minute "60" is not from 0 to 59`},
		{"* 24 * * *", `hour "24" is not from 0 to 23`},
		{"* * 32 * *", `day of month "32" is not from 1 to 31`},
		{"* * * 13 *", `month "13" is not from 1 to 12 or JAN to DEC`},
		{"* * * * 8", `day of week "8"` + notWeekday},
		{"x * * * *", `minute "x" is not from 0 to 59`},
		{"+5 * * * *", `minute "+5" is not from 0 to 59`},
		{"99999999999999999999 * * * *", `minute "99999999999999999999" is not from 0 to 59`},
		{"* * 0 * *", `day of month "0" is not from 1 to 31`},
		{"* * 0/5 * *", `day of month "0/5" is not from 1 to 31`},
		{"* * * January *", `month "January" is not from 1 to 12 or JAN to DEC`},
		{"* * * * a", `day of week "a"` + notWeekday},
		{"MON * * * *", `minute "MON" is not from 0 to 59`},
		{"* * * * SUNMON", `day of week "SUNMON"` + notWeekday},
		{"0,foo 3 * * *", `minute "foo" is not from 0 to 59`},
		{"0,61 3 * * *", `minute "61" is not from 0 to 59`},
		{"0 0,25 * * *", `hour "25" is not from 0 to 23`},
		{"0 3 1,32 * *", `day of month "32" is not from 1 to 31`},
		{"0 3 * 1,13 *", `month "13" is not from 1 to 12 or JAN to DEC`},
		{"*/15,foo * * * *", `minute "foo" is not from 0 to 59`},
		{"0-10,99 * * * *", `minute "99" is not from 0 to 59`},
		{"0 3 1-5,8-7 * *", `day of month "8-7" ends before it begins`},
		{"0 3 * * 1-5,8-7", `day of week "8-7"` + notWeekday},
		{"1,,2 * * * *", `minute "1,,2" has an empty element`},
		{"1, * * * *", `minute "1," has an empty element`},
		{"5-1 * * * *", `minute "5-1" ends before it begins`},
		{"* * * * sat-Sun", `day of week "sat-Sun" ends before it begins`},
		{"1-5-9 * * * *", `minute "1-5-9" is not from 0 to 59`},
		{"1- * * * *", `minute "1-" is not from 0 to 59`},
		{"0,*-5 * * * *", `minute "*-5" is not from 0 to 59`},
		{"*/0 * * * *", `minute "*/0" has a step that is not from 1 to 60`},
		{"*/70 * * * *", `minute "*/70" has a step that is not from 1 to 60`},
		{"* * * * */8", `day of week "*/8" has a step that is not from 1 to 7`},
		{"0,*/5/3 * * * *", `minute "*/5/3" has a step that is not from 1 to 60`},
		{"0,5/ * * * *", `minute "5/" has a step that is not from 1 to 60`},
		{"0,/5 * * * *", `minute "/5" is not from 0 to 59`},
		{"0,99/5 * * * *", `minute "99/5" is not from 0 to 59`},
		{"L * * * *", `minute "L" is not from 0 to 59`},
		{"* * Lw * *", `day of month "Lw" is not from 1 to 31`},
		{"* * 1,0W * *", `day of month "0W" is not from 1 to 31`},
		{"* * 1,15W/2 * *", `day of month "15W/2" is not from 1 to 31`},
		{"* * L-3 * *", `day of month "L-3" is not from 1 to 31`},
		{"* * * * l", `day of week "l"` + notWeekday},
		{"* * * * 8L", `day of week "8L"` + notWeekday},
		{"* * * * 1,5L/2", `day of week "5L/2"` + notWeekday},
		{"* * * * 1,5#6", `day of week "5#6" has no number from 1 to 5 after its #`},
		{"* * * * 1,5#", `day of week "5#" has no number from 1 to 5 after its #`},
		{"* * * * 1,5#2#3", `day of week "5#2#3" has no number from 1 to 5 after its #`},
		{"0 0 1 1 * 2020", `day of week "2020"` + notWeekday},
		{"0 0 1 1 * 2099", `day of week "2099"` + notWeekday},
		{"0 0 30 2 *", `"0 0 30 2 *" never comes`},
		{"0 3 31 2 *", `"0 3 31 2 *" never comes`},
		{"0 0 31W apr ?", `"0 0 31W apr ?" never comes`},
		{"@always", `"@always" is unknown`},
		{"@5minutes", `"@5minutes" is unknown`},
		{"@every", `"@every" is unknown`},
		{"@every x", `"x" is no duration`},
		{"@every 1ms", "1ms is less than a second"},
		{"@every -1h", "-1h0m0s is less than a second"},
	} {
		t.Run("P1.1 "+tt.spec[:min(len(tt.spec), 40)], func(t *testing.T) {
			wantRefused(t, tt.spec, "", "ojs: invalid schedule: "+tt.want)
		})
	}
}
