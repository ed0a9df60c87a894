package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// member is a member of an object, with its value as JSON.
type member struct {
	name  string
	value []byte
}

// object has the members of a JSON object in their order.
type object []member

// get returns the value of a member; nil: it is absent, or null.
func (o object) get(name string) []byte {
	for i := range o {
		if o[i].name == name {
			if isNull(o[i].value) {
				return nil
			}
			return o[i].value
		}
	}
	return nil
}

// has reports whether there is a member, null or not.
func (o object) has(name string) bool {
	return slices.ContainsFunc(o, func(m member) bool { return m.name == name })
}

// set replaces the value of a member, or adds it.
func (o object) set(name string, value []byte) object {
	for i := range o {
		if o[i].name == name {
			o[i].value = value
			return o
		}
	}
	return append(o, member{name, value})
}

// without returns the object without a member.
func (o object) without(name string) object {
	return slices.DeleteFunc(o, func(m member) bool { return m.name == name })
}

func (o object) appendJSON(b []byte) []byte {
	b = append(b, '{')
	for i := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(appendString(b, o[i].name), ':'), o[i].value...)
	}
	return append(b, '}')
}

func isNull(v []byte) bool { return string(v) == "null" }

// parseBody splits a request body, which has to be one JSON object in UTF-8. Its members
// share the memory of the body.
func parseBody(b []byte, depth int) (object, error) {
	b = trim(b)
	switch {
	case len(b) == 0:
		return nil, badPayload("the body is empty: send a JSON object")
	case !utf8.Valid(b):
		return nil, badPayload("the body is not UTF-8")
	case !json.Valid(b):
		return nil, badPayload("the body is not JSON, or something follows the object")
	case b[0] != '{':
		return nil, badPayload("the body is JSON, but no object: begin it with {")
	case jsonvalue.Depth(b) > depth:
		return nil, invalid("body", "is nested too deep").expected("at most " + strconv.Itoa(depth) +
			" levels")
	}
	return split(b, "")
}

// split splits valid JSON that is an object. A name that occurs twice is refused, since
// readers differ in which of the two they take.
func split(b []byte, prefix string) (object, error) { return splitTo(make(object, 0, 4), b, prefix) }

// splitTo is split into the memory of an empty list. Only an error joins the parts of the
// prefix.
func splitTo(list object, b []byte, prefix ...string) (object, error) {
	var seen map[string]bool // of a large object, which a search for each name would make slow
	i := skip(b, 1)
	for b[i] != '}' {
		end := value(b, i)
		name, known := interned[string(b[i+1:end-1])]
		if !known {
			decodeText(b[i:end], &name)
		}
		if len(list) == 32 {
			seen = make(map[string]bool)
			for _, m := range list {
				seen[m.name] = true
			}
		}
		if seen[name] || seen == nil && list.has(name) {
			return nil, invalid(strings.Join(prefix, "")+clip(name), "occurs twice")
		}
		if seen != nil {
			seen[name] = true
		}
		i = skip(b, skip(b, end)+1) // the colon
		end = value(b, i)
		list = append(list, member{name, b[i:end:end]})
		if i = skip(b, end); b[i] == ',' {
			i = skip(b, i+1)
		}
	}
	return list, nil
}

// interned are the names that most objects have, which need no memory of their own.
var interned = func() map[string]string {
	names := make(map[string]string)
	for name := range attributes {
		names[name] = name
	}
	for _, name := range []string{"queues", "count", "worker_id", "wait_ms", "job_id", "jobs", "message",
		"code"} {
		names[name] = name
	}
	return names
}()

// elements splits valid JSON that is a list. The result is never nil.
func elements(b []byte) [][]byte {
	list, i := [][]byte{}, skip(b, 1)
	for b[i] != ']' {
		end := value(b, i)
		list = append(list, b[i:end:end])
		if i = skip(b, end); b[i] == ',' {
			i = skip(b, i+1)
		}
	}
	return list
}

func space(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// skip returns where the next token of valid JSON begins.
func skip(b []byte, i int) int {
	for i < len(b) && space(b[i]) {
		i++
	}
	return i
}

// compact returns valid JSON without the spaces between its tokens, in memory of its own.
func compact(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		end := i + 1
		if b[i] == '"' {
			end = value(b, i)
		}
		if !space(b[i]) {
			out = append(out, b[i:end]...)
		}
		i = end
	}
	return out
}

