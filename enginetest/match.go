package enginetest

import (
	"reflect"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/policy"
)

// want is what a draft says that a job shall be like: its type, the members of its args,
// and what its own options set.
type want struct {
	d        ojs.Draft
	features []feature
}

// feature is one thing that is wanted of a job.
type feature struct {
	name string
	want any // for a failure, as is what have returns
	have func(j *ojs.JobInfo) (have any, same bool)
}

func (w *want) add(name string, want any, have func(j *ojs.JobInfo) (any, bool)) {
	w.features = append(w.features, feature{name, want, have})
}

// addEqual adds a feature if the options set it: then it has come to the same in both.
func addEqual[V comparable](w *want, name string, a, b V, of func(j *ojs.JobInfo) V) {
	if a != b {
		return
	}
	w.add(name, a, func(j *ojs.JobInfo) (any, bool) { return of(j), of(j) == a })
}

func wanted(d ojs.Draft) (*want, error) {
	valid := ojs.DefaultOptions()
	valid.Apply(d.Options()...)
	if err := valid.Validate(); err != nil {
		return nil, err
	}
	w := &want{d: d}
	addEqual(w, "type", d.Type(), d.Type(), func(j *ojs.JobInfo) string { return j.Type })
	if err := w.addArgs(d.Args()); err != nil {
		return nil, err
	}
	a, b := own(d.Options())
	addEqual(w, "id", a.ID, b.ID, func(j *ojs.JobInfo) string { return j.ID })
	addEqual(w, "queue", a.Queue, b.Queue, func(j *ojs.JobInfo) string { return j.Queue })
	addEqual(w, "priority", a.Priority, b.Priority, func(j *ojs.JobInfo) int { return j.Priority })
	if err := w.addMeta(a.Meta); err != nil {
		return nil, err
	}
	w.addStart(&a, &b)
	w.addEnd(&a, &b)
	addEqual(w, "timeout", a.Timeout, b.Timeout, func(j *ojs.JobInfo) time.Duration { return j.Timeout })
	addEqual(w, "total timeout", a.TotalTimeout, b.TotalTimeout,
		func(j *ojs.JobInfo) time.Duration { return j.TotalTimeout })
	addEqual(w, "enqueue TTL", a.EnqueueTTL, b.EnqueueTTL,
		func(j *ojs.JobInfo) time.Duration { return j.EnqueueTTL })
	addEqual(w, "lease", a.Lease, b.Lease, func(j *ojs.JobInfo) time.Duration { return j.Lease })
	addEqual(w, "result TTL", a.ResultTTL, b.ResultTTL,
		func(j *ojs.JobInfo) time.Duration { return j.ResultTTL })
	if r := a.Retry; !r.Equal(ojs.RetryPolicy{}) {
		w.add("retry", r, func(j *ojs.JobInfo) (any, bool) {
			return j.Retry, r.Inherit(j.Retry).Equal(j.Retry)
		})
	}
	if l := a.RateLimit; reflect.DeepEqual(l, b.RateLimit) {
		w.add("rate limit", l, func(j *ojs.JobInfo) (any, bool) {
			return j.RateLimit, reflect.DeepEqual(j.RateLimit, limitedBy(l, a.RateLimitBy, j))
		})
	}
	if f := a.Fairness; f == b.Fairness {
		w.add("fairness", f, func(j *ojs.JobInfo) (any, bool) {
			return j.Fairness, j.Fairness == sharedBy(f, a.FairnessBy, j)
		})
	}
	if u := a.Unique; reflect.DeepEqual(u, b.Unique) {
		w.add("unique", u, func(j *ojs.JobInfo) (any, bool) {
			return j.Unique, reflect.DeepEqual(j.Unique, u)
		})
	}
	addEqual(w, "pending", a.Pending, b.Pending,
		func(j *ojs.JobInfo) bool { return j.State == ojs.StatePending })
	return w, nil
}

