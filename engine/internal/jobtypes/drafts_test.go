package jobtypes

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
)

// someOptions draws options that touch each other: the same fields, fields that merge,
// and the queue, whose defaults come in between.
func someOptions(t *rapid.T, name string, queues bool) (opts []ojs.Option) {
	all := []func() ojs.Option{
		func() ojs.Option { return ojs.WithPriority(rapid.IntRange(-2, 2).Draw(t, "priority")) },
		func() ojs.Option { return ojs.WithMaxAttempts(rapid.IntRange(1, 5).Draw(t, "attempts")) },
		func() ojs.Option {
			return ojs.WithRetry(
				ojs.RetryPolicy{InitialInterval: time.Duration(rapid.IntRange(1, 400).Draw(t,
					"interval")) * time.Second})
		},
		func() ojs.Option { return ojs.WithRetry(ojs.RetryPolicy{NonRetryableErrors: []string{"a"}}) },
		func() ojs.Option { return ojs.WithMeta(rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key"), name) },
		func() ojs.Option { return ojs.WithTags(name) },
		func() ojs.Option {
			return ojs.WithTimeout(time.Duration(rapid.IntRange(1, 50).Draw(t, "timeout")) * time.Minute)
		},
		func() ojs.Option {
			return ojs.WithTotalTimeout(time.Duration(rapid.IntRange(1, 50).Draw(t, "total")) * time.Minute)
		},
		func() ojs.Option { return ojs.WithUnique(ojs.UniquePolicy{Key: name}) },
	}
	if name == "call's" {
		all = append(all, func() ojs.Option { return nil })
	}
	if queues {
		all = append(all, func() ojs.Option {
			return ojs.WithQueue(rapid.SampledFrom([]string{"a", "b", "c", "d", "default"}).Draw(t, "queue"))
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "options") {
		opts = append(opts, rapid.SampledFrom(all).Draw(t, "option")())
	}
	return opts
}

// However options are spread over engine, queues, type and calls, a plan that builds on
// that of the type is the one that is resolved from the start.
func TestPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := new(Types)
		var queues QueueSet
		for _, name := range []string{"a", "b", "c"} { // c and d have none
			q := Queue{Defaults: []ojs.Option{}}
			if name != "c" {
				q.Defaults = someOptions(t, "of "+name, false)
			}
			o := ojs.DefaultOptions()
			o.Queue = name
			if o.Apply(q.Defaults...); o.Validate() != nil {
				return // the engine refuses them
			}
			queues = queues.With(name, q)
		}
		c.Queues.Store(&queues)
		c.Defaults = someOptions(t, "engine's", true)
		if o := ojs.DefaultOptions(); true {
			if o.Apply(c.Defaults...); o.Validate() != nil {
				return
			}
		}
		ofType := someOptions(t, "type's", true)
		o := ojs.DefaultOptions()
		if o.Apply(ofType...); o.Validate() != nil {
			return // Define panics
		}
		jt := &JobType{Handler: handler.For(ojs.Define[any]("t", ofType...),
			func(context.Context, *ojs.Job[any]) error { return nil }), Handled: true}
		for range 3 {
			d := ojs.NewDraft("t", nil, someOptions(t, "call's", true)...)
			got, gotErr := c.planFor(jt, d.Defaults(), d.Options(), new(Plan))
			var want Plan
			wantErr := want.finish(c.Resolve(c.Queues.Load(), ofType, d.Options()))
			if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				t.Fatalf("error %v, want %v", gotErr, wantErr)
			}
			if gotErr == nil && (!reflect.DeepEqual(got.Options, want.Options) ||
				!reflect.DeepEqual(got.retry, want.retry)) {
				t.Fatalf("\n got %+v\nwant %+v", got.Options, want.Options)
			}
		}
	})
}
