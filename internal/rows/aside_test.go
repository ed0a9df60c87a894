package rows_test

import (
	"errors"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
)

func TestQuarantinePage(t *testing.T) {
	for _, tt := range []struct {
		after string
		limit int
		from  int64
		most  int
	}{
		{"", 0, 0, 1000}, {"", -1, 0, 1000}, {"", 1001, 0, 1000}, {"7", 1000, 7, 1000}, {"7", 1, 7, 1},
	} {
		if from, most, err := rows.QuarantinePage(tt.after, tt.limit); err != nil || from != tt.from ||
			most != tt.most {
			t.Errorf("after %q, limit %d: %d, %d, %v", tt.after, tt.limit, from, most, err)
		}
	}
	for _, after := range []string{"x", "1 ", "9223372036854775808"} {
		if _, _, err := rows.QuarantinePage(after, 1); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("after %q: %v", after, err)
		}
	}
}
