package server

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/iso8601"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// The server takes other forms of policies, too, and makes them the standard's (F164,
// F165).

// shares reads rate_limit and fairness.
func (w *jobRequest) shares() error {
	if w.has("rate_limit") {
		var l ojs.RateLimit
		if err := l.UnmarshalJSON(w.value("rate_limit")); err != nil {
			return err
		}
		if l.Key == "" { // max_per_second without a key
			l.Key = "queue:" + w.queue
		}
		w.option(ojs.WithRateLimit(l))
	}
	if w.has("fairness") {
		var f ojs.Fairness
		if err := f.UnmarshalJSON(w.value("fairness")); err != nil {
			return err
		}
		w.option(ojs.WithFairnessKey(f.Key, f.Weight))
	}
	return nil
}

// otherNames are other names of the members of a retry policy, and whether they are a
// number of milliseconds.
var otherNames = map[string]struct {
	name         string
	milliseconds bool
}{
	"initial_interval_ms": {"initial_interval", true}, "initial_delay_ms": {"initial_interval", true},
	"base_delay_ms": {"initial_interval", true}, "max_interval_ms": {"max_interval", true},
	"max_delay_ms": {"max_interval", true}, "backoff_type": {"backoff_strategy", false},
	"backoff": {"backoff_strategy", false}, "strategy": {"backoff_strategy", false},
}

func (w *jobRequest) retry() error {
	if w.has("retry") && w.has("retry_policy") {
		return badRetry(w.place("retry_policy"), "is set twice, as "+w.place("retry")+" too")
	}
	name := "retry"
	if !w.has(name) {
		name = "retry_policy"
	}
	if attempts := w.one("max_attempts"); w.has("max_attempts") { // of options (F186)
		if err := w.exclusive("max_attempts", name); err != nil {
			return err
		}
		n := attempts.integer("max_attempts", 0, 0, math.MaxInt32)
		if attempts.err != nil {
			return attempts.err
		}
		w.option(ojs.WithMaxAttempts(n))
	}
	if !w.has(name) {
		return nil
	}
	p, err := retryOf(w.value(name))
	if err != nil {
		return err
	}
	w.option(ojs.WithRetry(p))
	return nil
}

// retryOf reads a retry policy.
func retryOf(v []byte) (p ojs.RetryPolicy, err error) {
	if v[0] != '{' {
		return p, badRetry("retry", "is not an object")
	}
	given, err := split(v, "retry.")
	if err != nil {
		return p, badRetry("retry", "has a member twice")
	}
	var out object
	for _, m := range given {
		other, renamed := otherNames[m.name]
		switch {
		case isNull(m.value) && (renamed || out.has(m.name)):
			continue
		case renamed:
			if given.get(other.name) != nil || out.get(other.name) != nil {
				return p, badRetry("retry."+m.name, "is set twice, as "+other.name+" too")
			}
			if other.milliseconds {
				d, ok := intervalOf(m.value)
				if !ok {
					return p, badRetry("retry."+m.name, "is not an integer above 0")
				}
				m.value = d
			}
			m.name = other.name
		}
		out = out.set(m.name, m.value)
	}
	err = p.UnmarshalJSON(out.appendJSON(nil))
	return p, err
}

// intervalOf makes a number of milliseconds the JSON of an ISO 8601 duration. It reports
// false for any other value.
func intervalOf(v []byte) (duration []byte, ok bool) {
	n, ok := whole(v)
	if !ok || n <= 0 || n > int64(1<<63-1)/int64(time.Millisecond) {
		return nil, false
	}
	return strconv.AppendQuote(nil, iso8601.Format(time.Duration(n)*time.Millisecond)), true
}

func badRetry(field, reason string) error {
	return &ojs.InvalidError{Code: ojs.InvalidCodeRetry, Field: field, Reason: reason}
}

// fingerprint is a key of a unique job as a client computes it (K013).
var fingerprint = regexp.MustCompile(`^[0-9a-f]{64}$`)

