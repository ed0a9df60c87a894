package sqlite_test

import (
	"testing"

	"github.com/ojsengine/ojs/internal/test/fleettest"
	"github.com/ojsengine/ojs/storage"
)

// A fleet over three files.
func TestFleet(t *testing.T) {
	t.Parallel()
	var cells []storage.Storage
	for range 3 {
		s := open(t)
		t.Cleanup(func() { _ = s.Close() })
		cells = append(cells, s)
	}
	fleettest.Run(t, cells...)
}
