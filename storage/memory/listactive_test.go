package memory_test

import (
	"testing"

	"github.com/ojsengine/ojs/internal/listtest"
	"github.com/ojsengine/ojs/storage/memory"
)

// The holders of jobs and the list of active jobs are read once a second while a page
// shows them.
func TestActiveListingLooksAtActiveJobs(t *testing.T) {
	s := memory.New()
	defer s.Close()
	listtest.ActiveOnly(t, s)
}
