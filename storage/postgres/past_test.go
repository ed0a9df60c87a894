package postgres_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
)

// A claim that looks behind jobs finds jobs before it locks them. A job is
// left that another process changes in between, since another limit may count it then.
func TestClaimOfAJobThatHasChanged(t *testing.T) {
	s, name := open(t, "")
	rec := record(1)
	rec.RateLimit = &ojs.RateLimit{Key: "k", Concurrency: 1}
	must(t, insert(t.Context(), s, rec))
	found := rows.Waiting{Queue: "q", Type: "x", Key: "k"}
	must(t, connect(t).QueryRow(t.Context(), `SELECT seq FROM "`+name+`".job`).Scan(&found.Seq))
	bounds, err := rows.Bounds(rec.RateLimit)
	must(t, err)
	wants := func(what string, want int, j rows.Waiting, bounds string) {
		t.Helper()
		n, err := s.ClaimFound(t.Context(), time.Now(), j, bounds)
		must(t, err)
		if n != want {
			t.Errorf("a claim takes %d jobs with another %s, not %d", n, what, want)
		}
	}
	was := found
	was.Queue = "p"
	wants("queue", 0, was, bounds)
	was = found
	was.Type = "y"
	wants("type", 0, was, bounds)
	was = found
	was.Key = "l"
	wants("key", 0, was, bounds)
	wants("limit", 0, found, `{"Key":"k","Concurrency":9}`)
	wants("nothing", 1, found, bounds)
}
