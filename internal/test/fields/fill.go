package fields

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/bridge"
)

// A Filler fills values with random ones that an engine may store: valid policies and
// names, times in UTC. Zero and extreme values are among them.
type Filler struct {
	Precision time.Duration // of times; 0: nanoseconds
	Full      bool          // no pointer, slice or map is nil or empty
	Wide      bool          // any text, time and duration, also those that no engine stores
}

// maxSpan is the longest time of a job: a hundred years.
const maxSpan = 36500 * 24 * time.Hour

// The times of jobs: 1970 to 2200.
const maxUnix = 7_258_118_400

// Fill gives every field that can be reached from the value that p points to a random
// value of its own. It fails t if there is a field of a type for which it has no values.
func (f Filler) Fill(t *rapid.T, p any) { f.fill(t, "", reflect.ValueOf(p).Elem()) }

// text is a string with what a storage may trip over, but without NUL unless f is wide:
// engines store that in JSON only.
func (f Filler) text(t *rapid.T, path string) string {
	if f.Wide {
		return rapid.String().Draw(t, path)
	}
	odd := rapid.SampledFrom([]string{"", "é\"", "<&>'", "\\n\n", "%_", "\u2028漢𝄞"}).Draw(t, path+" ends in")
	return fmt.Sprintf("t%d%s", rapid.Uint32().Draw(t, path), odd)
}

// name is a string that is a valid name of a queue, a type, a key.
func name(t *rapid.T, path string) string { return fmt.Sprintf("n%d", rapid.Uint32().Draw(t, path)) }

func oneOf[E any](t *rapid.T, path string, list ...E) E { return rapid.SampledFrom(list).Draw(t, path) }

// raw is JSON as an engine stores it: compact.
func (f Filler) raw(t *rapid.T, path string) json.RawMessage {
	if f.Wide {
		return json.RawMessage(oneOf(t, path,
			"null", "[1, 2]", `{"a":  "<\u0000é"}`, "\"\xff\"", "9007199254740993"))
	}
	n := rapid.Uint32().Draw(t, path)
	form := oneOf(t, path+" form",
		`%d`, `"%dé"`, `{"a":[%d,null,9007199254740993]}`, `{"z":1.50,"a":%d}`)
	return json.RawMessage(fmt.Sprintf(form, n))
}

func (f Filler) object(t *rapid.T, path string) map[string]any {
	if !f.Full && rapid.IntRange(0, 5).Draw(t, path+" is none") == 0 {
		return nil
	}
	n := rapid.Uint32().Draw(t, path)
	return map[string]any{
		"n":   float64(n),
		"s":   f.text(t, path+" text"),
		"é\"": nil,
		"":    true,
		"big": json.Number("9007199254740993"),
		"l":   []any{fmt.Sprint("in a list ", n), map[string]any{"deep": []any{float64(n)}}},
		"o":   map[string]any{"n": float64(n)},
	}
}

