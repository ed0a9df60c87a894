package pipeline_test

import (
	"testing"
	"testing/synctest"

	"github.com/ojsengine/ojs/engine/internal/pipeline"
)

// While a goroutine rests, Start wakes it and makes no new one. A few rest at most, and
// none after the end.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pipeline.NewCrew()
		begun, rests, left := make(chan struct{}, 10), make(chan bool, 10), 0
		work := func() {
			begun <- struct{}{}
			for rest := true; rest; rests <- rest {
				rest = c.Rest()
			}
		}
		for range 10 {
			c.Start(work)
		}
		synctest.Wait()
		for len(rests) > 0 {
			if <-rests {
				t.Error("a goroutine was woken that did not rest")
			}
			left++
		}
		if left != 6 || len(begun) != 10 {
			t.Errorf("of %d goroutines %d have left, want 6 of 10", len(begun), left)
		}
		c.Start(func() { t.Error("a goroutine was started though others rest") })
		if !<-rests {
			t.Error("a goroutine that rests has ended")
		}
		synctest.Wait()
		c.End()
		for range 4 {
			if <-rests {
				t.Error("a goroutine was woken by the end")
			}
		}
		if c.Rest() {
			t.Error("a goroutine rests after the end")
		}
	})
}
