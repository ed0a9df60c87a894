package postgres

import (
	"testing"

	"github.com/ojsengine/ojs/storage"
)

// Of two looks for limits of queues and types, the one that ends last may have begun
// first.
func TestKeepWide(t *testing.T) {
	limit := func(name string) storage.LimitName {
		return storage.LimitName{Kind: storage.LimitQueue, Name: name}
	}
	var s Storage
	s.keepWide(wideSet{limit("a"): true})
	s.keepWide(wideSet{limit("a"): true, limit("b"): true})
	s.keepWide(wideSet{limit("a"): true})
	if n := len(*s.wide.Load()); n != 2 {
		t.Errorf("%d limits are known, not 2", n)
	}
}
