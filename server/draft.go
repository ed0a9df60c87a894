package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/iso8601"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// attributes are the members of a job that the server reads or writes itself. The system
// manages the ones that are false: a request that has them is taken as if it had not
// (F045).
var attributes = map[string]bool{
	"id": true, "type": true, "args": true, "meta": true, "options": true, "version": true,
	"queue": true, "priority": true, "scheduled_at": true, "delay_until": true, "expires_at": true,
	"retry": true, "retry_policy": true, "unique": true, "rate_limit": true, "tags": true, "pending": true,
	"timeout": true, "timeout_ms": true, "visibility_timeout": true, "visibility_timeout_ms": true,
	"total_timeout": true, "enqueue_ttl": true, "result_ttl": true, "fairness": true,
	"idempotency_key": true, "unique_key": true, "specversion": true, keyBatch: true,

	"state": false, "attempt": false, "max_attempts": false, "created_at": false,
	"enqueued_at": false, "started_at": false, "completed_at": false, "cancelled_at": false,
	"discarded_at": false, "dead_lettered_at": false, "next_retry_at": false, "retry_delay_ms": false,
	"result": false, "error": false, "errors": false, "worker_id": false, "progress": false,
	"workflow_id": false, "parent_results": false, "parent_results_by_id": false, "dependencies": false,
	keySent:    false,
	keyOutline: false, keyStep: false,
}

// topOnly are the attributes that options do not have.
var topOnly = map[string]bool{"specversion": true, "id": true, "type": true, "args": true, "options": true}

// jobRequest is a job as a request describes it.
type jobRequest struct {
	s     *Server
	in    *input
	found object // the attributes that are there
	tops  int    // how many of found are at the top; the others are in options

	jobType string
	args    ojs.Args
	queue   string
	options []ojs.Option
	extra   map[string]json.RawMessage
	sent    sent

	versioned bool // the job's type has a version
}

var jobRequests = sync.Pool{New: func() any { return new(jobRequest) }}

// putBack returns the request to the pool.
func (w *jobRequest) putBack() {
	clear(w.found)
	clear(w.options)
	*w = jobRequest{found: w.found[:0], options: w.options[:0]}
	jobRequests.Put(w)
}

// jobSteps read a job, one after another.
var jobSteps = []func(*jobRequest) error{(*jobRequest).collect, (*jobRequest).specVersion,
	(*jobRequest).readType, (*jobRequest).readArgs, (*jobRequest).places, (*jobRequest).times,
	(*jobRequest).periods, (*jobRequest).retry, (*jobRequest).unique, (*jobRequest).shares,
	(*jobRequest).batchOptions, (*jobRequest).meta, (*jobRequest).cell, (*jobRequest).strict}

// draftOf makes a draft of a job as requests have it: of an enqueue, a member of a batch,
// the template of a recurring job, a step of a workflow. Its queue is returned too.
func (s *Server) draftOf(in *input) (d ojs.Draft, queue string, err error) {
	w := jobRequests.Get().(*jobRequest)
	defer w.putBack()
	w.s, w.in = s, in
	for _, read := range jobSteps {
		if err := read(w); err != nil {
			return d, "", err
		}
	}
	if in.err != nil {
		return d, "", in.err
	}
	if w.sent != (sent{}) {
		w.keep(keySent, marshal(w.sent))
	}
	var uri string
	if v := w.extra["schema"]; v != nil && !decodeText(v, &uri) {
		return d, "", invalid(in.path+"schema", "is not a string").expected("string").received(kindOf(v))
	}
	if s.offersSchemas() {
		o := ojs.DefaultOptions()
		o.Apply(w.options...)
		if err := s.checkSchema(in.ctx(), w.jobType, o.TypeVersion, uri, w.args, o.Meta); err != nil {
			return d, "", err
		}
	}
	conf, err := s.config(in.ctx(), w.queue)
	if err != nil {
		return d, "", err
	}
	if w.extra != nil {
		extra := w.extra
		w.option(func(o *ojs.Options) { o.Extra = extra })
	}
	d = ojs.NewDraft(w.jobType, w.args, w.options...)
	if conf.defaults != nil {
		d = d.Under(conf.defaults...)
	}
	return d, w.queue, nil
}

