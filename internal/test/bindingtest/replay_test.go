package bindingtest_test

import (
	"testing"

	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

func TestReplay(t *testing.T) {
	bindingtest.Replay(t, func(tb testing.TB) storage.Storage {
		s := memory.New()
		tb.Cleanup(func() { _ = s.Close() })
		return s
	})
}
