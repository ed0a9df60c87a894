package postgres_test

import (
	_ "embed"
	"testing"

	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/storage"
)

// The server of the HTTP binding answers over this storage as it does over memory.
func TestBinding(t *testing.T) {
	t.Parallel()
	bindingtest.Replay(t, func(tb testing.TB) storage.Storage {
		s, _ := open(tb, "")
		return s
	})
}

// Of two servers on one database one is killed, and nothing is lost or done twice.
func TestBindingKilled(t *testing.T) {
	st, name := open(t, "")
	bindingtest.Kill(t, name+" "+server, st)
}

//go:embed testdata/fresh.go.txt
var freshFile string

// The tests of the server and of its client pass on this storage.
func TestBindingSuite(t *testing.T) {
	connect(t) // or skip it
	t.Parallel()
	bindingtest.Suite(t, freshFile, "OJS_TEST_FRESH="+server)
}
