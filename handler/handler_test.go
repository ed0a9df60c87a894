package handler_test

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
)

type point struct{ X, Y int }

var draw = ojs.Define[point]("point.draw", ojs.WithQueue("q"))

func TestFor(t *testing.T) {
	var got *ojs.Job[point]
	h := handler.For(draw, func(_ context.Context, job *ojs.Job[point]) error {
		got = job
		return io.EOF
	})
	if h.Type() != "point.draw" || h.ArgsType() != reflect.TypeFor[point]() || len(h.Defaults()) != 1 {
		t.Errorf("%s, %v, %d defaults", h.Type(), h.ArgsType(), len(h.Defaults()))
	}
	args, err := ojs.NewArgs(point{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	header := &ojs.JobHeader{ID: "7", Attempt: 3}
	if err := h.Run(t.Context(), header, args); err != io.EOF || got.ID != "7" || got.Attempt != 3 ||
		got.Args != (point{1, 2}) {
		t.Errorf("%+v, %v", got, err)
	}
	got.Attempt = 9
	if header.Attempt != 3 {
		t.Error("the handler's job is not a copy")
	}
}

func TestArgsThatDoNotDecode(t *testing.T) {
	h := handler.For(draw, func(context.Context, *ojs.Job[point]) error { t.Error("called"); return nil })
	args, err := ojs.NewArgs("no point")
	if err != nil {
		t.Fatal(err)
	}
	err = h.Run(t.Context(), &ojs.JobHeader{}, args)
	var bad *handler.UndecodableError
	if !errors.As(err, &bad) || !errors.Is(err, ojs.ErrInvalid) || !strings.HasPrefix(err.Error(), "ojs: ") {
		t.Errorf("error %v", err)
	}
}

func TestReturning(t *testing.T) {
	f := handler.Returning(func(context.Context, *ojs.Job[point]) (int, error) { return 0, io.EOF })
	if err := f(t.Context(), new(ojs.Job[point])); err != io.EOF {
		t.Errorf("error %v", err)
	}
	// Without an attempt there is nowhere to put the result.
	f = handler.Returning(func(context.Context, *ojs.Job[point]) (int, error) { return 7, nil })
	if err := f(t.Context(), new(ojs.Job[point])); !errors.Is(err, handler.ErrNoAttempt) {
		t.Errorf("error %v", err)
	}
	for name, nothing := range map[string]handler.Func[point]{"nil": nil,
		"Returning(nil)": handler.Returning[point, int](nil)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("For takes %s", name)
				}
			}()
			handler.For(draw, nothing)
		}()
	}
}
