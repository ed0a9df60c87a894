package rows

import (
	"fmt"
	"strconv"

	"github.com/ojsengine/ojs"
)

// NoQueueState says why the stored state of a queue is none.
func NoQueueState(state string) error { return fmt.Errorf("state: %q is no state of a queue", state) }

// QuarantinePage checks what a listing of the quarantine asks for, and returns the key
// after which the page begins and the most records on it. Its error is an
// *ojs.InvalidError.
func QuarantinePage(after string, limit int) (from int64, most int, err error) {
	const longest = 1000
	if limit <= 0 || limit > longest {
		limit = longest
	}
	if after == "" {
		return 0, limit, nil
	}
	if from, err = strconv.ParseInt(after, 10, 64); err != nil {
		return 0, 0, &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "after",
			Reason: fmt.Sprintf("%q is no key of this storage's", after)}
	}
	return from, limit, nil
}
