package stored

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
)

// Missing reports whether an error says that something is not stored: it never was, or
// has been deleted.
func Missing(err error) bool {
	return foreign.Is(err, ojs.ErrNotFound) || foreign.Is(err, ojs.ErrPruned)
}
