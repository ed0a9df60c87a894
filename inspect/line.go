package inspect

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/terms"
)

// A filter line is a line of terms. Parse has the keys. Both directions go through the
// list filterKeys.

// FilterError refuses a filter line. It is an ojs.ErrInvalid.
type FilterError struct {
	Line   string
	Column int // where in the line, in characters from 1 on
	Reason string
}

func (e *FilterError) Error() string {
	return fmt.Sprintf("ojs: invalid filter, column %d: %s", e.Column, e.Reason)
}

// Unwrap returns ojs.ErrInvalid.
func (e *FilterError) Unwrap() error { return ojs.ErrInvalid }

// Parse reads a filter from a line such as
//
//	state:discarded type:email.* error:smtp tag:vip args.user:42 since:1h
//
// The keys are:
//
//   - state, queue, type, version, errortype, id, worker, cron: one of several if the
//     key is repeated. A value that ends with * selects what begins so, but of states
//     and queues. An id that begins with * selects what ends so.
//   - key and fingerprint: the ordering key, and that of unique jobs, like those.
//   - tag: all of them, if the key is repeated.
//   - args.PATH and meta.PATH: a member, as Member has it.
//   - workflow: the id of a workflow, for its jobs.
//   - error and args: text in the latest failure, and in the JSON of the args.
//   - failure: the key of a group of failures (FailureGroup.Key).
//   - priority and attempt: a number, or a range such as 1..5, 5.. or ..5.
//   - since and until, finished.since and finished.until, due.since and due.until: times
//     of creation, end and being due. A time is in RFC 3339, a date, or how long before
//     now, such as 90s, 1h30m or 7d; +1h is in an hour.
//   - dead: true, for dead letters only.
//   - order: newest, finished, due or claim.
//
// The empty line selects all. An error is a *FilterError that names the column.
func Parse(line string, now time.Time) (Filter, error) {
	var f Filter
	p := terms.Line{Text: line}
	fail := func(at int, reason string) (Filter, error) {
		return Filter{}, &FilterError{Line: line, Column: p.Column(at), Reason: reason}
	}
	for p.Skip() {
		begin := p.At
		name, wrong := p.Token(':')
		if wrong != "" {
			return fail(p.At, wrong)
		}
		if !strings.HasPrefix(p.Rest(), ":") {
			return fail(begin, fmt.Sprintf("%q is no term: write key:value, such as error:%s",
				name, terms.Quote(name)))
		}
		key := keyNamed(name)
		if key == nil {
			return fail(begin, fmt.Sprintf("%q is no key: use one of %s", name,
				strings.ReplaceAll(strings.Join(FilterKeys(), ", "), "., ", ".PATH, ")))
		}
		p.At++
		begin = p.At
		value, wrong := p.Token(0)
		if wrong != "" {
			return fail(p.At, wrong)
		}
		if err := key.set(&f, name, value, now); err != nil {
			return fail(begin, name+": "+err.Error())
		}
	}
	return f, nil
}

// String is the filter as a line, from which Parse makes the same filter, with
// times in UTC.
func (f Filter) String() string {
	var line []string
	for _, k := range filterKeys {
		k.get(&f, func(name, value string) { line = append(line, terms.Term(name, value)) })
	}
	return strings.Join(line, " ")
}

// filterKey is a key of filter lines, or a prefix of keys: it ends with a dot.
type filterKey struct {
	name string
	set  func(f *Filter, name, value string, now time.Time) error
	get  func(f *Filter, term func(name, value string))
}

func keyNamed(name string) *filterKey {
	for i := range filterKeys {
		k := &filterKeys[i]
		if isPrefix := strings.HasSuffix(k.name, "."); !isPrefix && name == k.name ||
			isPrefix && len(name) > len(k.name) && strings.HasPrefix(name, k.name) {
			return k
		}
	}
	return nil
}

// FilterKeys returns the keys of filter lines. A key that ends with a dot is the
// beginning of many: args. and meta., which a path follows.
func FilterKeys() (names []string) {
	for _, k := range filterKeys {
		names = append(names, k.name)
	}
	return names
}

