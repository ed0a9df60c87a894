package ojs

import (
	"encoding/json"
	"time"
)

// Condition says how the jobs that another job waits for must end, so that it may run.
type Condition string

// The conditions. A job has failed if it has ended in any state but completed.
const (
	// every one completes; the first that fails cancels the waiting job
	AllSucceeded Condition = "all_succeeded"
	// all have ended, and at least one has failed; if none has, the waiting job is
	// cancelled
	AnyFailed Condition = "any_failed"
	AllEnded  Condition = "all_ended" // all have ended, in any way
)

// Valid reports whether c is one of the three conditions.
func (c Condition) Valid() bool { return c == AllSucceeded || c == AnyFailed || c == AllEnded }

// Dependencies is what a job waits for: other jobs, by number. The job is pending until
// they have ended as the condition asks. The counts stay as they are once the job has
// left pending.
type Dependencies struct {
	Condition  Condition `json:"condition"`
	Unfinished int       `json:"unfinished"`     // jobs that have yet to end
	Failed     int       `json:"failed"`         // jobs that have ended and have not completed
	Join       bool      `json:"join,omitempty"` // the job does not run: it completes when it could

	// OrderingKey is that of WithOrderingKey. InLine says that it is not the job's turn:
	// until then Unfinished counts one more.
	OrderingKey string `json:"ordering_key,omitempty"`
	InLine      bool   `json:"in_line,omitempty"`

	// Delay and TTL are those of WithDelay and WithTTL of a job that waits for others.
	// They count from when it may run, and set its ScheduledAt and ExpiresAt then. On the
	// wire they are seconds.
	Delay time.Duration `json:"-"`
	TTL   time.Duration `json:"-"`
}

// plainDependencies has the members of Dependencies but the times, and no methods.
type plainDependencies Dependencies

// MarshalJSON encodes the wire form.
func (d Dependencies) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		*plainDependencies
		Delay seconds `json:"delay,omitzero"`
		TTL   seconds `json:"ttl,omitzero"`
	}{(*plainDependencies)(&d), seconds(d.Delay), seconds(d.TTL)})
}

// UnmarshalJSON decodes the wire form.
func (d *Dependencies) UnmarshalJSON(b []byte) error {
	times := struct{ Delay, TTL json.RawMessage }{}
	err := json.Unmarshal(b, (*plainDependencies)(d))
	if err == nil {
		err = json.Unmarshal(b, &times)
	}
	if err == nil && times.Delay != nil {
		err = (*seconds)(&d.Delay).decode(times.Delay)
	}
	if err == nil && times.TTL != nil {
		err = (*seconds)(&d.TTL).decode(times.TTL)
	}
	return err
}
