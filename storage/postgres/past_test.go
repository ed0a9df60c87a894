package postgres_test

import (
	"testing"
	"time"
)

// A claim with keys to skip finds jobs before it locks them. A job that another process
// moves to another queue in between is left.
func TestClaimOfAJobThatHasMoved(t *testing.T) {
	s, name := open(t, "")
	must(t, insert(t.Context(), s, record(1), record(2)))
	var seq int64
	must(t, connect(t).QueryRow(t.Context(), `SELECT min(seq) FROM "`+name+`".job`).Scan(&seq))
	for _, c := range []struct {
		queue string
		seq   int64
		want  int
	}{{"p", seq, 0}, {"q", seq, 1}, {"", seq + 1, 1}} {
		n, err := s.ClaimFound(t.Context(), time.Now(), c.queue, c.seq)
		must(t, err)
		if n != c.want {
			t.Errorf("a claim of queue %q takes %d jobs of queue q, want %d", c.queue, n, c.want)
		}
	}
}
