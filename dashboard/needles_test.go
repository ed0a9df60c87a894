package dashboard

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/needles"
	"github.com/ojsengine/ojs/storage/memory"
)

// Pages find the few jobs that people look for among many others, older and newer ones.
// Module cmd/ojs asks the same of the other storages.
func TestNeedles(t *testing.T) {
	cl := clock.NewMock()
	cl.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	store := memory.New()
	eng, err := engine.New[any](store, engine.WithClock(cl), engine.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	flows := needles.Fill(t, store, eng, cl, 100_000)
	pages, err := New(eng, WithClock(cl), WithLogger(quiet), WithAuthorizer(AllowAll))
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	needles.Check(t, pages, flows)
}
