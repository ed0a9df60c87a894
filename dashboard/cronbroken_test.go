package dashboard

import (
	"context"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// The pages of an entry whose time zone this machine does not know say so.
func TestEntryThatCannotRun(t *testing.T) {
	ctx, store := context.Background(), memory.New()
	eng, err := engine.New[any](store, engine.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	entry := cron.Entry{Name: "nightly", Schedule: "0 3 * * *", Job: ojs.NewDraft("t", nil)}
	if err := eng.Cron().Set(ctx, entry); err != nil {
		t.Fatal(err)
	}
	list, err := document.Of(store).Crons(ctx, storage.DocumentQuery{})
	if err != nil {
		t.Fatal(err)
	}
	list[0].TimeZone = "Mars/Olympus"
	if _, err := document.Of(store).SetCrons(ctx, list); err != nil {
		t.Fatal(err)
	}
	pages, err := New(eng, WithLogger(quiet), WithAuthorizer(AllowAll))
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	s := &site{t, nil, eng, pages}
	if body := s.ok("/cron/nightly/"); !strings.Contains(body, "The entry cannot run in this process.") ||
		!strings.Contains(body, "Mars/Olympus") {
		t.Error(body)
	}
	for _, page := range []string{"/cron/", "/cron/nightly/edit/"} {
		s.ok(page)
	}
}