// strict refuses a job that the server is too strict for.
func (w *jobRequest) strict() error {
	z := &w.s.conf.strict
	refused := func(field, reason string) error {
		return unsupported("%s %s", field, reason).with("field", field)
	}
	if len(z.Types) > 0 && !patterns(z.Types).match(w.jobType) {
		return refused(w.place("type"), "is none that this server takes")
	}
	if z.UnknownAttributes {
		for _, name := range slices.Sorted(maps.Keys(w.extra)) {
			if name == "schema" {
				continue
			}
			if name == "options" {
				if options, err := split(w.extra[name], ""); err == nil {
					name += "." + options[0].name
				}
			}
			return refused(w.in.path+clip(name), "is no attribute of a job")
		}
	}
	if z.Meta {
		var o ojs.Options
		o.Apply(w.options...)
		for _, key := range slices.Sorted(maps.Keys(o.Meta)) {
			text, _ := o.Meta[key].(string)
			if !metaKey.MatchString(key) || strings.ContainsAny(text, "\r\n") {
				return refused(w.in.path+"meta", "has a key or a text that this server does not take")
			}
		}
	}
	return nil
}

var metaKey = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`)

func (w *jobRequest) option(opts ...ojs.Option) { w.options = append(w.options, opts...) }

func (w *jobRequest) keep(name string, value []byte) {
	if w.extra == nil {
		w.extra = make(map[string]json.RawMessage)
	}
	w.extra[name] = value
}

// collect finds each attribute, at the top or in options. An attribute in both
// places is refused (F167). Unknown ones are kept (F174).
func (w *jobRequest) collect() error {
	top := w.in
	for i := range top.object {
		m := &top.object[i]
		switch known, ours := attributes[m.name]; {
		case isNull(m.value), ours && !known, m.name == "options":
		case known:
			w.found = append(w.found, *m)
		default:
			w.keep(m.name, m.value)
		}
	}
	w.tops = len(w.found)
	v := top.get("options")
	if kindOf(v) != "object" { // or it is absent
		top.within("options")
		return top.err
	}
	var room [8]member
	options, err := splitTo(room[:0], v, top.path, "options.")
	if err != nil {
		return err
	}
	var unknown object
	for i := range options {
		m := &options[i]
		switch {
		case isNull(m.value):
		case m.name != "metadata" && m.name != "max_attempts" && (!attributes[m.name] || topOnly[m.name]):
			unknown = append(unknown, *m)
		case w.has(m.name):
			return invalid(top.path+"options."+m.name, "is set twice, as "+w.place(m.name)+" too")
		default:
			w.found = append(w.found, *m)
		}
	}
	if unknown != nil {
		w.keep("options", unknown.appendJSON(nil))
	}
	return nil
}

// value returns an attribute as JSON, nil if the request does not have it.
func (w *jobRequest) value(name string) []byte {
	for i := range w.found {
		if w.found[i].name == name {
			return w.found[i].value
		}
	}
	return nil
}

// place is where an attribute is in the body.
func (w *jobRequest) place(name string) string {
	one := w.one(name)
	return one.path + name
}

// one is an input with a single attribute, whose errors name its place.
func (w *jobRequest) one(name string) input {
	for i := range w.found {
		switch {
		case w.found[i].name != name:
		case i >= w.tops:
			return input{object: w.found[i : i+1], path: w.in.path + "options."}
		default:
			return input{object: w.found[i : i+1], path: w.in.path}
		}
	}
	return input{path: w.in.path}
}

// has reports whether the request has an attribute.
func (w *jobRequest) has(name string) bool { return w.value(name) != nil }

// exclusive refuses a request that has two names of one thing.
func (w *jobRequest) exclusive(a, b string) error {
	if w.has(a) && w.has(b) {
		return invalid(w.place(b), "is set twice, as "+w.place(a)+" too")
	}
	return nil
}

// specVersion refuses a job in the form of another version of the standard (F008).
func (w *jobRequest) specVersion() error {
	if !w.has("specversion") {
		return nil
	}
	one := w.one("specversion")
	v := one.text("specversion")
	if one.err != nil || versionsTaken.MatchString(v) {
		return one.err
	}
	return unsupported("%s %q is not offered: use 1.0", w.place("specversion"), clip(v)).
		with("field", w.place("specversion"))
}

// readType reads the type, with a version behind an "@" (V002).
func (w *jobRequest) readType() error {
	if !w.has("type") {
		return invalid(w.in.path+"type", "is missing").expected("string")
	}
	one := w.one("type")
	jobType, version, versioned := strings.Cut(one.text("type"), "@")
	if one.err != nil {
		return one.err
	}
	if err := ojs.ValidateType(jobType); err != nil {
		return invalid(w.place("type"), "is no job type").
			expected("lower-case words of letters, digits, _ and -, joined by dots, such as email.send").
			received(clip(jobType))
	}
	if v := w.value("version"); v != nil {
		var text string
		if !decodeText(v, &text) {
			one := w.one("version")
			if text = strconv.Itoa(one.integer("version", 0, 0, 1<<31)); one.err != nil {
				return one.err
			}
		} else if !strings.Contains(text, ".") {
			return invalid(w.place("version"), "is neither major.minor, such as \"2.1\", nor an integer")
		}
		version, versioned = text, true
	}
	if w.versioned = versioned; versioned {
		w.option(ojs.WithVersion(version))
	}
	w.jobType = jobType
	return nil
}

// readArgs reads the args.
func (w *jobRequest) readArgs() (err error) {
	w.args, err = w.s.args(w.value("args"), w.in.path)
	return err
}

// args reads the args of a job.
func (s *Server) args(v []byte, path string) (args ojs.Args, err error) {
	switch {
	case v == nil:
		return args, invalid(path+"args", "is missing").expected("array")
	case v[0] != '[':
		return args, invalid(path+"args", "is not an array").expected("array").received(kindOf(v))
	case len(v) > s.conf.maxArgs:
		return args, tooLarge(codeTooLarge, path+"args", int64(len(v)), int64(s.conf.maxArgs))
	case jsonvalue.Depth(v) > s.conf.maxDepth+1: // the array itself
		return args, invalid(path+"args", "is nested too deep").
			expected(fmt.Sprintf("at most %d levels", s.conf.maxDepth))
	}
	return insideArgs.OfJSON(compact(v)), nil
}

var insideArgs = bridge.Take[bridge.Args[ojs.Args]]()

// places reads id, queue, priority, tags, pending.
func (w *jobRequest) places() error {
	if w.has("id") {
		one := w.one("id")
		id := one.text("id")
		if one.err != nil {
			return one.err
		}
		o := ojs.DefaultOptions()
		if o.Apply(ojs.WithID(id)); o.Validate() != nil {
			return invalid(w.place("id"), "is no UUIDv7").expected("a UUID of version 7").received(clip(id))
		}
		w.option(ojs.WithID(id))
	}
	w.queue = ojs.DefaultQueue
	if w.has("queue") {
		one := w.one("queue")
		w.queue = one.text("queue")
		if one.err != nil {
			return one.err
		}
		if err := ojs.ValidateQueue(w.queue); err != nil {
			return badQueue(w.place("queue"), w.queue)
		}
		w.option(ojs.WithQueue(w.queue))
	}
	if w.has("priority") {
		one := w.one("priority")
		n := one.integer("priority", 0, -100, 100)
		if one.err != nil {
			return one.err
		}
		w.option(ojs.WithPriority(n))
	}
	if w.has("pending") {
		one := w.one("pending")
		if one.flag("pending") {
			w.option(ojs.WithPending())
		}
		return one.err
	}
	return nil
}

// badQueue refuses the name of a queue.
func badQueue(field, name string) *refusal {
	return invalid(field, "is no queue's name").
		expected("lower-case letters, digits, - and ., the first a letter or digit, at most 128").
		received(clip(name))
}

// mayQueue checks the name of a queue, and the permission of the route for it.
func (c *call) mayQueue(field, name string) error {
	if ojs.ValidateQueue(name) != nil {
		return badQueue(field, name)
	}
	return c.may(name)
}

// times reads scheduled_at, which may be relative, and expires_at (F166).
func (w *jobRequest) times() error {
	name := "scheduled_at"
	if w.has("delay_until") {
		name = "delay_until"
		if w.has("scheduled_at") && string(w.value("scheduled_at")) != string(w.value("delay_until")) {
			return invalid(w.place("delay_until"), "differs from "+w.place("scheduled_at"))
		}
	}
	if w.has(name) {
		one := w.one(name)
		text := one.text(name)
		if one.err != nil {
			return one.err
		}
		if period, relative := strings.CutPrefix(text, "+"); relative {
			d, err := iso8601.Parse(period)
			if err != nil {
				return invalid(w.place(name), "is no ISO 8601 duration behind the +").received(clip(text))
			}
			w.option(ojs.WithDelay(d))
		} else {
			at := one.time(name)
			if one.err != nil {
				return one.err
			}
			w.option(ojs.WithScheduledAt(at))
			w.sent.ScheduledAt = asSent(at, text)
		}
	}
	if w.has("expires_at") {
		one := w.one("expires_at")
		text := one.text("expires_at")
		if period, relative := strings.CutPrefix(text, "+"); relative {
			d, err := iso8601.Parse(period)
			if err != nil || d <= 0 {
				return invalid(w.place("expires_at"),
					"is no positive ISO 8601 duration behind the +").received(clip(text))
			}
			w.option(ojs.WithTTL(d))
			return nil
		}
		at := one.time("expires_at")
		if one.err != nil {
			return one.err
		}
		w.option(ojs.WithExpiresAt(at))
		w.sent.ExpiresAt = asSent(at, text)
	}
	return nil
}

// asSent is the text of a time if answers would write it otherwise (F009).
func asSent(t time.Time, text string) string {
	if t.Format(timeLayout) == text {
		return ""
	}
	return text
}

// periods reads the timeouts. In milliseconds they are integers; the names of the core
// take seconds, or an ISO 8601 duration (F043, F167).
func (w *jobRequest) periods() error {
	for _, p := range []struct {
		name, ms string
		option   func(time.Duration) ojs.Option
		seconds  *bool // to be set if it is sent in seconds
	}{
		{"timeout", "timeout_ms", ojs.WithTimeout, &w.sent.Timeout},
		{"visibility_timeout", "visibility_timeout_ms", ojs.WithLease, &w.sent.Lease},
		{"total_timeout", "", ojs.WithTotalTimeout, nil},
		{"enqueue_ttl", "", ojs.WithEnqueueTTL, nil},
		{"result_ttl", "", ojs.WithResultTTL, nil},
	} {
		if err := w.exclusive(p.name, p.ms); err != nil {
			return err
		}
		name, d := p.name, time.Duration(0)
		switch {
		case w.has(p.name):
			var err error
			if d, err = w.seconds(p.name); err != nil {
				return err
			}
			if p.seconds != nil {
				*p.seconds = w.value(p.name)[0] != '"'
			}
		case w.has(p.ms):
			one := w.one(p.ms)
			name = p.ms
			if d = one.duration(p.ms); one.err != nil {
				return one.err
			}
		default:
			continue
		}
		if p.name == "visibility_timeout" && d < minLease {
			return invalid(w.place(name), "is too short").expected("at least 100 ms")
		}
		w.option(p.option(d))
	}
	return nil
}

// seconds reads a period of the core.
func (w *jobRequest) seconds(name string) (time.Duration, error) {
	v := w.value(name)
	var text string
	if decodeText(v, &text) {
		if d, err := iso8601.Parse(text); err == nil && d > 0 {
			return d, nil
		}
		return 0, invalid(w.place(name), "is no positive ISO 8601 duration").received(clip(text))
	}
	number, err := strconv.ParseFloat(string(v), 64)
	switch {
	case err == nil && name == "result_ttl" && number == -1:
		return ojs.KeepForever, nil
	case err == nil && name == "result_ttl" && number == 0:
		return 0, nil
	}
	var d time.Duration
	if err == nil {
		d, err = iso8601.Parse("PT" + strconv.FormatFloat(number, 'f', -1, 64) + "S")
	}
	if err != nil || d <= 0 {
		return 0, invalid(w.place(name), "is no positive number of seconds").
			expected("a number above 0").received(kindOf(v))
	}
	return d, nil
}

// meta reads meta, what lies under it, and tags.
func (w *jobRequest) meta() error {
	for _, name := range []string{"metadata", "meta"} { // the later wins
		if !w.has(name) {
			continue
		}
		v := w.value(name)
		if v[0] != '{' {
			return invalid(w.place(name), "is not an object").expected("object").received(kindOf(v))
		}
		if len(v) > w.s.conf.maxMeta {
			return tooLarge(codeMetaTooBig, w.place(name), int64(len(v)), int64(w.s.conf.maxMeta))
		}
		decoded, err := jsonvalue.Decode(v)
		meta, ok := decoded.(map[string]any)
		if err != nil || !ok {
			return invalid(w.place(name), "is nested too deep, or has a number that is none")
		}
		for key, value := range meta {
			w.option(ojs.WithMeta(key, value))
		}
	}
	if w.has("tags") {
		one := w.one("tags")
		tags := one.texts("tags")
		if one.err != nil {
			return one.err
		}
		w.sent.Tags = len(tags) > 0
		for _, name := range []string{"metadata", "meta"} {
			if v := w.value(name); v != nil {
				meta, _ := split(v, "")
				w.sent.Tags = w.sent.Tags && meta.get("tags") == nil
			}
		}
		w.option(ojs.WithTags(tags...))
	}
	return nil
}
