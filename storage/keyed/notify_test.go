package keyed_test

import (
	"testing"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
)

// watched is a store that keeps what it was given to call.
type watched struct {
	driver.DB
	changed []func()
}

func (w *watched) Watch(changed func()) { w.changed = append(w.changed, changed) }

// Listeners hear that there may be anything whenever the driver says so.
func TestNotifyByADriverThatWatches(t *testing.T) {
	db := &watched{DB: drivertest.NewMemory(false, driver.Limits{Shared: true})}
	s := open(t, db).(*keyed.Storage)
	told := [2]int{}
	for i := range told {
		defer s.Notify(t, func(n storage.Notice) {
			if n.Everything {
				told[i]++
			}
		})()
	}
	if len(db.changed) != 1 {
		t.Fatalf("Watch was called %d times", len(db.changed))
	}
	db.changed[0]()
	if told != [2]int{1, 1} {
		t.Errorf("listeners were told %v times", told)
	}
}
