package enginetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
)

// show is one thing about a job, for a failure.
func show(v any) string {
	switch v := v.(type) {
	case time.Time:
		return clockTime(v)
	case map[string]any:
		if raw, err := json.Marshal(v); err == nil && len(v) > 0 {
			return string(raw)
		}
		return "none"
	case ojs.RetryPolicy:
		return fmt.Sprintf("%+v", v)
	case *ojs.RateLimit:
		if v == nil {
			return "none"
		}
		return fmt.Sprintf("%+v", *v)
	case *ojs.UniquePolicy:
		if v == nil {
			return "none"
		}
		return fmt.Sprintf("%+v", *v)
	}
	return fmt.Sprint(v)
}

func clockTime(t time.Time) string {
	if t.IsZero() {
		return "at once"
	}
	return t.UTC().Format("2006-01-02 15:04:05.999999999")
}

// line describes a job, for a failure.
func line(j *ojs.JobInfo) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s on %s, %s", j.ID, j.Type, j.Queue, j.State)
	if j.DeadLettered() {
		b.WriteString(" (dead letter)")
	}
	fmt.Fprintf(&b, " at attempt %d, args %s", j.Attempt, j.Args)
	if len(j.Meta) > 0 {
		fmt.Fprintf(&b, ", meta %v", j.Meta)
	}
	if !j.ScheduledAt.IsZero() {
		b.WriteString(", scheduled " + clockTime(j.ScheduledAt))
	}
	if j.Error != nil {
		fmt.Fprintf(&b, ", error %s: %s", j.Error.Type, j.Error.Message)
	}
	return b.String()
}

func orNever(t time.Time) any {
	if t.IsZero() {
		return "never"
	}
	return t
}
