package dashboard

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// Of more running jobs than the page reads, it says that there may be more. Only those
// that it shows are masked.
func TestManyRunning(t *testing.T) {
	store, hidden := memory.New(), 0
	s := siteOn(t, store, WithRedact(func(_ *ojs.JobInfo, _ Part, in []byte) []byte { hidden++; return in }))
	drafts := make([]ojs.Draft, 550)
	for i := range drafts {
		drafts[i] = ojs.NewDraft("t", i, ojs.WithTimeout(time.Second))
	}
	for range 2 {
		if _, err := s.eng.EnqueueMany(t.Context(), drafts...); err != nil {
			t.Fatal(err)
		}
		claim := storage.Claim{Queues: []string{"default"}, Max: len(drafts), Worker: "w"}
		if _, err := store.Claim(t.Context(), s.clock.Now(), claim, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.clock.Add(time.Minute)
	s.has("/running/", `Running <span class="count">1,100<`, "1,000&#43; take too long")
	if hidden == 0 || hidden > 3*shownRunning {
		t.Errorf("%d parts were redacted", hidden)
	}
}

// A request whose client has left does not wait for the summary of another.
func TestOverviewOfAClientThatHasLeft(t *testing.T) {
	s := newSite(t)
	s.pages.sums.slot <- struct{}{}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	r.Host = "localhost"
	s.pages.ServeHTTP(httptest.NewRecorder(), r)
	<-s.pages.sums.slot
	s.ok("/")
}
