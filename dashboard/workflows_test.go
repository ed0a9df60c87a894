package dashboard

import (
	"context"
	"errors"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// A page that has not looked at all workflows does not say that there is none.
func TestPagesOfManyWorkflows(t *testing.T) {
	s := newSite(t)
	for i := range 130 {
		flow := workflow.New(fmt.Sprint("flow-", i), workflow.Step("a", ojs.NewDraft("t", i)))
		if _, err := s.eng.Workflows().Start(t.Context(), flow); err != nil {
			t.Fatal(err)
		}
	}
	body := s.has("/workflows/?state=failed", "None of the 100 workflows that were scanned has failed")
	next := regexp.MustCompile(`rel="next" href="\./(\?[^"]*)"`).FindStringSubmatch(body)
	if next == nil {
		t.Fatal("no page follows")
	}
	body = s.ok("/workflows/" + html.UnescapeString(next[1]))
	if strings.Contains(body, "No workflow is in") {
		t.Errorf("the second page says that there is none:\n%s", body)
	}
	s.has("/workflows/?state=cancelled", "No workflow is in this state.")
	s.has("/workflows/?state=running", "flow-129")
	body = s.has("/search/?q=nothing-has-it", "The names of the 50 newest workflows were scanned.")
	if strings.Contains(body, "No name contains it") {
		t.Errorf("the search says that there is none:\n%s", body)
	}
}

// The search finds what is left if a workflow is deleted while it reads.
func TestSearchDuringADeletion(t *testing.T) {
	store := &counting{Storage: memory.New()}
	s := newSiteOver(t, store, nil)
	s.eng.Handle("t", func(context.Context, *ojs.Job[any]) error { return nil })
	var deleted string
	for range 2 {
		flow := workflow.New("nightly", workflow.Step("a", ojs.NewDraft("t", 1)))
		ticket, err := s.eng.Workflows().Start(t.Context(), flow)
		if err != nil {
			t.Fatal(err)
		}
		deleted = ticket.ID
	}
	s.run()
	store.listed = func(q storage.Query) {
		if !slices.Contains(q.Types, workflow.Type) {
			return
		}
		err := s.eng.Jobs().Delete(t.Context(), deleted)
		if err != nil && !errors.Is(err, ojs.ErrPruned) {
			t.Error(err)
		}
	}
	body := s.has("/search/?q=nightly", "nightly")
	if _, err := s.eng.Get(t.Context(), deleted); !errors.Is(err, ojs.ErrPruned) {
		t.Errorf("the workflow that was deleted: %v", err)
	}
	if strings.Contains(body, deleted) {
		t.Errorf("the search shows a deleted workflow:\n%s", body)
	}
}

// The page of a failed job shows it although the record of its workflow cannot be read.
func TestJobOfADamagedWorkflow(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	s.eng.Handle("t", func(context.Context, *ojs.Job[any]) error { return ojs.Permanent(errors.New("no")) })
	record := s.enqueue(workflow.Type, 1, ojs.WithPending())
	id := s.enqueue("t", 1, ojs.WithMeta(workflow.MetaWorkflow, record))
	s.run()
	s.has("/jobs/"+id+"/", "discarded")
}
