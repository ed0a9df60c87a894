package sqlite_test

import (
	"testing"

	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/storage"
)

// The server of the HTTP binding answers over this storage as it does over memory.
func TestBinding(t *testing.T) {
	bindingtest.Replay(t, func(tb testing.TB) storage.Storage { return fresh(tb) })
}
