package inspect

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/telemetry"
)

// FailureGroup is jobs whose latest failures are alike: of the same job type, the same
// error type, the same message without ids and numbers, and, after a panic, the same
// first frame that is not of the standard library.
type FailureGroup struct {
	telemetry.FailureKind // its Key selects the jobs of the group: Filter.Failure

	N           int  // jobs
	Least       bool // there may be more
	First, Last time.Time

	// Trend counts the jobs whose latest failure was in the last two hours, by periods of
	// FailurePeriod, the period until now last.
	Trend [24]int

	Sample *ojs.JobInfo // the job with the latest failure
}

// FailurePeriod is a period of FailureGroup.Trend.
const FailurePeriod = 5 * time.Minute

// FailureGroups are failures by what they have in common, the most frequent first.
type FailureGroups struct {
	Groups []FailureGroup
	Exact  bool // false: not all jobs were looked at, and there may be more groups
	Looked int  // jobs
}

// maxGroups bounds how many groups are told apart.
const maxGroups = 1000

// Failures groups the jobs that f selects by their latest failures, with a look at the
// given number of jobs; 0 is DefaultLook. Without States these are discarded and
// retryable jobs. Each type has a share of the jobs that are looked at, so that types
// with few failures are looked through. Beyond 1000 groups, failures of new groups are
// left out, and Exact is false.
//
// To retry a group with a pause between two jobs, Apply RetryJobs to a filter with its
// Key.
func (j *Jobs) Failures(ctx context.Context, f Filter, look int) (FailureGroups, error) {
	if len(f.States) == 0 {
		f.States = []ojs.State{ojs.StateDiscarded, ojs.StateRetryable}
	}
	if _, err := j.counted(&f, look); err != nil {
		return FailureGroups{}, err
	}
	groups := make(map[string]*FailureGroup)
	room, now := true, j.Now()
	seen, err := j.look(ctx, &f, look, func(job *ojs.JobInfo) {
		room = addFailure(groups, job, now) && room
	})
	if err != nil {
		return FailureGroups{}, err
	}
	out := FailureGroups{Looked: seen.n, Exact: len(seen.missed) == 0 && room}
	for _, g := range groups {
		g.Least = !seen.through(g.Type)
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b FailureGroup) int {
		return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Type, b.Type), strings.Compare(a.Key, b.Key))
	})
	return out, nil
}

// addFailure counts a job in its group. It reports false if there is no room for another
// group.
func addFailure(groups map[string]*FailureGroup, job *ojs.JobInfo, now time.Time) bool {
	if job.Error == nil {
		return true
	}
	kind := telemetry.KindOf(job.Type, job.Error)
	g := groups[kind.Key]
	if g == nil {
		if len(groups) == maxGroups {
			return false
		}
		g = &FailureGroup{FailureKind: kind}
		groups[kind.Key] = g
	}
	g.N++
	at := job.Error.At
	if g.First.IsZero() || at.Before(g.First) {
		g.First = at
	}
	if periods := int(max(0, now.Sub(at)) / FailurePeriod); periods < len(g.Trend) {
		g.Trend[len(g.Trend)-1-periods]++
	}
	if g.Sample == nil || at.After(g.Last) {
		g.Last, g.Sample = at, job
	}
	return true
}

// FailureKey is the key of the group of failures that a job's latest failure belongs to,
// "" if the job has none.
func FailureKey(job *ojs.JobInfo) string {
	if job.Error == nil {
		return ""
	}
	return telemetry.KindOf(job.Type, job.Error).Key
}

// CountedFailures returns the failed attempts of the last 30 days that the engines that
// report have counted, by kind, those of jobs that were deleted, too. Engines without
// reports count none, and one that is killed loses those since its last report. known
// keeps what the next call need not read. See KnownFailures.Read, which has the bounds
// and the cost. The key of a kind selects the stored jobs whose latest failure is of it:
// Filter.Failure.
func (j *Jobs) CountedFailures(
	ctx context.Context, known *telemetry.KnownFailures,
) ([]telemetry.FailureCount, error) {
	return known.Read(ctx, j.source, j.Now())
}

// FailureCounted reports whether CountedFailures has the kind of a job type with a key.
// It costs a read of one value.
func (j *Jobs) FailureCounted(ctx context.Context, jobType, key string) (bool, error) {
	return telemetry.FailureCounted(ctx, j.source, j.Now(), jobType, key)
}
