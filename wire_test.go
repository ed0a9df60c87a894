package ojs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

// encoding/json checks the input of an UnmarshalJSON. A direct call with bad input gets
// an error too.
func TestMalformedJSON(t *testing.T) {
	for _, in := range []string{"", " ", "{", "[", "[1", "{1:2}", `{"type"}`, `{"type":}`, `{"type":"x"`,
		`{"type":"x",}`, `{"type":"x"}}`, `{"type":"x"} {}`, `{"type":"x"}]`, "}", "nul", "\xff"} {
		for name, v := range map[string]json.Unmarshaler{
			"JobInfo": new(ojs.JobInfo), "RetryPolicy": new(ojs.RetryPolicy), "Args": new(ojs.Args),
			"Failure": new(ojs.Failure), "Error": new(ojs.Error),
		} {
			t.Run(fmt.Sprintf("P0.10 %s %q", name, in), func(t *testing.T) {
				if err := v.UnmarshalJSON([]byte(in)); !errors.Is(err, ojs.ErrInvalid) ||
					!strings.HasPrefix(err.Error(), "ojs: ") {
					t.Errorf("error %v", err)
				}
			})
		}
		if _, err := ojs.ParseDraft([]byte(in)); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("ParseDraft of %q: %v", in, err)
		}
	}
}

func TestEnvelopeTimes(t *testing.T) {
	good := map[string]time.Time{
		"2026-02-12T10:31:05Z":                time.Date(2026, 2, 12, 10, 31, 5, 0, time.UTC),
		"2026-02-12T10:31:05.5Z":              time.Date(2026, 2, 12, 10, 31, 5, 5e8, time.UTC),
		"2026-02-12T10:31:05.1234567899Z":     time.Date(2026, 2, 12, 10, 31, 5, 123456789, time.UTC),
		"2026-02-12T10:31:05+01:00":           time.Date(2026, 2, 12, 9, 31, 5, 0, time.UTC),
		"2026-02-12T10:31:05.25-23:59":        time.Date(2026, 2, 13, 10, 30, 5, 25e7, time.UTC),
		"0001-01-01T00:00:00.000000001Z":      time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC),
		"9999-12-31T23:59:59.999999999Z":      time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		"2026-02-12T10:31:05.000000000+00:00": time.Date(2026, 2, 12, 10, 31, 5, 0, time.UTC),
	}
	bad := []string{
		"", "now", "2026-02-12", "2026-02-12T10:31:05", "2026-02-12 10:31:05Z", "2026-02-12T10:31:05,5Z",
		"2026-02-12T10:31:05.Z",
		"2026-02-12T1:31:05Z", "2026-02-12T10:31Z", "2026-02-12T10:31:05+24:00", "2026-02-12T10:31:05+01:60",
		"2026-02-12T10:31:05+0100",
		"2026-02-12T10:31:05+01", "2026-02-30T10:31:05Z", "2026-02-12T24:00:00Z", "2026-02-12T10:31:05ZZ",
		" 2026-02-12T10:31:05Z",
		"2026-02-12T10:31:05Z\\n", "0001-01-01T00:00:00Z", "0000-12-31T23:59:59Z",
		"0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-01:00",
		"12026-02-12T10:31:05Z", "2026-02-12T10:31:05 UTC",
	}
	// The envelope's own and those of its errors are of the same kind.
	forms := map[string]struct {
		format string
		get    func(*ojs.JobInfo) time.Time
	}{
		"scheduled_at": {`{"type":"x","scheduled_at":%s}`,
			func(j *ojs.JobInfo) time.Time { return j.ScheduledAt }},
		"expires_at in options": {`{"type":"x","options":{"expires_at":%s}}`,
			func(j *ojs.JobInfo) time.Time { return j.ExpiresAt }},
		"completed_at": {`{"type":"x","state":"completed","completed_at":%s}`,
			func(j *ojs.JobInfo) time.Time { return j.FinishedAt }},
		"error.timestamp": {`{"type":"x","error":{"timestamp":%s}}`,
			func(j *ojs.JobInfo) time.Time { return j.Error.At }},
		"errors.occurred_at": {`{"type":"x","errors":[{"occurred_at":%s}]}`,
			func(j *ojs.JobInfo) time.Time { return j.Errors[0].At }},
	}
	for name, form := range forms {
		for s, want := range good {
			t.Run("P0.1 "+name+" "+s, func(t *testing.T) {
				var j, again ojs.JobInfo
				err := json.Unmarshal(fmt.Appendf(nil, form.format, `"`+s+`"`), &j)
				if err != nil || form.get(&j) != want {
					t.Fatalf("%+v, %v", j, err)
				}
				b, err := json.Marshal(j)
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(b, &again); err != nil || form.get(&again) != want {
					t.Errorf("%s comes back as %v, %v", b, form.get(&again), err)
				}
				if !strings.Contains(string(b), want.Format(time.RFC3339Nano)) {
					t.Errorf("P0.1 UTC out: %s", b)
				}
			})
		}
		for _, s := range append(bad, "\x00") {
			value := `"` + s + `"`
			if s == "\x00" {
				value = "1770892265"
			}
			t.Run("P0.1 not "+name+" "+value, func(t *testing.T) {
				var j ojs.JobInfo
				var invalid *ojs.InvalidError
				err := json.Unmarshal(fmt.Appendf(nil, form.format, value), &j)
				last := name[strings.LastIndexByte(name, '.')+1:]
				if !errors.As(err, &invalid) || !strings.HasSuffix(invalid.Field, strings.Fields(last)[0]) ||
					!reflect.DeepEqual(j, ojs.JobInfo{}) {
					t.Errorf("%+v, %v", j, err)
				}
			})
		}
	}
}
