package inspect

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/times"
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

// failures are groups by their keys.
type failures map[string]*FailureGroup

// add counts a job in its group. It reports false if there is no room for another group.
func (groups failures) add(job *ojs.JobInfo, now time.Time) bool {
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
	g.First = times.Earliest(g.First, at)
	if periods := int(max(0, now.Sub(at)) / FailurePeriod); periods < len(g.Trend) {
		g.Trend[len(g.Trend)-1-periods]++
	}
	if g.Sample == nil || at.After(g.Last) {
		g.Last, g.Sample = at, job
	}
	return true
}

// of is the result of a look at jobs. room says that there was room for all groups.
func (groups failures) of(seen *looked, room bool) FailureGroups {
	out := FailureGroups{Looked: seen.n, Exact: len(seen.missed) == 0 && room}
	for _, g := range groups {
		g.Least = !seen.through(g.Type)
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b FailureGroup) int {
		return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Type, b.Type), strings.Compare(a.Key, b.Key))
	})
	return out
}

// FailureKey is the key of the group of failures that a job's latest failure belongs to,
// "" if the job has none.
func FailureKey(job *ojs.JobInfo) string {
	if job.Error == nil {
		return ""
	}
	return telemetry.KindOf(job.Type, job.Error).Key
}
