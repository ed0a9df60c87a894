package storagetest

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// rounded is a policy.Hook that retries after multiples of a precision, which a storage
// of that precision keeps as they are. All of them end in 7, so that a storage less exact
// than it says differs.
type rounded time.Duration

func (r rounded) ShouldRetry(*ojs.JobInfo, error) bool { return true }

func (r rounded) Delay(job *ojs.JobInfo, _ error) time.Duration {
	const draw = 0.123456789
	unit := time.Duration(r)
	return policy.Delay(job.Retry, job.Attempt, draw).Truncate(10*unit) + 7*unit
}
