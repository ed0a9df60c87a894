package policy

import (
	"bytes"
	"slices"
	"sync"

	"github.com/ojsengine/ojs"
)

// simple returns the same text as canonical for most jobs: args without escapes,
// characters beyond ASCII, fractions and large numbers. For other jobs, invalid ones
// included, it reports false, and the library writes the text. A property test keeps the
// two equal.
//
// Every unique enqueue makes a fingerprint, and simple costs a fraction of canonical. The
// writer owns the text until it writes the next.
func (w *simpleWriter) simple(p *ojs.UniquePolicy, job *ojs.JobInfo) ([]byte, bool) {
	dims := p.Dimensions()
	if job.TypeVersion != "" || dims&ojs.ByMeta != 0 ||
		p.ArgsKeys != nil && dims&ojs.ByArgs == 0 || inside.Lossy(job.Args) {
		return nil, false
	}
	w.in, w.dst, w.hard = nil, append(w.dst[:0], '{'), false
	if dims&ojs.ByArgs != 0 {
		w.raw(`"args":`)
		w.args(job.Args.JSON(), p.ArgsKeys)
		w.raw(",")
	}
	if p.Key != "" {
		w.raw(`"key":`)
		w.text(p.Key)
		w.raw(",")
	}
	if dims&ojs.ByQueue != 0 {
		w.raw(`"queue":`)
		w.text(job.Queue)
		w.raw(",")
	}
	w.raw(`"type":`)
	w.text(job.Type)
	w.raw("}")
	return w.dst, !w.hard
}

// simpleWriter rewrites compact JSON with the members of objects in their order.
type simpleWriter struct {
	in   []byte // the unread part of the args
	dst  []byte
	hard bool // something is not simple
}

// writers keeps the buffers of a text for the next one.
var writers = sync.Pool{New: func() any { return new(simpleWriter) }}

// release returns a writer to writers, unless it has become large.
func (w *simpleWriter) release() {
	w.in = nil
	if cap(w.dst) <= 64<<10 {
		writers.Put(w)
	}
}

const (
	maxMembers = 16 // of an object
	maxNesting = 8
	maxDigits  = 15 // every integer of so many is a float64
)

func (w *simpleWriter) raw(s string) { w.dst = append(w.dst, s...) }

// text writes a string. A string that needs escapes is not simple.
func (w *simpleWriter) text(s string) {
	for i := range len(s) {
		if !plainByte(s[i]) {
			w.hard = true
			return
		}
	}
	w.dst = append(w.dst, '"')
	w.raw(s)
	w.dst = append(w.dst, '"')
}

