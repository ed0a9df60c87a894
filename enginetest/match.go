package enginetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
)

// want is what a draft says that a job shall be like: its type, the members of its args, and what its own options set.
type want struct {
	d    ojs.Draft
	args any // as JSON gives it; nil: any
	o    ojs.Options
}

func wanted(d ojs.Draft) (want, error) {
	w := want{d: d}
	if d.Args() != nil {
		args, err := ojs.NewArgs(d.Args())
		if err != nil {
			return w, err
		}
		if err := json.Unmarshal([]byte(args.String()), &w.args); err != nil {
			return w, err
		}
	}
	w.o.Apply(d.Options()...)
	meta, err := throughJSON(w.o.Meta)
	if err != nil {
		return w, err
	}
	w.o.Meta, _ = meta.(map[string]any)
	return w, nil
}

func throughJSON(v any) (out any, err error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(raw, &out)
	return out, err
}

// differs says in what a job is not as wanted, "" if it is.
func (w *want) differs(j *ojs.JobInfo) string {
	if j.Type != w.d.Type() {
		return "type " + j.Type
	}
	var args any
	if err := json.Unmarshal([]byte(j.Args.String()), &args); err != nil {
		return err.Error()
	}
	if w.args != nil && !contains(args, w.args) {
		return "args " + j.Args.String()
	}
	meta, err := throughJSON(j.Meta)
	if err != nil {
		return err.Error()
	}
	if w.o.Meta != nil && !contains(meta, w.o.Meta) {
		return fmt.Sprintf("meta %v", j.Meta)
	}
	at := w.o.ScheduledAt
	if w.o.Delay > 0 {
		at = j.CreatedAt.Add(w.o.Delay)
	}
	ends := w.o.ExpiresAt
	if w.o.TTL > 0 {
		ends = j.CreatedAt.Add(w.o.TTL)
	}
	r := w.o.Retry
	switch {
	case w.o.ID != "" && j.ID != w.o.ID:
		return "id " + j.ID
	case w.o.Queue != "" && j.Queue != w.o.Queue:
		return "queue " + j.Queue
	case w.o.Priority != 0 && j.Priority != w.o.Priority:
		return fmt.Sprint("priority ", j.Priority)
	case !at.IsZero() && !j.ScheduledAt.Equal(at):
		return "scheduled " + clockTime(j.ScheduledAt)
	case !ends.IsZero() && !j.ExpiresAt.Equal(ends):
		return "expires " + clockTime(j.ExpiresAt)
	case w.o.Timeout != 0 && j.Timeout != w.o.Timeout:
		return fmt.Sprint("timeout ", j.Timeout)
	case w.o.TotalTimeout != 0 && j.TotalTimeout != w.o.TotalTimeout:
		return fmt.Sprint("total timeout ", j.TotalTimeout)
	case w.o.Lease != 0 && j.Lease != w.o.Lease:
		return fmt.Sprint("lease ", j.Lease)
	case !reflect.DeepEqual(r.Inherit(j.Retry), j.Retry):
		return fmt.Sprintf("retry %+v", j.Retry)
	case w.o.RateLimit != nil && !reflect.DeepEqual(w.o.RateLimit, j.RateLimit):
		return fmt.Sprintf("rate limit %+v", j.RateLimit)
	case w.o.Unique != nil && !reflect.DeepEqual(w.o.Unique, j.Unique):
		return fmt.Sprintf("unique %+v", j.Unique)
	case w.o.Pending && j.State != ojs.StatePending:
		return "state " + string(j.State)
	}
	return ""
}

// contains reports whether have has every member of part, at every level. Lists are equal or not.
func contains(have, part any) bool {
	p, ok := part.(map[string]any)
	if !ok {
		return reflect.DeepEqual(have, part)
	}
	h, ok := have.(map[string]any)
	if !ok {
		if list, isList := have.([]any); isList && len(list) == 1 { // the wire form of a single value
			return contains(list[0], part)
		}
		return false
	}
	for name, v := range p {
		member, there := h[name]
		if !there || !contains(member, v) {
			return false
		}
	}
	return true
}

func clockTime(t time.Time) string {
	if t.IsZero() {
		return "at once"
	}
	return t.UTC().Format("2006-01-02 15:04:05.999")
}

// describe is what was wanted, for a failure.
func (w *want) describe() string {
	s := "type " + w.d.Type()
	add := func(what string, v any) { s += fmt.Sprintf(", %s %v", what, v) }
	if w.args != nil {
		raw, _ := json.Marshal(w.args)
		add("args", string(raw))
	}
	o := &w.o
	for _, f := range []struct {
		name string
		set  bool
		v    any
	}{
		{"queue", o.Queue != "", o.Queue}, {"priority", o.Priority != 0, o.Priority}, {"meta", o.Meta != nil, o.Meta},
		{"delay", o.Delay > 0, o.Delay}, {"scheduled", !o.ScheduledAt.IsZero(), clockTime(o.ScheduledAt)}, {"TTL", o.TTL > 0, o.TTL},
		{"expires", !o.ExpiresAt.IsZero(), clockTime(o.ExpiresAt)}, {"timeout", o.Timeout != 0, o.Timeout},
		{"total timeout", o.TotalTimeout != 0, o.TotalTimeout}, {"lease", o.Lease != 0, o.Lease},
		{"retry", !reflect.DeepEqual(o.Retry, ojs.RetryPolicy{}), fmt.Sprintf("%+v", o.Retry)}, {"pending", o.Pending, o.Pending},
	} {
		if f.set {
			add(f.name, f.v)
		}
	}
	return s
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
