package handler_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
)

// mark makes a middleware that notes its coming and going.
func mark(log *[]string, name string) handler.Middleware {
	return func(ctx context.Context, _ *ojs.JobHeader, next handler.Next) error {
		*log = append(*log, name)
		defer func() { *log = append(*log, "/"+name) }()
		return next(ctx)
	}
}

func run(h handler.Handler) error { return h.Run(context.Background(), new(ojs.JobHeader), ojs.Args{}) }

func TestWrap(t *testing.T) {
	var log []string
	typ := ojs.Define[any]("x")
	f := func(context.Context, *ojs.Job[any]) error { log = append(log, "handler"); return nil }
	t.Run("P0.9 the first is outermost", func(t *testing.T) {
		log = nil
		h := handler.For(typ, f, handler.WithMiddleware(mark(&log, "a"), mark(&log, "b")),
			handler.WithMiddleware(mark(&log, "c"), mark(&log, "d")))
		if err := run(h); err != nil || strings.Join(log, " ") != "a b c d handler /d /c /b /a" {
			t.Errorf("%v, %v", log, err)
		}
	})
	t.Run("P0.9 next runs once", func(t *testing.T) {
		log = nil
		twice := func(ctx context.Context, _ *ojs.JobHeader, next handler.Next) error {
			return errors.Join(next(ctx), next(ctx))
		}
		err := run(handler.For(typ, f, handler.WithMiddleware(twice)))
		if !errors.Is(err, handler.ErrNextTwice) || len(log) != 1 {
			t.Errorf("%v, %v", log, err)
		}
	})
	t.Run("P0.9 without next the handler does not run", func(t *testing.T) {
		log = nil
		stop := func(context.Context, *ojs.JobHeader, handler.Next) error { return errors.ErrUnsupported }
		err := run(handler.For(typ, f, handler.WithMiddleware(stop)))
		if !errors.Is(err, errors.ErrUnsupported) || log != nil {
			t.Errorf("%v, %v", log, err)
		}
	})
	t.Run("a middleware changes the context, the job and the error", func(t *testing.T) {
		type key struct{}
		h := handler.For(typ, func(ctx context.Context, job *ojs.Job[any]) error {
			if ctx.Value(key{}) != 1 || job.Meta["seen"] != true {
				t.Errorf("%v %v", ctx.Value(key{}), job.Meta)
			}
			return errors.New("inner")
		}, handler.WithMiddleware(func(ctx context.Context, job *ojs.JobHeader, next handler.Next) error {
			job.Meta = map[string]any{"seen": true}
			if err := next(context.WithValue(ctx, key{}, 1)); err == nil || err.Error() != "inner" {
				t.Error(err)
			}
			return errors.New("outer")
		}))
		if err := run(h); err == nil || err.Error() != "outer" {
			t.Error(err)
		}
	})
	t.Run("P0.9 no middlewares", func(t *testing.T) {
		log = nil
		if err := run(handler.For(typ, f, handler.WithMiddleware())); err != nil || len(log) != 1 {
			t.Errorf("%v, %v", log, err)
		}
	})
	t.Run("settings that make no sense panic", func(t *testing.T) {
		for name, f := range map[string]func(){
			"concurrency":    func() { handler.WithSlots(0) },
			"nil middleware": func() { handler.WithMiddleware(nil) },
		} {
			if !panics(f) {
				t.Errorf("%s did not", name)
			}
		}
		if h := handler.For(typ, f, handler.WithSlots(3)); h.Concurrency() != 3 {
			t.Errorf("%d", h.Concurrency())
		}
	})
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestChain(t *testing.T) {
	m := func(ctx context.Context, _ *ojs.JobHeader, next handler.Next) error { return next(ctx) }
	names := func(c handler.Chain) string {
		var s []string
		for _, l := range c {
			s = append(s, l.Name)
		}
		return strings.Join(s, " ")
	}
	std := handler.Chain{}.Add("recover", handler.Recover)
	c := std.Add("end", m).Prepend("front", m).Before("recover", "before", m).After("recover", "after", m)
	if got := names(c); got != "front before recover after end" || names(std) != "recover" {
		t.Errorf("P0.9: %s, %s", got, names(std))
	}
	if got := names(c.Remove("recover").Remove("front")); got != "before after end" || len(c) != 5 {
		t.Errorf("P0.9: %s", got)
	}
	if n := len(c.Middlewares()); n != 5 || handler.Chain(nil).Middlewares() == nil {
		t.Errorf("P0.9: %d middlewares", n)
	}
	for name, f := range map[string]func(){
		"invalid": func() { handler.Chain{{Name: "x"}}.Middlewares() },
		"twice":   func() { c.Add("end", m) }, "unknown": func() { c.Before("nobody", "x", m) },
		"removing what is not there": func() { c.Remove("x") },
		"nil":                        func() { c.Add("x", nil) }, "no name": func() { c.Prepend("", m) },
	} {
		if !panics(f) {
			t.Errorf("%s did not panic", name)
		}
	}
	if err := slices.Concat(c, c).Validate(); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestRecover(t *testing.T) {
	typ := ojs.Define[any]("x")
	cause := errors.New("cause")
	for _, value := range []any{"text", cause, nil} {
		h := handler.For(typ,
			func(context.Context, *ojs.Job[any]) error {
				panic(value)
			}, handler.WithMiddleware(handler.Recover))
		err := run(h)
		var p *handler.PanicError
		if !errors.As(err, &p) || len(p.Backtrace) == 0 || !strings.Contains(p.Backtrace[0], "TestRecover") ||
			len(p.Backtrace) > 50 {
			t.Errorf("panic(%v): %v %q", value, err, p.Backtrace)
		}
		if value == any(cause) && !errors.Is(err, cause) {
			t.Errorf("%v does not wrap its value", err)
		}
	}
	if err := run(handler.For(typ, func(context.Context, *ojs.Job[any]) error {
		return cause
	}, handler.WithMiddleware(handler.Recover))); err != cause {
		t.Errorf("%v", err)
	}
	if err := run(handler.For(typ, func(context.Context, *ojs.Job[any]) error {
		return cause
	}, handler.WithMiddleware(handler.Timeout(1)))); err != cause {
		t.Errorf("a timeout outside of an attempt: %v", err)
	}
}
