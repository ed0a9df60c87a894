package engine

import (
	"context"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage"
)

// typeOf is a job type whose handler takes a T.
func typeOf[T any](name string) *jobType {
	f := func(context.Context, *ojs.Job[T]) error { return nil }
	return &jobType{handled: true, handler: handler.For(ojs.Define[T](name), f)}
}

// Small jobs have neighbours, of the first types that come by. What others keep would be too much.
func TestFramesShared(t *testing.T) {
	job := func(args any, change func(*storage.Record)) *storage.Record {
		rec := new(storage.Record)
		var err error
		if rec.Args, err = ojs.NewArgs(args); err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(rec)
		}
		return rec
	}
	var f frames
	used := func() (n int) {
		for _, x := range f {
			if x.block != nil {
				n += x.used
			}
		}
		return n
	}
	first := typeOf[string]("first")
	for _, c := range []struct {
		name   string
		of     *jobType
		rec    *storage.Record
		shared bool
	}{
		{"small", first, job("x", nil), true},
		{"large args", first, job(strings.Repeat("x", maxNeighbour), nil), false},
		{"meta", first, job("x", func(r *storage.Record) { r.Meta = map[string]any{} }), false},
		{"errors", first, job("x", func(r *storage.Record) { r.Errors = []ojs.Failure{{}} }), false},
		{"type of large args", typeOf[[2000]byte]("large"), job("x", nil), false},
		{"again", first, job("x", nil), true},
		{"third type", typeOf[int]("third"), job(1, nil), true},
		{"fourth type", typeOf[int]("fourth"), job(1, nil), true},
		{"fifth type", typeOf[int]("fifth"), job(1, nil), false},
	} {
		before := used()
		if frame := f.next(c.of, c.rec); frame == nil || used() != before+map[bool]int{true: 1}[c.shared] {
			t.Errorf("%s: a frame of a block %t, want %t", c.name, used() != before, c.shared)
		}
	}
}
