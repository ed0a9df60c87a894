package engine_test

import (
	"context"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// reasonsShown has the reasons that a test has wanted and got.
var reasonsShown sync.Map

// explained wants the reasons of a job.
func (b *rig) explained(id string, want ...inspect.ObstacleCode) inspect.Explanation {
	b.t.Helper()
	e, err := b.Jobs().Explain(b.ctx, id)
	must(b.t, err)
	var got []inspect.ObstacleCode
	for _, r := range e.Obstacles {
		reasonsShown.Store(string(r.Code), true)
		if got = append(got, r.Code); r.Text == "" {
			b.t.Errorf("%s has no text", r.Code)
		}
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("%v, want %v", got, want)
	}
	return e
}

func long(ctx context.Context, _ *ojs.Job[any]) error { return handler.Sleep(ctx, time.Minute) }

// Every reason holds of a job that does not run, and the job runs once it has gone. Each
// constant of type ObstacleCode has a case.
func TestExplain(t *testing.T) {
	cases := map[string]func(b *rig){
		"running, then ended": func(b *rig) {
			b.run()
			ticket := b.enqueue("slow")
			b.advance(time.Millisecond)
			if e := b.explained(ticket.ID, inspect.ObstacleRunning); !e.Obstacles[0].Until.After(time.Now()) {
				b.t.Errorf("%+v", e)
			}
			b.advance(time.Hour)
			b.explained(ticket.ID, inspect.ObstacleEnded)
		},
		"no engine runs": func(b *rig) {
			ticket := b.enqueue("x")
			b.explained(ticket.ID, inspect.ObstacleNotRunning)
			b.run()
			b.advance(time.Second)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		},
		"V007 the version of its type": func(b *rig) {
			b.Register(handler.For(ojs.Define[any]("v"), long,
				handler.WithVersions(">=2.0 <3.0"), handler.WithSlots(1)))
			b.run()
			old := b.enqueue("v", ojs.WithVersion("1.0"))
			b.explained(old.ID, inspect.ObstacleNoHandler)
			b.enqueue("v", ojs.WithVersion("2.1"))
			b.advance(0)
			second := b.enqueue("v", ojs.WithVersion("2.2"))
			b.explained(second.ID, inspect.ObstacleLimit, inspect.ObstacleBehind)
			b.advance(time.Hour)
			b.want(second.ID, ojs.StateCompleted, 1)
			b.want(old.ID, ojs.StateAvailable, 0)
		},
		"not due": func(b *rig) {
			b.run()
			at := time.Now().Add(time.Minute)
			ticket := b.enqueue("x", ojs.WithScheduledAt(at))
			if e := b.explained(ticket.ID, inspect.ObstacleNotDue); !e.Obstacles[0].Until.Equal(at) {
				b.t.Errorf("%+v", e)
			}
			b.advance(time.Minute)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		},
		"a retry is not due": func(b *rig) {
			b.run()
			ticket := b.enqueue("fails")
			b.advance(time.Millisecond)
			e := b.explained(ticket.ID, inspect.ObstacleNotDue)
			if job := b.job(ticket.ID); !e.Obstacles[0].Until.Equal(job.NextRetryAt) {
				b.t.Errorf("%+v, the retry is at %v", e, job.NextRetryAt)
			}
		},
		"pending": func(b *rig) {
			b.run()
			ticket := b.enqueue("x", ojs.WithPending())
			b.explained(ticket.ID, inspect.ObstaclePending)
			must(b.t, b.Jobs().Activate(b.ctx, ticket.ID))
			b.advance(time.Second)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		},
		"dependencies": func(b *rig) {
			first := b.enqueue("x", ojs.WithPending())
			b.run()
			ticket := b.enqueue("x", ojs.WithDependsOn(first.ID))
			if e := b.explained(ticket.ID, inspect.ObstacleDependencies); e.Obstacles[0].N != 1 {
				b.t.Errorf("%+v", e)
			}
			must(b.t, b.Jobs().Activate(b.ctx, first.ID))
			b.advance(time.Second)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		},
		"expired": func(b *rig) {
			ticket := b.enqueue("x", ojs.WithExpiresAt(time.Now().Add(time.Second)))
			pace.Virtual(time.Minute)
			b.explained(ticket.ID, inspect.ObstacleExpired)
		},
		"paused": func(b *rig) {
			b.run()
			must1(b.Queues().Pause(b.ctx, "default"))
			ticket := b.enqueue("x")
			b.advance(time.Second)
			b.explained(ticket.ID, inspect.ObstaclePaused)
			must1(b.Queues().Resume(b.ctx, "default"))
			b.advance(time.Second)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		},
		"no handler": func(b *rig) {
			b.run()
			ticket := b.enqueue("unknown")
			b.advance(time.Second)
			b.explained(ticket.ID, inspect.ObstacleNoHandler)
			b.handle("unknown", func(context.Context, *ojs.Job[any]) error { return nil })
			b.advance(time.Second)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		},
		"the limit of a type": func(b *rig) {
			b.run()
			b.enqueue("single")
			ticket := b.enqueue("single")
			b.advance(time.Millisecond)
			b.explained(ticket.ID, inspect.ObstacleLimit)
			b.advance(time.Hour)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		},
		"the limit of a key": func(b *rig) {
			b.run()
			key := ojs.WithRateLimit(ojs.RateLimit{Key: "k", Rate: ojs.Rate{Limit: 1, Per: time.Minute}})
			at := time.Now().Add(time.Minute)
			b.enqueue("x", key)
			b.advance(time.Millisecond)
			ticket := b.enqueue("x", key)
			b.advance(time.Millisecond)
			if e := b.explained(ticket.ID, inspect.ObstacleLimit); !e.Obstacles[0].Until.Equal(at) {
				b.t.Errorf("%+v, want %v", e, at)
			}
			b.advance(time.Hour)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		},
		"the settings of a queue and of a type, not those of names beside them": func(b *rig) {
			b.run()
			none := ojs.RateLimit{Concurrency: ojs.NoneAtOnce}
			set := func(name operate.LimitName) {
				b.t.Helper()
				if err := b.Limits().Set(b.ctx, name, none, time.Time{}); err != nil {
					b.t.Fatal(err)
				}
			}
			for _, name := range []string{"l", "mai", "mail-1", "mail.a", "maim"} {
				set(operate.LimitOfQueue(name))
			}
			if _, err := b.Queues().Pause(b.ctx, "mail"); err != nil {
				b.t.Fatal(err)
			}
			ticket := b.enqueue("x", ojs.WithQueue("mail"))
			b.explained(ticket.ID, inspect.ObstaclePaused)
			set(operate.LimitOfQueue("mail"))
			b.explained(ticket.ID, inspect.ObstaclePaused, inspect.ObstacleLimit)
			set(operate.LimitOfType("x"))
			b.explained(ticket.ID, inspect.ObstaclePaused, inspect.ObstacleLimit, inspect.ObstacleLimit)
		},
		"no slot, behind others": func(b *rig) {
			b.run()
			b.enqueue("slow")
			b.enqueue("slow")
			b.advance(time.Millisecond)
			b.enqueue("x", ojs.WithPriority(3))
			b.enqueue("x")
			b.enqueue("x", ojs.WithPriority(-1))
			ticket := b.enqueue("x")
			e := b.explained(ticket.ID, inspect.ObstacleNoSlot, inspect.ObstacleBehind)
			if e.Obstacles[1].N != 2 {
				b.t.Errorf("%+v", e)
			}
			b.advance(time.Hour)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		},
		"behind more than are counted": func(b *rig) {
			for range 1010 {
				b.enqueue("x")
			}
			ticket := b.enqueue("x")
			e := b.explained(ticket.ID, inspect.ObstacleNotRunning, inspect.ObstacleBehind)
			if e.Obstacles[1].N != 1000 {
				b.t.Errorf("%+v", e)
			}
		},
		"its ordering key": func(b *rig) {
			b.run()
			first := b.enqueue("slow", ojs.WithOrderingKey("k"))
			ticket := b.enqueue("x", ojs.WithOrderingKey("k"))
			b.advance(time.Millisecond)
			b.explained(first.ID, inspect.ObstacleRunning)
			b.explained(ticket.ID, inspect.ObstacleOrdering)
			b.advance(time.Hour)
			b.want(ticket.ID, ojs.StateCompleted, 1)
		},
		"an unknown job": func(b *rig) {
			if _, err := b.Jobs().Explain(b.ctx, "nobody"); !errors.Is(err, ojs.ErrNotFound) {
				b.t.Error(err)
			}
		},
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *rig) {
				b.t = t
				done := func(context.Context, *ojs.Job[any]) error { return nil }
				b.handle("x", done)
				b.handle("slow", long)
				b.handle("fails", func(context.Context, *ojs.Job[any]) error { return errors.New("no") })
				b.Handle("single", long, handler.WithSlots(1))
				f(b)
			}, engine.WithConcurrency(2))
		})
	}
	t.Run("other queues, and the limit of a queue", func(t *testing.T) {
		inBubble(t, func(b *rig) {
			b.handle("x", long)
			b.run()
			elsewhere := b.enqueue("x", ojs.WithQueue("elsewhere"))
			b.enqueue("x", ojs.WithQueue("here"))
			second := b.enqueue("x", ojs.WithQueue("here"))
			b.advance(time.Millisecond)
			b.explained(elsewhere.ID, inspect.ObstacleOtherQueues)
			b.explained(second.ID, inspect.ObstacleLimit)
			b.advance(time.Hour)
			b.want(second.ID, ojs.StateCompleted, 1)
			b.want(elsewhere.ID, ojs.StateAvailable, 0)
		}, engine.WithQueueConfig("here", engine.QueueConfig{Concurrency: 1}))
	})
	t.Run("a silent process holds it", func(t *testing.T) {
		inBubbleOn(t, hooked(nil), func(b *rig) {
			b.handle("x", long)
			b.run()
			ticket := b.enqueue("x")
			b.advance(10 * time.Second)
			b.explained(ticket.ID, inspect.ObstacleRunning)
			b.store.(*storagetest.Faulty).OnCall(breaks("PutDocuments value", false, nil))
			b.advance(20 * time.Second)
			e := b.explained(ticket.ID, inspect.ObstacleSilent)
			const want = "the process that held it has been silent for 20 s"
			if text := e.Obstacles[0].Text; !strings.Contains(text, want) {
				t.Error(text)
			}
			b.store.(*storagetest.Faulty).OnCall(nil)
			b.advance(10 * time.Second)
			b.explained(ticket.ID, inspect.ObstacleRunning)
		}, engine.WithReports(engine.Reports{}))
	})
	if f := flag.Lookup("test.run"); strings.Contains(f.Value.String(), "/") {
		return // not all cases have run
	}
	for _, code := range obstacleCodes(t) {
		if _, shown := reasonsShown.Load(code); !shown {
			t.Errorf("no case explains a job with the obstacle %s", code)
		}
	}
}

// obstacleCodes returns the values of the constants of type ObstacleCode.
func obstacleCodes(t *testing.T) (codes []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../inspect/explain.go", nil, 0)
	must(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if is, ok := v.Type.(*ast.Ident); ok && is.Name == "ObstacleCode" {
			for _, value := range v.Values {
				code, err := strconv.Unquote(value.(*ast.BasicLit).Value)
				must(t, err)
				codes = append(codes, code)
			}
		}
		return true
	})
	if len(codes) == 0 {
		t.Fatal("explain.go has no constants of type ObstacleCode")
	}
	return codes
}
