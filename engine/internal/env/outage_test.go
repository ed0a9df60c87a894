package env

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/engine/internal/logs"
)

// An outage lasts no negative time in the log: neither if another call has failed while
// one was on its way here, nor if the clock is set back.
func TestOutageIsNotNegative(t *testing.T) {
	for name, between := range map[string]func(*Env, *clock.Mock){
		"another call": func(c *Env, mock *clock.Mock) {
			mock.Add(time.Second)
			c.Failed("later", errors.New("gone"))
		},
		"the clock is set back": func(c *Env, mock *clock.Mock) {
			c.Failed("earlier", errors.New("gone"))
			mock.Set(mock.Now().Add(-time.Hour))
		},
	} {
		var out bytes.Buffer
		mock, nested := clock.NewMock(), false
		c := &Env{Lines: &logs.Lines{}}
		c.Clock, c.Log = mock, slog.New(slog.NewTextHandler(&out, nil))
		c.WakeAt, c.RecoverAt = func(time.Time) {}, func(time.Time) {}
		c.ClosedBy = func(error) bool {
			if !nested {
				nested = true
				between(c, mock)
			}
			return false
		}
		c.Failed("call", errors.New("gone"))
		mock.Set(mock.Now().Add(-time.Hour))
		c.Answered()
		if text := out.String(); !strings.Contains(text, "outage_seconds=0") ||
			strings.Contains(text, "outage_seconds=-") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
