package storagetest

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// refLevel names the available jobs of a queue and priority.
type refLevel struct {
	queue    string
	priority int
}

func levelOf(r *storage.Record) refLevel { return refLevel{r.Queue, r.Priority} }

// refShare names the jobs of a fairness key in a level.
type refShare struct {
	refLevel
	key string
}

func shareOf(r *storage.Record) refShare { return refShare{levelOf(r), r.Fairness.Key} }

// comesBefore is the order of claims among jobs of equal priority.
func (j *refJob) comesBefore(k *refJob) bool {
	if j.tag != k.tag {
		return j.tag < k.tag
	}
	return j.entered < k.entered
}

// finish is the finish tag of a job.
func (j *refJob) finish() int {
	weight := j.rec.Fairness.Weight
	if weight < 1 {
		weight = 1
	}
	return j.tag + 1024*1024/weight
}

// takeTag gives a job that has become available its start tag.
func (s *Reference) takeTag(j *refJob) {
	if j.tag = 0; j.rec.Fairness.Key != "" {
		j.tag = s.start(j)
	}
}

// start is the start tag of a job with a fairness key, if it takes one now.
func (s *Reference) start(j *refJob) int {
	share := shareOf(&j.rec)
	var before *refJob // the job of the key that became available last before this one
	for _, other := range s.jobs {
		if other.rec.State == ojs.StateAvailable && shareOf(&other.rec) == share &&
			other.entered < j.entered && (before == nil || other.entered > before.entered) {
			before = other
		}
	}
	tag := max(1, s.virtual[share.refLevel], s.charged[share])
	if before != nil {
		tag = max(tag, before.finish())
	}
	return tag
}

// takesAnew gives a job that is next, and that its limit has held back, another tag if it
// would have a later one now. It reports whether it does.
func (s *Reference) takesAnew(j *refJob) bool {
	if j.rec.RateLimit == nil || j.tag == 0 || j.tag >= s.start(j) {
		return false
	}
	j.tag = s.start(j)
	return true
}

// charge notes that a job is claimed.
func (s *Reference) charge(j *refJob) {
	if j.tag > 0 {
		share := shareOf(&j.rec)
		s.virtual[share.refLevel] = max(s.virtual[share.refLevel], j.tag)
		s.charged[share] = max(s.charged[share], j.finish())
	}
}
