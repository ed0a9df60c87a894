package pace_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs/internal/test/pace"
)

func TestVirtual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		pace.Virtual(24 * time.Hour)
		if d := time.Since(begin); d != 24*time.Hour {
			t.Errorf("%v passed", d)
		}
	})
	defer func() {
		if recover() == nil {
			t.Error("it waits in real time")
		}
	}()
	pace.Virtual(time.Nanosecond)
}

func TestUntil(t *testing.T) {
	asked := 0
	pace.Until(t, "asked three times", func() bool { asked++; return asked == 3 })
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}