func (f Filler) fill(t *rapid.T, path string, v reflect.Value) {
	rare := func() bool { return !f.Full && rapid.IntRange(0, 5).Draw(t, path+" is zero") == 0 }
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		seconds := rapid.Int64Range(0, maxUnix).Draw(t, path)
		nanos := rapid.Int64Range(0, 999_999_999).Draw(t, path+" ns")
		if f.Wide {
			seconds = rapid.Int64Range(-60_000_000_000, 250_000_000_000).Draw(t, path+" wide")
		}
		*x = time.Unix(seconds, nanos).UTC()
		if f.Precision > 0 {
			*x = x.Truncate(f.Precision)
		}
		if rare() {
			*x = time.Time{}
		}
		return
	case *time.Duration:
		*x = time.Duration(rapid.Int64Range(1, int64(maxSpan)).Draw(t, path))
		if f.Wide {
			*x = time.Duration(rapid.Int64().Draw(t, path+" wide"))
		}
		if !f.Full {
			*x = oneOf(t, path+" form", 0, *x, *x, *x, 1, maxSpan)
		}
		return
	case *ojs.Args:
		args, err := ojs.NewArgs(f.raw(t, path))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if *x = args; rare() {
			*x = ojs.Args{}
		}
		return
	case *json.RawMessage:
		if *x = f.raw(t, path); rare() {
			*x = nil
		}
		return
	case *map[string]any:
		*x = f.object(t, path)
		return
	case *map[string]json.RawMessage:
		if *x = nil; !rare() {
			*x = map[string]json.RawMessage{
				"x-" + name(t, path): f.raw(t, path+" x"),
				"\"é":                f.raw(t, path+" é"),
			}
		}
		return
	case *ojs.State:
		*x = oneOf(t, path, ojs.AllStates()...)
		return
	case *ojs.QueueState:
		*x = oneOf(t, path, ojs.QueueActive, ojs.QueuePaused, ojs.QueueDraining)
		return
	case *ojs.Jitter:
		*x = oneOf(t, path, ojs.JitterOn, ojs.JitterOff, ojs.JitterFull)
		return
	case *ojs.Backoff:
		*x = oneOf(t, path, ojs.BackoffNone, ojs.BackoffLinear, ojs.BackoffExponential,
			ojs.BackoffPolynomial, "acme:unknown-2_x.y")
		return
	case *ojs.Exhaustion:
		*x = oneOf(t, path, ojs.ExhaustionDiscard, ojs.ExhaustionDeadLetter)
		return
	case *ojs.Conflict:
		*x = oneOf(t, path, ojs.ConflictReject, ojs.ConflictIgnore, ojs.ConflictReplace,
			ojs.ConflictReplaceExceptSchedule, ojs.ConflictDebounce)
		return
	case *ojs.Condition:
		*x = oneOf(t, path, ojs.AllSucceeded, ojs.AnyFailed, ojs.AllEnded)
		return
	case *ojs.UniqueKeys:
		*x = ojs.UniqueKeys(rapid.Uint8Range(0, 31).Draw(t, path))
		return
	case *ojs.Rate:
		x.Limit = int(rapid.Int32Range(1, math.MaxInt32).Draw(t, path+".Limit"))
		x.Per = time.Duration(rapid.Int64Range(1, int64(maxSpan)).Draw(t, path+".Per"))
		if rare() {
			*x = ojs.Rate{}
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.SetString(f.text(t, path)); rare() {
			v.SetString("")
		}
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, path))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(rapid.Int32().Draw(t, path)))
		if !f.Full {
			v.SetInt(oneOf(t, path+" form", v.Int(), v.Int(), v.Int(), 0, math.MaxInt32, math.MinInt32))
		}
	case reflect.Uint64:
		v.SetUint(uint64(rapid.Int64Range(0, math.MaxInt64).Draw(t, path)))
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(-1e9, 1e9).Draw(t, path))
		if rare() {
			v.SetFloat(0)
		}
	case reflect.Pointer:
		if v.SetZero(); !rare() {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(t, path, v.Elem())
		}
	case reflect.Slice:
		v.SetZero()
		if rare() {
			return
		}
		most := 3
		if v.Type() == reflect.TypeFor[[]ojs.Note]() {
			most = 1 // a note is large, and each has the same fields
		}
		n := rapid.IntRange(1, most).Draw(t, path+" length")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.fill(t, fmt.Sprint(path, i), v.Index(i))
		}
	case reflect.Struct:
		list := exported(v.Type())
		if len(list) == 0 {
			t.Fatalf("%s: no values for a %v", path, v.Type())
		}
		for _, i := range list {
			f.fill(t, join(path, v.Type().Field(i)), v.Field(i))
		}
		if p, ok := v.Addr().Interface().(*ojs.UniquePolicy); ok && rapid.Bool().Draw(t, path+" is given") {
			p.Keys |= bridge.GivenFingerprint
			p.Key = fmt.Sprintf("%064x", rapid.Uint64().Draw(t, path+" fingerprint"))
		}
	default:
		t.Fatalf("%s: no values for a %v", path, v.Type())
	}
}