func trim(b []byte) []byte {
	b = b[skip(b, 0):]
	for len(b) > 0 && space(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// value returns where the value that begins at i ends, in valid JSON.
func value(b []byte, i int) int {
	switch b[i] {
	case '"':
		for i++; b[i] != '"'; i++ {
			if b[i] == '\\' {
				i++
			}
		}
		return i + 1
	case '{', '[':
		depth := 0
		for ; ; i++ {
			switch b[i] {
			case '"':
				i = value(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && !space(b[i]) {
		i++
	}
	return i
}

// input reads the members of an object. The first that is not as it should be is in err,
// and names the member. null counts as absent.
type input struct {
	object
	path string // of the object, with a dot; "": it is the body
	err  error
	call *call // nil: there is none
}

func (in *input) ctx() context.Context {
	if in.call == nil {
		return context.Background()
	}
	return in.call.ctx
}

func (in *input) fail(name, reason, expected string) {
	if in.err == nil {
		in.err = invalid(in.path+name, reason).expected(expected).received(kindOf(in.get(name)))
	}
}

// require wants members to be there.
func (in *input) require(names ...string) {
	for _, name := range names {
		if in.get(name) == nil {
			in.fail(name, "is missing", "")
		}
	}
}

// text reads a string, "" if it is absent.
func (in *input) text(name string) (s string) {
	if v := in.get(name); v != nil && !decodeText(v, &s) {
		in.fail(name, "is not a string", "string")
	}
	return s
}

// decodeText decodes a string of valid JSON, and reports whether it is one.
func decodeText(v []byte, s *string) bool {
	if v[0] != '"' {
		return false
	}
	if bytes.IndexByte(v, '\\') < 0 {
		*s = string(v[1 : len(v)-1])
		return true
	}
	var decoded string // s itself needs no memory from the heap
	err := json.Unmarshal(v, &decoded)
	*s = decoded
	return err == nil
}

// name reads a string that is required and not empty.
func (in *input) name(name string) string {
	in.require(name)
	s := in.text(name)
	if s == "" {
		in.fail(name, "is empty", "a string that is not empty")
	}
	return s
}

// filled reads a string that is not empty, "" if it is absent.
func (in *input) filled(name string) string {
	if in.get(name) == nil {
		return ""
	}
	return in.name(name)
}

// flag reads a boolean.
func (in *input) flag(name string) (on bool) {
	switch v := in.get(name); {
	case v == nil:
	case string(v) == "true":
		return true
	case string(v) != "false":
		in.fail(name, "is not a boolean", "boolean")
	}
	return false
}

// integer reads an integer from least to most.
func (in *input) integer(name string, absent, least, most int) int {
	v := in.get(name)
	if v == nil {
		return absent
	}
	n, ok := whole(v)
	switch {
	case !ok:
		in.fail(name, "is not an integer", "integer")
	case n < int64(least) || n > int64(most):
		in.fail(name, "is "+clip(string(v)),
			"an integer from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
	default:
		return int(n)
	}
	return absent
}

// whole decodes an integer of valid JSON, and reports whether it is one. As in JSON
// schema, 3.0 is an integer. One out of the range of int64 becomes the nearest that is in
// it.
func whole(v []byte) (n int64, ok bool) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), f != math.Trunc(f):
		return 0, false
	case f >= 1<<63:
		return math.MaxInt64, true
	case f < -1<<63:
		return math.MinInt64, true
	}
	return int64(f), true
}

// list reads a list, nil if it is absent.
func (in *input) list(name string) [][]byte {
	v := in.get(name)
	if v == nil {
		return nil
	}
	if v[0] != '[' {
		in.fail(name, "is not a list", "array")
		return nil
	}
	return elements(v)
}

// texts reads a list of strings, nil if it is absent.
func (in *input) texts(name string) []string {
	list := in.list(name)
	if list == nil {
		return nil
	}
	out := make([]string, len(list))
	for i, v := range list {
		if !decodeText(v, &out[i]) {
			in.fail(name, "has an element that is not a string", "array of strings")
		}
	}
	return out
}

// within reads an object. If it is absent, it has no members.
func (in *input) within(name string) *input {
	out := &input{path: in.path + name + ".", call: in.call}
	v := in.get(name)
	switch {
	case v == nil:
	case v[0] != '{':
		in.fail(name, "is not an object", "object")
	default:
		var err error
		if out.object, err = split(v, out.path); err != nil && in.err == nil {
			in.err = err
		}
	}
	return out
}

// time reads a time, zero if it is absent.
func (in *input) time(name string) (t time.Time) {
	var s string
	v := in.get(name)
	if v == nil {
		return t
	}
	if !decodeText(v, &s) {
		in.fail(name, "is not a string", "an RFC 3339 time with a zone")
		return t
	}
	t, ok := parseTime(s)
	if !ok {
		in.fail(name, "is no RFC 3339 time with a zone", "such as 2026-03-01T12:00:00Z")
	}
	return t
}

// rfc3339 is the strict form. time.Parse also accepts a comma for the point and one digit
// for the hour.
var rfc3339 = regexp.MustCompile(
	`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func parseTime(s string) (t time.Time, ok bool) {
	t, err := time.Parse(time.RFC3339, s)
	return t.UTC(), err == nil && rfc3339.MatchString(s) && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999
}

// duration reads a number of milliseconds above 0; 0 if it is absent.
func (in *input) duration(name string) time.Duration {
	const most = math.MaxInt64 / int(time.Millisecond)
	return time.Duration(in.integer(name, 0, 1, most)) * time.Millisecond
}

// kindOf names the JSON type of a value, "" if it is absent.
func kindOf(v []byte) string {
	if len(v) == 0 {
		return ""
	}
	switch v[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// clip shortens a name for an error message.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
