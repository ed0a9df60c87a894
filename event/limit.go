package event

import "github.com/ojsengine/ojs/storage"

// Limit is what an event of a limit is about.
type Limit struct {
	Key      string                // ojs.RateLimit.Key
	Strategy storage.LimitStrategy // exceeded, released: the bound that holds, or held, jobs back
	Bound    int                   // exceeded: the number of that bound; of a block 0
	// exceeded: what counts towards Bound. Of a rate it is at least that, of a throttle
	// and a block 0.
	Current        int
	JobID, JobType string // released, dropped
}

// aboutLimit adds the members of an event of a limit.
func (e *Event) aboutLimit(d map[string]any) {
	l := e.Limit
	d["key"] = l.Key
	switch e.Type {
	case LimitExceeded:
		d["strategy"], d["limit"], d["current"] = string(l.Strategy), l.Bound, l.Current
	case LimitReleased:
		d["strategy"], d["job_id"] = string(l.Strategy), l.JobID
	case LimitDropped:
		d["job_id"], d["job_type"] = l.JobID, l.JobType
	case LimitAdjusted:
		d["until"], d["reason"] = nil, e.Reason
		if !e.Until.IsZero() {
			d["until"] = formatTime(e.Until)
		}
	}
	if e.Queue != "" {
		d["queue"] = e.Queue
	}
}