// limitedBy is a limit with the key that a job has by a member of its args or meta.
func limitedBy(l *ojs.RateLimit, member string, j *ojs.JobInfo) *ojs.RateLimit {
	if l == nil || member == "" {
		return l
	}
	key, err := policy.RateLimitKey(l.Key, member, j)
	if err != nil {
		return nil
	}
	by := *l
	by.Key = key
	return &by
}

// sharedBy is a share with the key that a job has by a member of its args or meta.
func sharedBy(f ojs.Fairness, member string, j *ojs.JobInfo) ojs.Fairness {
	if member == "" {
		return f
	}
	key, err := policy.FairnessKey(member, j)
	if err != nil || key == "" {
		return ojs.Fairness{}
	}
	f.Key = key
	return f
}

func (w *want) addArgs(v any) error {
	args, err := ojs.NewArgs(v)
	if err != nil {
		return err
	}
	part, err := decode([]byte(args.String()))
	if err != nil || part == nil { // any args
		return err
	}
	w.add("args", args, func(j *ojs.JobInfo) (any, bool) {
		have, err := decode([]byte(j.Args.String()))
		return j.Args, err == nil && argsContain(have, part)
	})
	return nil
}

func (w *want) addMeta(meta map[string]any) error {
	meta, err := jsonvalue.Normalize(meta) // as a job's is
	if err != nil || len(meta) == 0 {
		return err
	}
	part, err := throughJSON(meta)
	if err != nil {
		return err
	}
	w.add("meta", meta, func(j *ojs.JobInfo) (any, bool) {
		have, err := throughJSON(j.Meta)
		return j.Meta, err == nil && contains(have, part)
	})
	return nil
}

// addStart adds when a job shall start. A time that has passed is as good as none for a
// job that shall start at once.
func (w *want) addStart(a, b *ojs.Options) {
	at := a.ScheduledAt
	switch delaySet, timeSet := a.Delay == b.Delay, at.Equal(b.ScheduledAt); {
	case timeSet && !at.IsZero() && !(delaySet && a.Delay > 0):
		w.add("scheduled", at, func(j *ojs.JobInfo) (any, bool) {
			return j.ScheduledAt, j.ScheduledAt.Equal(at)
		})
	case delaySet || timeSet:
		delay := time.Duration(0)
		if delaySet {
			delay = max(a.Delay, 0)
		}
		w.add("delay", delay, func(j *ojs.JobInfo) (any, bool) {
			have := time.Duration(0)
			if j.ScheduledAt.After(j.CreatedAt) {
				have = j.ScheduledAt.Sub(j.CreatedAt)
			}
			return have, have == delay
		})
	}
}

// addEnd adds when a job shall have begun.
func (w *want) addEnd(a, b *ojs.Options) {
	at := a.ExpiresAt
	switch ttlSet, timeSet := a.TTL == b.TTL, at.Equal(b.ExpiresAt); {
	case ttlSet && a.TTL > 0:
		w.add("TTL", a.TTL, func(j *ojs.JobInfo) (any, bool) {
			if j.ExpiresAt.IsZero() {
				return "none", false
			}
			have := j.ExpiresAt.Sub(j.CreatedAt)
			return have, have == a.TTL
		})
	case ttlSet || timeSet:
		if !timeSet {
			at = time.Time{}
		}
		w.add("expires", orNever(at),
			func(j *ojs.JobInfo) (any, bool) {
				return orNever(j.ExpiresAt), j.ExpiresAt.Equal(at)
			})
	}
}

// differs says in what a job is not as wanted, nil if it is.
func (w *want) differs(j *ojs.JobInfo) []string {
	var list []string
	for _, f := range w.features {
		if have, same := f.have(j); !same {
			list = append(list, f.name+" "+show(have))
		}
	}
	return list
}

// describe is what was wanted, for a failure.
func (w *want) describe() string {
	list := make([]string, len(w.features))
	for i, f := range w.features {
		list[i] = f.name + " " + show(f.want)
	}
	return strings.Join(list, ", ")
}