// plainByte reports whether a byte stands for itself in JSON and in normal form.
func plainByte(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' }

// args writes the wire form of the args, or an object of the members that keys name.
func (w *simpleWriter) args(raw []byte, keys []string) {
	w.in = raw
	switch {
	case keys != nil:
		w.project(keys)
		return
	case string(raw) == "null":
		w.raw("[]")
		return
	case len(raw) > 0 && raw[0] == '[':
		w.value(maxNesting)
	default:
		w.raw("[")
		w.value(maxNesting)
		w.raw("]")
	}
	w.hard = w.hard || len(w.in) > 0
}

// project writes the members of the args that keys name. All of them have to be there.
func (w *simpleWriter) project(keys []string) {
	if len(keys) == 0 || len(w.in) == 0 || w.in[0] != '{' {
		w.hard = true
		return
	}
	w.object(maxNesting, keys)
	w.hard = w.hard || len(w.in) > 0
}

// next reports whether c comes next, and goes past it.
func (w *simpleWriter) next(c byte) bool {
	if len(w.in) == 0 || w.in[0] != c {
		return false
	}
	w.in = w.in[1:]
	return true
}

// take writes the next n bytes as they are.
func (w *simpleWriter) take(n int) {
	w.dst = append(w.dst, w.in[:n]...)
	w.in = w.in[n:]
}

func (w *simpleWriter) value(left int) {
	if w.hard || left == 0 || len(w.in) == 0 {
		w.hard = true
		return
	}
	switch c := w.in[0]; {
	case c == '{':
		w.object(left, nil)
	case c == '[':
		w.list(left)
	case c == '"':
		w.quoted()
	case c == '-' || c >= '0' && c <= '9':
		w.integer()
	default:
		for _, literal := range []string{"true", "false", "null"} {
			if bytes.HasPrefix(w.in, []byte(literal)) {
				w.take(len(literal))
				return
			}
		}
		w.hard = true
	}
}

func (w *simpleWriter) quoted() {
	for i := 1; i < len(w.in); i++ {
		switch {
		case w.in[i] == '"':
			w.take(i + 1)
			return
		case !plainByte(w.in[i]):
			w.hard = true
			return
		}
	}
	w.hard = true
}

func (w *simpleWriter) integer() {
	digits := 0
	if w.in[0] == '-' {
		digits = 1
	}
	first, n := digits, digits
	for n < len(w.in) && w.in[n] >= '0' && w.in[n] <= '9' {
		n++
	}
	digits = n - first
	if digits == 0 || digits > maxDigits || first == 1 && w.in[1] == '0' || n < len(w.in) &&
		(w.in[n] == '.' || w.in[n] == 'e' || w.in[n] == 'E') {
		w.hard = true
		return
	}
	w.take(n)
}

func (w *simpleWriter) list(left int) {
	w.take(1)
	if len(w.in) > 0 && w.in[0] == ']' {
		w.take(1)
		return
	}
	for !w.hard {
		w.value(left - 1)
		switch {
		case w.next(','):
			w.raw(",")
		case w.next(']'):
			w.raw("]")
			return
		default:
			w.hard = true
		}
	}
}

// span is a member as it stands in dst: its name begins after the quote, and it ends
// before the comma.
type span struct{ name, nameEnd, end int }

// object writes an object, or its members in keys if keys is not nil.
func (w *simpleWriter) object(left int, keys []string) {
	w.take(1)
	start := len(w.dst)
	var members [maxMembers]span
	n, sorted := 0, true
	for !w.hard && !w.next('}') {
		if n > 0 && !w.next(',') || n == maxMembers {
			w.hard = true
			return
		}
		at := len(w.dst)
		w.quoted()
		m := span{name: at + 1, nameEnd: len(w.dst) - 1}
		if w.hard || !w.next(':') {
			w.hard = true
			return
		}
		w.raw(":")
		w.value(left - 1)
		m.end = len(w.dst)
		w.raw(",")
		if n > 0 {
			sorted = sorted && bytes.Compare(w.name(members[n-1]), w.name(m)) < 0
		}
		members[n] = m
		n++
	}
	if w.hard {
		return
	}
	found := members[:n]
	if !sorted {
		w.sort(found)
	}
	if keys != nil {
		found, sorted = w.named(found, keys), false
	}
	if !sorted {
		w.rewrite(start, found)
	}
	if len(w.dst) > start {
		w.dst = w.dst[:len(w.dst)-1] // the last comma
	}
	w.raw("}")
}

// named returns the members that keys name. Missing or repeated members are not simple.
func (w *simpleWriter) named(members []span, keys []string) []span {
	kept := members[:0]
	for _, m := range members {
		if slices.Contains(keys, string(w.name(m))) {
			kept = append(kept, m)
		}
	}
	w.hard = w.hard || len(kept) != len(keys)
	return kept
}

func (w *simpleWriter) name(m span) []byte { return w.dst[m.name:m.nameEnd] }

// sort puts members in the order of their names. A name that occurs twice is not simple.
func (w *simpleWriter) sort(members []span) {
	// By insertion: they are few.
	for i := 1; i < len(members); i++ {
		for k := i; k > 0; k-- {
			order := bytes.Compare(w.name(members[k-1]), w.name(members[k]))
			w.hard = w.hard || order == 0
			if order <= 0 {
				break
			}
			members[k-1], members[k] = members[k], members[k-1]
		}
	}
}

// rewrite replaces dst from start by members, which stand there, in their order.
func (w *simpleWriter) rewrite(start int, members []span) {
	end := len(w.dst)
	for _, m := range members {
		w.dst = append(w.dst, w.dst[m.name-1:m.end+1]...)
	}
	w.dst = append(w.dst[:start], w.dst[end:]...)
}
