package postgres_test

import (
	"testing"

	"github.com/ojsengine/ojs/internal/test/fleettest"
	"github.com/ojsengine/ojs/storage"
)

// A fleet over four schemas of one server.
func TestFleet(t *testing.T) {
	t.Parallel()
	var cells []storage.Storage
	for range 4 {
		s, _ := open(t, "")
		cells = append(cells, s)
	}
	fleettest.Run(t, cells...)
}
