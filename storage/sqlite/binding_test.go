package sqlite_test

import (
	_ "embed"
	"testing"

	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/storage"
)

// The server of the HTTP binding answers over this storage as it does over memory.
func TestBinding(t *testing.T) {
	bindingtest.Replay(t, func(tb testing.TB) storage.Storage { return fresh(tb) })
}

//go:embed testdata/fresh.go.txt
var freshFile string

// The tests of the server and of its client pass on this storage.
func TestBindingSuite(t *testing.T) { bindingtest.Suite(t, freshFile) }
