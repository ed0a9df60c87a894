package policy

import (
	"bytes"

	"github.com/ojsengine/ojs"
)

// quick appends the canonical text of a job, if that needs nothing but sorting: its JSON is of ASCII without escapes, integers,
// and objects of few members. Almost all jobs are so. It reports false for others, which canonical has to read, and for what may
// be an error.
func quick(dst []byte, p *ojs.UniquePolicy, job *ojs.JobInfo) ([]byte, bool) {
	dims := p.Dimensions()
	if p.ArgsKeys != nil || dims&ojs.ByMeta != 0 {
		return nil, false
	}
	dst = append(dst, '{')
	if dims&ojs.ByArgs != 0 {
		var space [512]byte
		raw := job.Args.AppendJSON(space[:0])
		wire := raw[0] != '[' && string(raw) != "null" // otherwise it is a list, or an empty one
		dst = append(dst, `"args":`...)
		q := quickText{raw: raw}
		switch {
		case string(raw) == "null":
			dst = append(dst, "[]"...)
			q.at = len(raw)
		case wire:
			dst = append(dst, '[')
			dst = append(q.value(dst), ']')
		default:
			dst = q.value(dst)
		}
		if q.odd || q.at != len(raw) {
			return nil, false
		}
		dst = append(dst, ',')
	}
	for _, s := range [...]struct {
		name, value string
		counts      bool
	}{{`"key":"`, p.Key, p.Key != ""}, {`"queue":"`, job.Queue, dims&ojs.ByQueue != 0}, {`"type":"`, job.Type, true}} {
		if !s.counts {
			continue
		}
		for i := range len(s.value) {
			if !simple(s.value[i]) {
				return nil, false
			}
		}
		dst = append(append(append(dst, s.name...), s.value...), `",`...)
	}
	dst[len(dst)-1] = '}'
	return dst, true
}

// simple reports whether a character stands for itself in a JSON string, and in every normal form of it.
func simple(c byte) bool { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' }

// quickText reads valid JSON.
type quickText struct {
	raw []byte
	at  int
	odd bool // there is something that quick does not do
}

const (
	quickMembers = 16
	quickDigits  = 300 // fewer than any number has that is beyond a float64
)

// value appends the canonical form of the value at q.at and goes on behind it.
func (q *quickText) value(dst []byte) []byte {
	start := q.at
	switch c := q.next(); {
	case c == '"':
		q.text()
	case c == '-' || '0' <= c && c <= '9':
		q.integer()
	case c == 't' || c == 'n':
		q.at += len("true")
	case c == 'f':
		q.at += len("false")
	case c == '[':
		return q.list(dst)
	case c == '{':
		return q.object(dst)
	default:
		q.odd = true
	}
	if q.odd || q.at > len(q.raw) {
		q.odd = true
		return dst
	}
	return append(dst, q.raw[start:q.at]...)
}

// next is the character at q.at.
func (q *quickText) next() byte {
	if q.odd || q.at >= len(q.raw) {
		q.odd = true
		return 0
	}
	return q.raw[q.at]
}

func (q *quickText) text() {
	for q.at++; simple(q.next()); q.at++ {
	}
	q.odd = q.odd || q.raw[q.at] != '"'
	q.at++
}

func (q *quickText) integer() {
	start := q.at
	if q.raw[q.at] == '-' {
		q.at++
	}
	digits := q.at
	for q.at < len(q.raw) && '0' <= q.raw[q.at] && q.raw[q.at] <= '9' {
		q.at++
	}
	if q.at < len(q.raw) {
		if c := q.raw[q.at]; c == '.' || c == 'e' || c == 'E' {
			q.odd = true
		}
	}
	q.odd = q.odd || q.at-digits > quickDigits || digits > start && q.raw[digits] == '0' // -0
}

func (q *quickText) list(dst []byte) []byte {
	dst = append(dst, '[')
	if q.at++; q.next() == ']' {
		q.at++
		return append(dst, ']')
	}
	for {
		dst = q.value(dst)
		c := q.next()
		q.at++
		switch c {
		case ',', ']':
			dst = append(dst, c)
		default:
			q.odd = true
		}
		if c == ']' || q.odd {
			return dst
		}
	}
}

// object appends the members in the order of their names.
func (q *quickText) object(dst []byte) []byte {
	type member struct{ name, value []byte }                                                                  // as they shall stand
	order := func(a, b member) int { return bytes.Compare(a.name[1:len(a.name)-1], b.name[1:len(b.name)-1]) } // not by the quotes
	var members [quickMembers]member
	n := 0
	start := len(dst)
	dst = append(dst, '{')
	if q.at++; q.next() == '}' {
		q.at++
		return append(dst, '}')
	}
	sorted := true
	for c := byte(','); c == ','; q.at++ {
		nameAt := q.at
		if q.next() != '"' {
			q.odd = true
			return dst
		}
		q.text()
		if q.next() != ':' || n == quickMembers {
			q.odd = true
			return dst
		}
		m := member{name: q.raw[nameAt:q.at]}
		q.at++
		dst = append(append(dst, m.name...), ':')
		valueAt := len(dst)
		dst = q.value(dst)
		m.value = dst[valueAt:]
		if n > 0 {
			sorted = sorted && order(members[n-1], m) < 0
		}
		members[n] = m
		n++
		if c = q.next(); c != ',' && c != '}' || q.odd {
			q.odd = true
			return dst
		}
		dst = append(dst, c)
	}
	if sorted {
		return dst
	}
	// They stand in dst already, in another order, and dst may have moved: write them anew behind it.
	for i := 1; i < n; i++ {
		for k := i; k > 0; k-- {
			o := order(members[k-1], members[k])
			if o == 0 {
				q.odd = true
				return dst
			}
			if o < 0 {
				break
			}
			members[k-1], members[k] = members[k], members[k-1]
		}
	}
	end := len(dst)
	dst = append(dst, '{')
	for i, m := range members[:n] {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, m.name...), ':'), m.value...)
	}
	dst = append(dst, '}')
	return append(dst[:start], dst[end:]...)
}
