// Package draft makes and changes the records of jobs that are not active: what a caller
// gives becomes what is stored. It changes no storage and reads no clock.
package draft

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/internal/plain"
	"github.com/ojsengine/ojs/storage"
)

// Invalid is the error for an option that makes no sense.
func Invalid(field, reason string, args ...any) error {
	return InvalidAs(ojs.InvalidCodeOption, field, reason, args...)
}

// InvalidAs is Invalid with a code of its own.
func InvalidAs(code ojs.InvalidCode, field, reason string, args ...any) error {
	return &ojs.InvalidError{Code: code, Field: field, Reason: fmt.Sprintf(reason, args...)}
}

// Meta returns what a job stores of its options' meta.
func Meta(m map[string]any) (map[string]any, error) {
	if len(m) == 0 {
		return nil, nil
	}
	if jsonvalue.LargerThan(m, jsonvalue.MaxMeta) {
		return nil, tooLarge(ojs.InvalidCodeMetaTooLarge, "meta", m, jsonvalue.MaxMeta)
	}
	meta, err := jsonvalue.Normalize(m)
	if err != nil {
		return nil, InvalidAs(ojs.InvalidCodeMeta, "meta", "%v", err)
	}
	return meta, nil
}

// Args makes args of what was given, after checking it against the type that the handler
// of a job type wants; nil: there is no handler.
func Args(args any, jobType string, want reflect.Type, by *codec.Chain) (ojs.Args, error) {
	most := jsonvalue.MaxEnvelope
	if by != nil {
		most = codec.MaxPlaintext // a codec may make them smaller
	}
	if err := checkArgs(args, most); err != nil {
		return ojs.Args{}, err
	}
	switch {
	case FromElsewhere(args): // JSON from elsewhere: the handler's decoding judges it
		return ojs.NewArgs(args)
	case args == nil:
		if want != nil && !takesNil(want) {
			return ojs.Args{}, InvalidAs(ojs.InvalidCodeArgs, "args",
				"are nil, but the handler of %s takes a %v", jobType, want)
		}
		return ojs.NewArgs(nil)
	}
	have := reflect.TypeOf(args)
	if want != nil && have != want && !have.AssignableTo(want) &&
		!(have.Kind() == reflect.Pointer && have.Elem() == want) {
		return ojs.Args{}, InvalidAs(ojs.InvalidCodeArgs, "args",
			"are a %v, but the handler of %s takes a %v", have, jobType, want)
	}
	return ojs.NewArgs(args)
}

// takesNil reports whether args of a type may be nil: a handler then sees nothing that
// was not given.
func takesNil(args reflect.Type) bool {
	switch args.Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Map, reflect.Slice:
		return true
	}
	return args.Size() == 0
}

// FromElsewhere reports whether args come from elsewhere as JSON, so that they may be
// encoded.
func FromElsewhere(args any) bool {
	switch args.(type) {
	case ojs.Args, json.RawMessage:
		return true
	}
	return false
}

// Encode encodes the args of a job to be stored, unless they are encoded already.
func Encode(ctx context.Context, by *codec.Chain, r *storage.Record, fromElsewhere bool) (err error) {
	if fromElsewhere && codec.IsEncoded(r.Args, r.Meta) {
		return nil
	}
	if by != nil {
		r.Args, r.Meta, err = by.EncodeArgs(ctx, r.Args, r.Meta)
		return err
	}
	if r.Meta != nil { // a copy of another job's
		r.Meta = codec.PlainMeta(r.Meta)
	}
	return nil
}

// CheckIdentity refuses encoded args as a dimension of a unique job: two encodings of the
// same args are different.
func CheckIdentity(u *ojs.UniquePolicy, args ojs.Args, meta map[string]any) error {
	if u.Dimensions()&ojs.ByArgs == 0 || !codec.IsEncoded(args, meta) {
		return nil
	}
	return Invalid("unique",
		"counts args, which come encoded and would never match; give it a Key made of the plain args")
}

// Dimensioned returns the policy of a job with a version of its type, or "". A policy
// without Keys names its dimensions then, since its JSON would leave out the version.
func Dimensioned(u *ojs.UniquePolicy, version string) *ojs.UniquePolicy {
	if u == nil || u.Keys != 0 || version == "" {
		return u
	}
	named := *u
	named.Keys = u.Dimensions() | ojs.ByVersion
	return &named
}

// Milliseconds is a duration as the binding has it, rounded up.
func Milliseconds(d time.Duration) int64 {
	n := d.Milliseconds()
	if d%time.Millisecond > 0 {
		n++
	}
	return n
}

// Time is a caller's time as storages keep it.
func Time(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}

