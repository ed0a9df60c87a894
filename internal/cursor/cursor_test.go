package cursor_test

import (
	"errors"
	"math"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cursor"
)

func TestRoundTrip(t *testing.T) {
	for _, c := range []cursor.Cursor{
		{}, {After: cursor.Position{7}}, {After: cursor.Position{-7, 9}, Back: true},
		{After: cursor.Position{math.MinInt64, math.MaxInt64}}, {Back: true},
		{After: cursor.Position{1, 0, 3}}, {After: cursor.Position{1, 2, -3}, Back: true},
	} {
		if got, err := cursor.Parse(c.String()); err != nil || got != c {
			t.Errorf("%q is read as %+v, %v, not %+v", c, got, err, c)
		}
	}
}

func TestRefusesWhatIsNoCursor(t *testing.T) {
	for _, text := range []string{"x", "<", "1.", ".1", "1.2.3.4", "99999999999999999999", "1 "} {
		if _, err := cursor.Begin(text); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