// filterKeys are in the order in which String writes them. keyNamed takes the first that
// fits.
var filterKeys = []filterKey{
	listKey("state", func(f *Filter) *[]ojs.State { return &f.States }),
	listKey("queue", func(f *Filter) *[]string { return &f.Queues }),
	listKey("type", func(f *Filter) *[]string { return &f.Types }),
	listKey("errortype", func(f *Filter) *[]string { return &f.ErrorTypes }),
	textKey("error", func(f *Filter) *string { return &f.Error }),
	textKey("failure", func(f *Filter) *string { return &f.Failure }),
	listKey("id", func(f *Filter) *[]string { return &f.IDs }),
	listKey("tag", func(f *Filter) *[]string { return &f.Tags }),
	memberKey(memberPrefixes[0]), memberKey(memberPrefixes[1]),
	textKey("workflow", func(f *Filter) *string { return &f.Workflow }),
	textKey("args", func(f *Filter) *string { return &f.Args }),
	rangeKey("priority", func(f *Filter) **Range { return &f.Priority }),
	rangeKey("attempt", func(f *Filter) **Range { return &f.Attempt }),
	listKey("worker", func(f *Filter) *[]string { return &f.Workers }),
	listKey("version", func(f *Filter) *[]string { return &f.Versions }),
	listKey("key", func(f *Filter) *[]string { return &f.Keys }),
	listKey("fingerprint", func(f *Filter) *[]string { return &f.Fingerprints }),
	listKey("cron", func(f *Filter) *[]string { return &f.Crons }),
	timeKey("since", func(f *Filter) *time.Time { return &f.CreatedFrom }),
	timeKey("until", func(f *Filter) *time.Time { return &f.CreatedBefore }),
	timeKey("finished.since", func(f *Filter) *time.Time { return &f.FinishedFrom }),
	timeKey("finished.until", func(f *Filter) *time.Time { return &f.FinishedBefore }),
	timeKey("due.since", func(f *Filter) *time.Time { return &f.DueFrom }),
	timeKey("due.until", func(f *Filter) *time.Time { return &f.DueBefore }),
	{"dead", func(f *Filter, _, value string, _ time.Time) error {
		if value != "true" {
			return fmt.Errorf("%q is not true", value)
		}
		f.DeadLettered = true
		return nil
	}, func(f *Filter, term func(string, string)) {
		if f.DeadLettered {
			term("dead", "true")
		}
	}},
	oneKey("order", func(f *Filter) *Order { return &f.Order }, parseOrder,
		func(o Order) string { return string(o) }),
}

// oneKey is the key of a field that is set once. text is "" for a value that needs no
// term.
func oneKey[T comparable](name string, field func(*Filter) *T,
	parse func(value string, now time.Time) (T, error), text func(T) string) filterKey {
	var none T
	return filterKey{name, func(f *Filter, _, value string, now time.Time) error {
		v, err := parse(value, now)
		if err == nil && *field(f) != none {
			err = errors.New("is given twice")
		}
		if err == nil {
			*field(f) = v
		}
		return err
	}, func(f *Filter, term func(string, string)) {
		if v := *field(f); v != none && text(v) != "" {
			term(name, text(v))
		}
	}}
}

func listKey[T ~string](name string, field func(*Filter) *[]T) filterKey {
	return filterKey{name, func(f *Filter, _, value string, _ time.Time) error {
		if state, is := any(T(value)).(ojs.State); is && !state.Valid() {
			return fmt.Errorf("%q is none of %v", value, ojs.AllStates())
		} else if value == "" {
			return errors.New("has no value")
		}
		*field(f) = append(*field(f), T(value))
		return nil
	}, func(f *Filter, term func(string, string)) {
		for _, value := range *field(f) {
			term(name, string(value))
		}
	}}
}

func textKey(name string, field func(*Filter) *string) filterKey {
	return oneKey(name, field, func(value string, _ time.Time) (string, error) {
		if value == "" {
			return "", errors.New("has no value")
		}
		return value, nil
	}, func(value string) string { return value })
}

func memberKey(prefix string) filterKey {
	return filterKey{prefix, func(f *Filter, name, value string, _ time.Time) error {
		f.Members = append(f.Members, Member{name, value})
		return nil
	}, func(f *Filter, term func(string, string)) {
		if prefix != memberPrefixes[0] {
			return // the first writes all of them, in their order
		}
		for _, m := range f.Members {
			term(m.Path, m.Value)
		}
	}}
}

func rangeKey(name string, field func(*Filter) **Range) filterKey {
	return oneKey(name, field, func(value string, _ time.Time) (*Range, error) {
		least, most, isRange := strings.Cut(value, "..")
		if !isRange {
			most = least
		}
		r := Range{math.MinInt, math.MaxInt}
		var err error
		if least != "" {
			r.Min, err = strconv.Atoi(least)
		}
		if most != "" && err == nil {
			r.Max, err = strconv.Atoi(most)
		}
		if err != nil || value == "" || value == ".." || r.Min > r.Max {
			return nil, fmt.Errorf("%q is no number and no range such as 1..5, 5.. or ..5", value)
		}
		return &r, nil
	}, func(r *Range) string {
		least, most := "", ""
		if r.Min != math.MinInt {
			least = strconv.Itoa(r.Min)
		}
		if r.Max != math.MaxInt {
			most = strconv.Itoa(r.Max)
		}
		if least == most {
			return least
		}
		return least + ".." + most
	})
}

func timeKey(name string, field func(*Filter) *time.Time) filterKey {
	return oneKey(name, field, parseTime, func(at time.Time) string {
		if at.IsZero() { // in any zone
			return ""
		}
		return at.UTC().Format(time.RFC3339Nano)
	})
}

func parseOrder(value string, _ time.Time) (Order, error) {
	if value == "" || !Order(value).Valid() {
		return "", fmt.Errorf("%q is none of newest, finished, due and claim", value)
	}
	return Order(value), nil
}

// parseTime reads a time of a filter line.
func parseTime(value string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.Parse(layout, value); err == nil && !at.IsZero() {
			return at.UTC(), nil
		}
	}
	text, future := strings.CutPrefix(value, "+")
	d, err := time.ParseDuration(text)
	if days, isDays := strings.CutSuffix(text, "d"); isDays && err != nil {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d < 0 {
		return time.Time{}, fmt.Errorf("%q is no time: write 2026-03-01, 2026-03-01T12:00:00Z, 90s, "+
			"1h30m or 7d, or +1h for an hour from now", value)
	}
	if !future {
		d = -d
	}
	return now.Add(d).UTC().Round(0), nil
}