// unique reads the policy of a unique job, and the key that the client gives it.
func (w *jobRequest) unique() error {
	var p *ojs.UniquePolicy
	if w.has("unique") {
		var err error
		if p, err = w.uniqueOf(w.value("unique")); err != nil {
			return err
		}
	}
	key := ""
	for _, name := range []string{"idempotency_key", "unique_key"} {
		if !w.has(name) {
			continue
		}
		one := w.one(name)
		if key = one.name(name); one.err != nil {
			return one.err
		}
		if name == "unique_key" && !fingerprint.MatchString(key) {
			return invalid(w.place(name), "is not a SHA-256 in lower-case hexadecimal")
		}
	}
	made := w.has("unique_key") // of the plain args: it is the fingerprint
	if meta := w.value("meta"); p != nil && key == "" && kindOf(meta) == "object" {
		members, _ := split(meta, "")
		var text string
		if v := members.get("unique_key"); v != nil && decodeText(v, &text) && fingerprint.MatchString(text) {
			key, made = text, true
		}
	}
	if key != "" && p == nil {
		var o ojs.Options
		o.Apply(ojs.WithIdempotencyKey(key))
		p = o.Unique
	}
	if p != nil {
		if p.Key = key; made {
			p.Keys = p.Dimensions()&^(ojs.ByArgs|ojs.ByMeta) | bridge.GivenFingerprint
			p.ArgsKeys, p.MetaKeys = nil, nil
		}
		if err := p.Validate(); err != nil {
			return err
		}
		for _, name := range []string{"metadata", "meta", "tags"} {
			if err := strictMeta(p, w.value(name), w.place(name)); err != nil {
				return err
			}
		}
		w.option(ojs.WithUnique(*p))
	}
	return nil
}

// strictMeta refuses meta that takes part in a fingerprint and can be read in several
// ways.
func strictMeta(p *ojs.UniquePolicy, meta []byte, place string) error {
	if p == nil || p.Dimensions()&ojs.ByMeta == 0 || meta == nil || jsonvalue.Strict(meta) == nil {
		return nil
	}
	return invalid(place, "has no fingerprint: an object has a name twice, or a text is not Unicode")
}

func (w *jobRequest) uniqueOf(v []byte) (*ojs.UniquePolicy, error) {
	if v[0] != '{' {
		return nil, invalid(w.place("unique"), "is not an object").expected("object").received(kindOf(v))
	}
	given, err := split(v, w.place("unique")+".")
	if err != nil {
		return nil, err
	}
	var out object
	set := func(name string, value []byte, as string) error {
		if given.get(name) != nil || out.has(name) {
			return invalid(w.place("unique")+"."+as, "is set twice, as "+name+" too")
		}
		out = append(out, member{name, value})
		return nil
	}
	for _, m := range given {
		switch {
		case isNull(m.value):
		case m.name == "key":
			keys, args, err := w.dimensions(m.value)
			if err == nil && args != nil {
				err = set("args_keys", marshal(args), "key")
			}
			if err == nil {
				err = set("keys", marshal(keys), "key")
			}
			if err != nil {
				return nil, err
			}
		case m.name == "period_ms":
			period, ok := intervalOf(m.value)
			if !ok {
				return nil, invalid(w.place("unique")+".period_ms", "is not an integer above 0")
			}
			if err := set("period", period, "period_ms"); err != nil {
				return nil, err
			}
		case m.name == "on_conflict" && string(m.value) == `"use_existing"`:
			out = append(out, member{"on_conflict", []byte(`"ignore"`)})
		default:
			out = append(out, m)
		}
	}
	p := new(ojs.UniquePolicy)
	if err := p.UnmarshalJSON(out.appendJSON(nil)); err != nil {
		return nil, err
	}
	if out.get("keys") == nil && w.versioned { // V008
		p.Keys |= ojs.ByVersion
	}
	return p, nil
}

// dimensions reads the member "key" of a unique policy: names of members of the args, or
// of dimensions.
func (w *jobRequest) dimensions(v []byte) (keys, args []string, err error) {
	var names []string
	var name string
	if decodeText(v, &name) {
		names = []string{name}
	} else if json.Unmarshal(v, &names) != nil || len(names) == 0 {
		return nil, nil, invalid(w.place("unique")+".key", "is no list of names").expected("array of strings")
	}
	members := make(map[string]json.RawMessage)
	if list := elements(w.value("args")); len(list) > 0 && list[0][0] == '{' {
		_ = json.Unmarshal(list[0], &members) // it is an object
	}
	inArgs, inDimensions := true, true
	for _, name := range names {
		_, there := members[name]
		inArgs = inArgs && there
		switch name {
		case "type", "queue", "args", "meta", "version":
		default:
			inDimensions = false
		}
	}
	switch {
	case inArgs:
		return []string{"type", "args"}, names, nil
	case inDimensions:
		return names, nil, nil
	}
	return nil, nil, invalid(w.place("unique")+".key",
		"has names that are neither all members of the args nor all dimensions").
		expected("members of args[0], or type, queue, args, meta, version")
}