// ReplayCount is how often a job with the meta has been replayed.
func ReplayCount(meta map[string]any) int {
	n, err := strconv.Atoi(fmt.Sprint(meta[MetaReplayCount]))
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// CheckTx refuses a change of a storage in a context that carries a transaction which
// is nil or which the storage cannot join.
func CheckTx(ctx context.Context, s storage.Storage) error {
	tx := storage.Tx(ctx)
	if tx == nil {
		return nil
	}
	if err := storage.CheckTx(ctx); err != nil {
		return err
	}
	if t, ok := storage.As[storage.Transactor](s); ok && t.Joins(tx) {
		return nil
	}
	return fmt.Errorf("%w: the context carries a transaction (%T) that storage %s cannot join; use a context without it",
		ojs.ErrUnsupported, tx, s.Capabilities().Name)
}

var insideArgs = bridge.Take[bridge.Args[ojs.Args]]()

// checkArgs refuses args that are sure to make their job too large, before they are
// encoded. The bound of a plain value costs a fraction of a walk over it.
func checkArgs(args any, most int) error {
	larger := false
	switch args := args.(type) {
	case nil:
	case ojs.Args:
		larger = insideArgs.LargerThan(args, most)
	default:
		p := plain.Of(reflect.TypeOf(args))
		larger = (p == nil || p.Bound(args) > most) && jsonvalue.LargerThan(args, most)
	}
	if !larger {
		return nil
	}
	return tooLarge(ojs.InvalidCodeTooLarge, "envelope", args, most)
}

// tooLarge refuses a value that encodes to more bytes than most. It gives the size, which
// takes encoding the value, unless that is much larger still.
func tooLarge(code ojs.InvalidCode, field string, v any, most int) error {
	const much = 16 << 20 // bytes, from which on the size is not found out
	size := fmt.Sprintf("more than %d bytes of JSON", most)
	args, made := v.(ojs.Args)
	if !made && !jsonvalue.LargerThan(v, much) {
		var err error
		args, err = ojs.NewArgs(v)
		made = err == nil
	}
	if made && !insideArgs.LargerThan(args, much) {
		size = fmt.Sprintf("%d bytes of JSON, more than %d", args.Len(), most)
	}
	return InvalidAs(code, field, "has %s: store the data elsewhere, and enqueue its name", size)
}

// CheckSize refuses a job whose meta or envelope is too large. Only one that may be is
// encoded to know.
func CheckSize(j *ojs.JobInfo) error {
	meta := jsonvalue.SizeBound(j.Meta)
	if meta > jsonvalue.MaxMeta {
		raw, err := json.Marshal(j.Meta)
		if err != nil {
			return InvalidAs(ojs.InvalidCodeMeta, "meta", "%v", err)
		}
		if err := tooLong(ojs.InvalidCodeMetaTooLarge, "meta", len(raw), jsonvalue.MaxMeta); err != nil {
			return err
		}
	}
	const least = 4096 // more than the names, times and numbers of an envelope
	bound := least + meta + insideArgs.SizeBound(j.Args)
	for name, value := range j.Extra {
		bound += 6*len(name) + 6*len(value)
	}
	for _, pattern := range j.Retry.NonRetryableErrors {
		bound += 6*len(pattern) + 3
	}
	if bound <= jsonvalue.MaxEnvelope {
		return nil
	}
	// The args, which may be large, are counted and not encoded once more.
	rest := *j
	rest.Args = ojs.Args{}
	raw, err := json.Marshal(&rest)
	if err != nil {
		return InvalidAs(ojs.InvalidCodeEnvelope, "envelope", "%v", err)
	}
	size := len(raw)
	if size+insideArgs.SizeBound(j.Args) <= jsonvalue.MaxEnvelope {
		return nil
	}
	switch args := j.Args.JSON(); {
	case string(args) == "null":
	case args[0] == '[':
		size += len(args) - len("[]") // which the rest has
	default:
		size += len(args)
	}
	return tooLong(ojs.InvalidCodeTooLarge, "envelope", size, jsonvalue.MaxEnvelope)
}

// tooLong refuses a field of more bytes of JSON than most.
func tooLong(code ojs.InvalidCode, field string, size, most int) error {
	if size <= most {
		return nil
	}
	return InvalidAs(code, field,
		"has %d bytes of JSON, more than %d: store the data elsewhere, and enqueue its name", size, most)
}

// Meta entries that an engine writes when it replays a dead letter (OJS dead letter,
// section 7.2).
const (
	// a number: the replays of the job, by a call or a rule
	MetaReplayCount    = "ojs.replay_count"
	MetaLastReplayedAt = "ojs.last_replayed_at" // by MetaTimes
	MetaReplayRule     = "ojs.replay_rule"      // the rule of the last replay; absent if that was a call
)

// MetaTimes is the layout of the times in UTC that engines write into meta.
const MetaTimes = "2006-01-02T15:04:05.000Z"

// MetaCopyOf is the meta entry of a copy: the id of the job that it was made like.
const MetaCopyOf = "ojs.copy_of"
