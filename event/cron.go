package event

import "cmp"

// Cron is what an event says of a recurring job.
type Cron struct {
	Schedule, TimeZone string // TimeZone "" is UTC
	JobType            string
	JobID              string // of the latest run
	Runs               int    // including the latest
}

// aboutCron adds the members of an event of a recurring job, with the names of the texts
// on events and on recurring jobs.
func (e *Event) aboutCron(d map[string]any) {
	d["cron_name"], d["scheduled_at"] = e.Subject, formatTime(e.Due)
	if e.Reason != "" {
		d["reason"] = e.Reason
	}
	c := e.Cron
	if c == nil {
		return
	}
	d["cron_expr"], d["cron_expression"], d["timezone"] = c.Schedule, c.Schedule,
		cmp.Or(c.TimeZone, "UTC")
	d["job_type"], d["scheduled_time"] = c.JobType, formatTime(e.Due)
	switch {
	case e.Type == CronTriggered:
		d["job_id"], d["run_count"], d["actual_time"] = c.JobID, c.Runs, formatTime(e.Time)
	case e.Reason == "overlap_skip":
		d["existing_job_id"], d["active_job_id"] = c.JobID, c.JobID
	}
}
