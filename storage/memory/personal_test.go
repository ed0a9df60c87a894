package memory_test

import (
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// Calls of the storage that For returns are self's.
func TestFor(t *testing.T) {
	s := memory.New()
	var heard []storage.Notice
	stop := s.Notify("self", func(n storage.Notice) { heard = append(heard, n) })
	defer stop()
	insert(t, s.Bind("self", s), record("mine", ojs.StateAvailable))
	if len(heard) != 0 {
		t.Errorf("heard %v of its own calls", heard)
	}
	insert(t, s.Bind("other", s), record("theirs", ojs.StateAvailable))
	insert(t, s, record("nobody's", ojs.StateAvailable))
	if len(heard) != 2 {
		t.Errorf("heard %v of two others' calls", heard)
	}
}
