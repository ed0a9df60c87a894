package dashboard

import (
	"context"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

// A group of failures tells how many jobs have failed in the last hour, and in the hour
// before.
func TestFailuresTrend(t *testing.T) {
	s := newSite(t)
	s.eng.Handle("mail.send", func(context.Context, *ojs.Job[any]) error {
		return ojs.Permanent(ojs.Errorf("smtp.refused", "greylisted"))
	})
	fail := func(n int) {
		for range n {
			s.enqueue("mail.send", nil)
		}
		s.run()
	}
	fail(3)
	s.clock.Add(90 * time.Minute)
	fail(2)
	s.has("/failures/", "2 in the last hour, 3 in the hour before", `<svg class="spark"`)
	s.clock.Add(90 * time.Minute)
	s.has("/failures/", "0 in the last hour, 2 in the hour before")
}
