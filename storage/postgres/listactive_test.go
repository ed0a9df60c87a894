package postgres_test

import (
	"testing"

	"github.com/ojsengine/ojs/internal/listtest"
)

// The holders of jobs and the list of active jobs are read once a second while a page
// shows them.
func TestActiveListingLooksAtActiveJobs(t *testing.T) {
	s, _ := open(t, "")
	listtest.ActiveOnly(t, s)
}
