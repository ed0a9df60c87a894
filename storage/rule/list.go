package rule

import (
	"fmt"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/cursor"
	"github.com/ojsengine/ojs/storage"
)

// maxPage is how many records a page has at most.
const maxPage = 1000

// Begin begins a page of a storage with a name. It checks what the query asks for, and
// sets the Limit that the contract gives it.
func Begin(name string, q *storage.Query) (cursor.Walk, error) {
	w, err := cursor.Begin(q.Cursor)
	if err == nil && !q.Order.Valid() {
		err = fmt.Errorf("%w: storage %s has no order %q", ojs.ErrUnsupported, name, q.Order)
	}
	if q.Limit <= 0 || q.Limit > maxPage {
		q.Limit = maxPage
	}
	return w, err
}
