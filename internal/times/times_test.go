package times_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs/internal/times"
)

func TestEarliestAndLatest(t *testing.T) {
	var none time.Time
	first, later := time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range []struct{ a, b, want time.Time }{
		{first, later, first}, {later, first, first}, {none, later, later}, {later, none, later},
		{first, first, first}, {none, none, none},
	} {
		got := times.Latest(c.a, c.b)
		if got.Before(c.a) || got.Before(c.b) || !got.Equal(c.a) && !got.Equal(c.b) {
			t.Errorf("of %v and %v: %v is not the later one", c.a, c.b, got)
		}
		if got := times.Earliest(c.a, c.b); !got.Equal(c.want) {
			t.Errorf("of %v and %v: %v, not %v", c.a, c.b, got, c.want)
		}
	}
}
