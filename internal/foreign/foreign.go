// Package foreign calls functions and prints values that a program has handed in: hooks,
// observers, methods of errors.
//
// Such code may panic, with any value, and may call runtime.Goexit. Both end the
// goroutine that runs it. Neither may end a goroutine of the engine, or leave a lock
// held.
package foreign

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxText bounds what Text returns, in bytes.
const MaxText = 10_000

// maxType bounds the name of a type in a text, in bytes.
const maxType = 200

// Stop says why a call did not return. It is an error.
type Stop struct {
	Value  any  // of the panic
	Exited bool // the function called runtime.Goexit
}

// Error is How, and the text of the value.
func (s *Stop) Error() string {
	if s.Exited {
		return s.How()
	}
	return s.How() + ": " + Text(s.Value)
}

// How is "panicked" or "called runtime.Goexit".
func (s *Stop) How() string {
	if s.Exited {
		return "called runtime.Goexit"
	}
	return "panicked"
}

// Attr is the value for a log line, and nothing if there is none.
func (s *Stop) Attr() slog.Attr {
	if s.Exited {
		return slog.Attr{}
	}
	return slog.String("panic", Text(s.Value))
}

// Call runs f on a goroutine of its own and waits for it. It returns nil if f returned.
// The goroutine costs about half a microsecond.
func Call(f func()) *Stop { return NewCaller(f).Call() }

// Caller calls one function again and again, and needs no memory for each call. It is not
// safe for concurrent use.
type Caller struct {
	f, run func()
	done   chan *Stop
}

// NewCaller makes a Caller of f.
func NewCaller(f func()) *Caller {
	c := &Caller{f: f, done: make(chan *Stop)}
	c.run = c.call // once, or each go statement would allocate it
	return c
}

// Call is the function Call for f.
func (c *Caller) Call() *Stop {
	go c.run()
	return <-c.done
}

func (c *Caller) call() {
	returned := false
	defer func() {
		var stop *Stop
		if !returned {
			p := recover()
			stop = &Stop{Value: p, Exited: p == nil}
		}
		c.done <- stop
	}()
	c.f()
	returned = true
}

// Text is a value in an error, a log line or a test's message: strings, errors and
// numbers as they are, at most MaxText bytes of them, and the type of anything else. It
// does not walk values: maps may be cyclic, and slices large.
func Text(v any) string {
	if err, ok := v.(error); ok {
		return ErrorText(err)
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Invalid:
		return "nil"
	case reflect.String:
		return Clip(r.String(), MaxText)
	case reflect.Bool:
		return strconv.FormatBool(r.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(r.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return strconv.FormatUint(r.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(r.Float(), 'g', -1, r.Type().Bits())
	case reflect.Complex64, reflect.Complex128:
		return strconv.FormatComplex(r.Complex(), 'g', -1, r.Type().Bits())
	}
	return "a value of type " + typeName(v)
}

// ErrorText is what the Error method of an error returns, at most MaxText bytes of it. If
// the method panics or calls runtime.Goexit the text says that.
func ErrorText(err error) (text string) {
	if err == nil {
		return "nil"
	}
	if returns(err) {
		return Clip(err.Error(), MaxText)
	}
	if stop := Call(func() { text = Clip(err.Error(), MaxText) }); stop != nil {
		return fmt.Sprintf("the Error method of %s %s", typeName(err), stop.How())
	}
	return text
}

// returns reports whether the Error method of an error is known to return: it gives a
// text that was made before.
func returns(err error) bool {
	switch reflect.TypeOf(err) {
	case plainError, wrappedError, manyErrors:
		return true
	}
	return false
}

// The types of errors.New and fmt.Errorf.
var (
	plainError   = reflect.TypeOf(errors.New(""))
	wrappedError = reflect.TypeOf(fmt.Errorf("%w", errors.New("")))
	manyErrors   = reflect.TypeOf(fmt.Errorf("%w %w", errors.New(""), errors.New("")))
)

// BriefObserver marks the observer of an engine that embeds it: it keeps nothing of an
// event, reads no event's ID, and does not call runtime.Goexit. So the engine shows it
// events on its own goroutine and without a copy.
type BriefObserver struct{}

// IsBrief reports whether an observer itself embeds BriefObserver. An observer that
// embeds a brief one is not brief: it may do more with an event.
func IsBrief(observer any) bool {
	t := reflect.TypeOf(observer)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Type == reflect.TypeFor[BriefObserver]() {
			return true
		}
	}
	return false
}

func typeName(v any) string { return Clip(reflect.TypeOf(v).String(), maxType) }

// Clip is a text as valid UTF-8 of at most a number of bytes. It keeps nothing of a
// longer text alive.
func Clip(text string, most int) string {
	if len(text) > most {
		end := most
		for end > 0 && most-end < utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		if !utf8.RuneStart(text[end]) {
			end = most // no rune is cut: these bytes are none
		}
		text = strings.Clone(text[:end])
	}
	if utf8.ValidString(text) {
		return text
	}
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) > most {
		return Clip(text, most) // a replacement is longer than what it replaces
	}
	return text
}
