package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage/memory"
)

// The page of an engine that serves no pages itself shows what it runs, with the stacks
// of its handlers, and gives it orders.
func TestNodes(t *testing.T) { synctest.Test(t, testNodes) }

func testNodes(t *testing.T) {
	st := memory.New()
	reports := engine.WithReports(engine.Reports{Version: "v1.2.3"})
	other, err := engine.New[any](st, engine.WithName("other"), reports, engine.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	other.Handle("slow", func(context.Context, *ojs.Job[any]) error {
		<-end
		return nil
	})
	eng, err := engine.New[any](st, engine.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := New(eng, WithLogger(quiet), WithAuthorizer(AllowAll))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pages.Close(); err != nil {
			t.Error(err)
		}
	}()
	s := &site{t: t, eng: eng, pages: pages}
	id := s.enqueue("slow", nil)
	ended := make(chan error, 1)
	go func() { ended <- other.Run(context.Background()) }()
	pace.Virtual(time.Minute)
	nodes, err := eng.Jobs().Nodes(t.Context())
	if err != nil || len(nodes) != 1 {
		t.Fatalf("%+v, %v", nodes, err)
	}
	at := "/workers/" + nodes[0].ID + "/"
	if body := s.ok("/workers/"); !strings.Contains(body, `href="./`+nodes[0].ID+`/"`) {
		t.Error("no link to the node")
	}
	if body := s.ok(at); !strings.Contains(body, "v1.2.3") {
		t.Error(body)
	}
	if body := s.ok(at + "?stacks=1"); !strings.Contains(body, "testNodes") || !strings.Contains(body, id) {
		t.Errorf("no stack:\n%s", body)
	}
	form := url.Values{"id": {nodes[0].ID}, "do": {"quiet"}}.Encode()
	if w := s.do("POST", "/workers/", form); w.Code != http.StatusNotFound {
		t.Errorf("the button of a worker quiets an engine: %d", w.Code)
	}
	for do, want := range map[string]int{"quiet": 303, "nonsense": 404} {
		if w := s.do("POST", at, "do="+do); w.Code != want {
			t.Errorf("%s: %d\n%s", do, w.Code, w.Body)
		}
	}
	if w := s.get("/workers/none/"); w.Code != http.StatusNotFound {
		t.Error(w.Code)
	}
	close(end)
	if w := s.do("POST", at, "do=terminate"); w.Code != http.StatusSeeOther {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
	if err := <-ended; err != nil { // the order has ended Run
		t.Error(err)
	}
}

// An action is in the history of the job with the name of the person.
func TestActorIsInTheHistory(t *testing.T) {
	user := WithActor(func(r *http.Request) string { return r.Header.Get("User") })
	s, ids := full(t, WithAuthorizer(AllowAll), user)
	w := s.do("POST", "/jobs/"+ids["retryable"]+"/", "do=retry", "User", "ada")
	if w.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	if w := s.do("POST", "/act/", "do=retry&id="+ids["dead"], "User", "bob"); w.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	for name, want := range map[string]string{"retryable": "ada", "dead": "bob"} {
		job, err := s.eng.Get(context.Background(), ids[name])
		if err != nil {
			t.Fatal(err)
		}
		if n := len(job.History); n == 0 || job.History[n-1].By != want {
			t.Errorf("%s: %+v", name, job.History)
		}
	}
}
