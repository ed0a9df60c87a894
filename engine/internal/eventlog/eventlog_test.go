package eventlog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/test/eventtypes"
	"github.com/ojsengine/ojs/internal/test/racedetector"
)

// seen is an observer that keeps what it sees.
type seen []event.Event

func (s *seen) Observe(ev *event.Event) { *s = append(*s, *ev) }

// subjects are "job/version" of the events seen.
func (s *seen) subjects() (list []string) {
	for _, ev := range *s {
		list = append(list, ev.Subject)
	}
	return list
}

func newLog(t testing.TB) (*Log, *seen) {
	s := new(seen)
	return New([]Observer{s}, slog.New(slog.NewTextHandler(t.Output(), nil)), nil), s
}

// at is the entry of a job's version.
func at(job string, version uint64, after Effect) Entry {
	typ := event.Event{Subject: fmt.Sprint(job, "/", version)}
	return Entry{Job: job, Version: version, After: after, Events: []event.Event{typ}}
}

func (s *seen) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := s.subjects(); !slices.Equal(got, want) {
		t.Errorf("published %v, not %v", got, want)
	}
}

// modelOp is a storage call: it takes effect once between its begin and its end.
type modelOp struct {
	*Op
	what    string
	job     int
	entries []Entry
	done    bool
}

// However calls overlap and whenever they return, the events of each job come out
// complete and in order.
func TestOrder(t *testing.T) {
	calls := rapid.SampledFrom([]string{"insert", "claim", "due", "settle", "operator"})
	states := rapid.SampledFrom([]string{"waiting", "ended"})
	rapid.Check(t, func(t *rapid.T) {
		out := new(seen)
		l := New([]Observer{out}, slog.New(slog.DiscardHandler), nil)
		type job struct {
			state   string
			version uint64
			want    []string
		}
		jobs := make([]job, 4)
		var ops []*modelOp
		claims := 0
		move := func(o *modelOp, i int, to string, after Effect) {
			j := &jobs[i]
			j.state = to
			j.version += rapid.Uint64Range(1, 3).Draw(t, "step") // versions need not be consecutive
			o.entries = append(o.entries, at(fmt.Sprint(i), j.version, after))
			j.want = append(j.want, fmt.Sprint(i, "/", j.version))
		}
		before := map[string]Effect{"waiting": None, "active": Starts, "ended": Ends}
		effect := func(o *modelOp) {
			o.done = true
			j := &jobs[o.job]
			switch o.what {
			case "insert":
				if j.state == "" {
					move(o, o.job, "waiting", None)
					if rapid.Bool().Draw(t, "head") { // of its ordering key
						move(o, o.job, "waiting", Ends)
					}
				}
			case "claim":
				for i := range jobs {
					if jobs[i].state == "waiting" && rapid.Bool().Draw(t, "claimed") {
						move(o, i, "active", None)
					}
				}
			case "due": // or an insert that replaces
				for i := range jobs {
					if jobs[i].state == "waiting" && rapid.Bool().Draw(t, "expired") {
						move(o, i, "ended", None)
					}
				}
			case "settle": // also by a cancellation, or by a lease that ran out
				if j.state == "active" {
					move(o, o.job, states.Draw(t, "to"), Starts)
				}
			case "operator":
				switch j.state {
				case "waiting":
					move(o, o.job, states.Draw(t, "to"), before[j.state])
				case "active":
					move(o, o.job, "ended", before[j.state])
				case "ended":
					move(o, o.job, "waiting", before[j.state])
				}
			}
		}
		finish := func(i int) {
			o := ops[i]
			ops = slices.Delete(ops, i, i+1)
			if o.what == "claim" {
				claims--
			}
			endWith(o.Op, o.entries...)
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				o := &modelOp{what: calls.Draw(t, "what")}
				switch o.what {
				case "claim":
					if claims > 0 {
						return // the engine's claims go one at a time
					}
					claims++
					o.Op = l.Begin(Starts)
				case "due":
					o.Op = l.Begin(Ends)
				default:
					o.job = rapid.IntRange(0, len(jobs)-1).Draw(t, "job")
					o.Op = l.Begin(None, fmt.Sprint(o.job))
				}
				ops = append(ops, o)
			},
			"effect": func(t *rapid.T) {
				if len(ops) > 0 {
					if o := ops[rapid.IntRange(0, len(ops)-1).Draw(t, "op")]; !o.done {
						effect(o)
					}
				}
			},
			"end": func(t *rapid.T) {
				if len(ops) > 0 {
					finish(rapid.IntRange(0, len(ops)-1).Draw(t, "op"))
				}
			},
		})
		for len(ops) > 0 {
			finish(len(ops) - 1)
		}
		got := make(map[string][]string)
		for _, s := range out.subjects() {
			id, _, _ := strings.Cut(s, "/")
			got[id] = append(got[id], s)
		}
		for i := range jobs {
			if g := got[fmt.Sprint(i)]; !slices.Equal(g, jobs[i].want) {
				t.Fatalf("job %d: published %v, not %v", i, g, jobs[i].want)
			}
		}
		blocked := l.blocked[Starts].Len() + l.blocked[Ends].Len()
		wide := l.wide[Starts].Len() + l.wide[Ends].Len()
		if len(l.chains)+l.waiting.Len()+blocked+wide > 0 {
			t.Fatalf("left over: %d jobs, %d entries", len(l.chains), l.waiting.Len())
		}
	})
}

// endWith ends an operation that has brought about the entries.
func endWith(op *Op, entries ...Entry) {
	for _, e := range entries {
		op.Add(e.Job, e.Version, e.After, e.Events...)
	}
	op.End()
}

// An operation that brings two events of a job publishes both, in its order, before a
// later one, which has come meanwhile.
func TestTwoOfOneJob(t *testing.T) {
	l, out := newLog(t)
	insert, start := l.Begin(Ends, "job"), l.Begin(None, "job")
	insert.Add("job", 1, None, event.Event{Subject: "enqueued"})
	insert.Add("job", 1, Ends, event.Event{Subject: "replaced"})
	start.Add("job", 2, None, event.Event{Subject: "started"})
	start.End()
	out.expect(t)
	insert.End()
	out.expect(t, "enqueued", "replaced", "started")
}

// A call that hangs delays the events that depend on it, and no others.
func TestHungCall(t *testing.T) {
	for _, tt := range []struct {
		name    string
		hung    func(*Log) *Op
		waits   Entry
		others  []Entry
		handsIn Entry
	}{
		{"settle", func(l *Log) *Op { return l.Begin(None, "a") }, at("a", 5, None),
			[]Entry{at("b", 5, None), at("c", 2, Starts), at("d", 3, Ends)}, at("a", 4, None)},
		{"claim", func(l *Log) *Op { return l.Begin(Starts) }, at("a", 5, Starts),
			[]Entry{at("b", 5, None), at("d", 3, Ends)}, at("a", 4, None)},
		{"due", func(l *Log) *Op { return l.Begin(Ends) }, at("a", 5, Ends),
			[]Entry{at("b", 5, None), at("c", 2, Starts)}, at("a", 4, None)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, out := newLog(t)
			op := tt.hung(l)
			endWith(l.Begin(None, "a"), tt.waits)
			var want []string
			for _, e := range tt.others {
				endWith(l.Begin(None, e.Job), e)
				want = append(want, e.Events[0].Subject)
			}
			l.Emit(event.Event{Subject: "queue"})
			out.expect(t, append(want, "queue")...)
			endWith(op, tt.handsIn)
			out.expect(t, append(want, "queue", "a/4", "a/5")...)
		})
	}
}

// An entry with nothing to wait for stays behind an earlier one of its job that waits.
func TestBehindItsPredecessor(t *testing.T) {
	l, out := newLog(t)
	claim := l.Begin(Starts)
	endWith(l.Begin(None, "a"), at("a", 5, Starts))
	endWith(l.Begin(None, "a"), at("a", 6, None))
	endWith(l.Begin(None, "a"), at("a", 6, None))
	out.expect(t)
	endWith(claim, at("a", 4, None))
	out.expect(t, "a/4", "a/5", "a/6", "a/6")
}

// The work for a batch, and for calls beside one that hangs, grows with their number and
// no faster.
func TestLinearWork(t *testing.T) {
	work := map[string]func(l *Log, n int){
		"batch": func(l *Log, n int) {
			ids, entries := make([]string, n), make([]Entry, n)
			for i := range n {
				ids[i] = fmt.Sprint(i)
				entries[i] = at(ids[i], 1, None)
			}
			endWith(l.Begin(None, ids...), entries...)
		},
		"beside a claim that hangs": func(l *Log, n int) {
			hung := l.Begin(Starts)
			for i := range n {
				id := fmt.Sprint(i)
				endWith(l.Begin(None, id), at(id, 1, None))
				endWith(l.Begin(None, id), at(id, 2, Starts)) // which waits
			}
			hung.End()
		},
		"behind a settle that hangs": func(l *Log, n int) {
			hung := l.Begin(None, "a")
			for i := range n {
				endWith(l.Begin(None, "a"), at("a", uint64(i), None))
			}
			hung.End()
		},
	}
	for name, f := range work {
		t.Run(name, func(t *testing.T) {
			steps := func(n int) int {
				l, out := newLog(t)
				f(l, n)
				if len(*out) < n {
					t.Fatalf("%d of %d published", len(*out), n)
				}
				return l.steps
			}
			if few, many := steps(1000), steps(8000); many > 9*few {
				t.Errorf("1,000 take %d steps, 8,000 take %d", few, many)
			}
		})
	}
}

// The number of waiting entries is bounded: beyond it, calls that hang are given up, and
// their later events are counted as missed.
func TestBoundedMemory(t *testing.T) {
	for name, after := range map[string]Effect{"by name": None, "by effect": Starts} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			out := new(seen)
			l := New([]Observer{out}, slog.New(slog.NewTextHandler(&logged, nil)), nil)
			l.most = 10
			sub := l.Subscribe(Filter{Buffer: 100})
			var ids []string
			var want []string
			for i := range 25 {
				ids = append(ids, fmt.Sprint(i))
				want = append(want, fmt.Sprint(i, "/", 5))
			}
			var hung *Op
			if after == None {
				hung = l.Begin(None, ids...)
			} else {
				hung = l.Begin(after)
			}
			for i, id := range ids {
				endWith(l.Begin(None, id), at(id, 5, after))
				if l.waiting.Len() > l.most {
					t.Fatalf("after %d entries %d wait", i+1, l.waiting.Len())
				}
			}
			endWith(hung, at("0", 4, None), at("1", 4, None))
			endWith(l.Begin(None, "x"), at("x", 1, None))
			out.expect(t, append(want, "x/1")...)
			sub.Close()
			missed := 0
			for ev := range sub.C() {
				missed += ev.Missed
			}
			if missed != 2 {
				t.Errorf("a subscriber missed %d events, not the 2 of the call", missed)
			}
			if n := strings.Count(logged.String(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings:\n%s", n, &logged)
			}
			if len(l.chains) > 0 {
				t.Errorf("%d jobs are left over", len(l.chains))
			}
		})
	}
}

// stopping is an observer that does not return.
type stopping struct {
	seen
	how func()
}

func (s *stopping) Observe(ev *event.Event) {
	s.seen.Observe(ev)
	s.how()
}

// An observer that does not return sees each event once, and so do the others.
func TestObserverStops(t *testing.T) {
	for name, how := range map[string]func(){
		"panic":     func() { panic("out of metrics") },
		"nil panic": func() { panic(nil) },
		"Goexit":    runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			first, second := &stopping{how: how}, new(seen)
			l := New([]Observer{first, second}, slog.New(slog.NewTextHandler(&logged, nil)), nil)
			endWith(l.Begin(None, "a", "b"), at("a", 1, None), at("b", 1, None))
			l.Emit(event.Event{Subject: "c"})
			want := []string{"a/1", "b/1", "c"}
			first.expect(t, want...)
			second.expect(t, want...)
			if n := strings.Count(logged.String(), "level=ERROR msg=\"observer"); n != 3 {
				t.Errorf("%d log lines:\n%s", n, &logged)
			}
		})
	}
}

// A logger may use the log that it belongs to.
func TestLoggerReenters(t *testing.T) {
	var l *Log
	h := reentrant{slog.DiscardHandler, func() { l.Emit(event.Event{}); l.Subscribe(Filter{}).Close() }}
	n := 0
	l = New([]Observer{&stopping{how: func() {
		if n++; n == 1 {
			panic("once")
		}
	}}}, slog.New(h), nil)
	l.Emit(event.Event{})
	if n != 2 {
		t.Errorf("the observer saw %d events", n)
	}
}

func TestWants(t *testing.T) {
	l := New(nil, slog.New(slog.DiscardHandler), nil)
	if l.Wants("", "", "") || l.Begin(None, "a") != nil {
		t.Error("nobody listens, and events are wanted")
	}
	sub := l.Subscribe(Filter{
		Types: []event.Type{"job.c*", event.Started}, JobIDs: []string{"a"}, Queues: []string{"q"},
	})
	for _, tt := range []struct {
		typ        event.Type
		job, queue string
		want       bool
	}{
		{"", "", "", true},
		{event.Completed, "a", "q", true},
		{event.Started, "", "", true},
		{event.Failed, "a", "q", false},
		{event.Completed, "b", "q", false},
		{event.Completed, "a", "r", false},
		{"", "b", "", false},
	} {
		if got := l.Wants(tt.typ, tt.job, tt.queue); got != tt.want {
			t.Errorf("Wants(%q, %q, %q) is %v", tt.typ, tt.job, tt.queue, got)
		}
	}
	sub.Close()
	sub.Close()
	if l.Listening() {
		t.Error("a closed subscription listens")
	}
}

// Enqueue takes this for a batch of 16,000 jobs.
func BenchmarkBatch(b *testing.B) {
	for _, n := range []int{100, 16_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := New([]Observer{ignoring{}}, slog.New(slog.DiscardHandler), nil)
			ids, entries := make([]string, n), make([]Entry, n)
			for i := range n {
				ids[i] = fmt.Sprint(i)
				entries[i] = at(ids[i], 1, None)
			}
			for b.Loop() {
				endWith(l.Begin(None, ids...), entries...)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/job")
		})
	}
}

type ignoring struct{}

func (ignoring) Observe(*event.Event) {}

// reentrant is a handler that calls f for each line.
type reentrant struct {
	slog.Handler
	f func()
}

func (r reentrant) Enabled(context.Context, slog.Level) bool { return true }

func (r reentrant) Handle(context.Context, slog.Record) error {
	r.f()
	return nil
}

// The list of events about jobs is complete: each type is in one of the two.
func TestAboutJobs(t *testing.T) {
	l := New(nil, slog.New(slog.DiscardHandler), nil)
	for pattern, want := range map[event.Type]bool{
		"job.*": true, "dead_letter.*": true, "priority.*": true, "backpressure.*": true,
		"cron.*": false, "queue.*": false, "worker.*": false,
		event.DeadLetterPruned: false, event.Room: false, event.Dropped: true,
	} {
		sub := l.Subscribe(Filter{Types: []event.Type{pattern}})
		if got := l.Wants("", "", ""); got != want {
			t.Errorf("a subscription to %s wants events about jobs: %v", pattern, got)
		}
		sub.Close()
	}
}

// Every type of event is either about a job or about none: a type on neither list would
// not reach a subscription to it alone.
func TestEveryEventIsAboutAJobOrNone(t *testing.T) {
	aboutNone := []event.Type{
		event.DeadLetterPruned,
		event.QueuePaused, event.QueueResumed, event.QueueDraining,
		event.NearlyFull, event.Rejected, event.Room,
		event.LimitExceeded, event.LimitReleased, event.LimitAdjusted,
		event.CronTriggered, event.CronSkipped,
		event.WorkerStarted, event.WorkerQuiet, event.WorkerStopped, event.WorkerHeartbeat,
	}
	types := eventtypes.Read(t, "../../../event/event.go")
	for _, typ := range types {
		if slices.Contains(aboutJobs, typ) == slices.Contains(aboutNone, typ) {
			t.Errorf("%s has to be on one of the lists aboutJobs and aboutNone", typ)
		}
	}
	if len(types) != len(aboutJobs)+len(aboutNone) {
		t.Errorf("event.go has %d types, the lists have %d", len(types), len(aboutJobs)+len(aboutNone))
	}
}

// counter is a brief observer.
type counter struct {
	foreign.BriefObserver
	n   int
	job *ojs.JobInfo
}

func (c *counter) Observe(ev *event.Event) {
	c.n++
	c.job = ev.Job
	if ev.Subject == "panics" {
		panic("out of metrics")
	}
}

// publish1 publishes one event of a job.
func publish1(l *Log, job *ojs.JobInfo, t event.Type) {
	op := l.Begin(None, job.ID)
	op.Add(job.ID, 1, None, event.Event{Type: t, Job: job, Subject: job.ID})
	op.End()
}

// An event that no listener keeps costs no memory: not for observers that are brief, nor
// for a subscription that does not select it.
func TestNothingIsCopiedForNobody(t *testing.T) {
	if racedetector.On {
		t.Skip("the race detector has pools forget; .ci/run runs it without")
	}
	c := new(counter)
	l := New([]Observer{c}, slog.New(slog.DiscardHandler), func(*event.Event) { t.Error("stamped") })
	defer l.Subscribe(Filter{Types: []event.Type{event.Discarded}}).Close()
	defer l.Subscribe(Filter{JobIDs: []string{"another"}}).Close()
	job := &ojs.JobInfo{JobHeader: ojs.JobHeader{ID: "a"}}
	if n := testing.AllocsPerRun(1000, func() { publish1(l, job, event.Completed) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if c.job != job || c.n == 0 {
		t.Errorf("%d events of job %p, not of %p", c.n, c.job, job)
	}
}

// selector is an observer of failures.
type selector struct{ counter }

func (*selector) EventTypes() []event.Type {
	return []event.Type{event.Failed, event.Rejected}
}

// No event is wanted that no observer selects, and an observer sees none that only
// another listener does.
func TestObserversSelect(t *testing.T) {
	s := new(selector)
	l := New([]Observer{s}, slog.New(slog.DiscardHandler), nil)
	for what, want := range map[event.Type]bool{
		"": true, event.Failed: true, event.Rejected: true, event.Completed: false, "job.*": false,
	} {
		if l.Wants(what, "", "") != want {
			t.Errorf("wants %q: %v", what, !want)
		}
	}
	job := &ojs.JobInfo{JobHeader: ojs.JobHeader{ID: "a"}}
	publish1(l, job, event.Completed)
	publish1(l, job, event.Failed)
	if s.n != 1 {
		t.Errorf("saw %d events", s.n)
	}
	if all := New([]Observer{s, new(counter)}, nil, nil); !all.Wants(event.Completed, "", "") {
		t.Error("an observer of all events does not get one")
	}
	queues := New([]Observer{aboutQueues{}}, nil, nil)
	if queues.Wants("", "", "") || !queues.Wants(event.Rejected, "", "q") {
		t.Error("an observer of queues is asked about jobs")
	}
	if none := New(nil, nil, nil); none.Wants("", "", "") || none.Wants(event.Failed, "", "") {
		t.Error("nobody wants an event")
	}
}

type aboutQueues struct{}

func (aboutQueues) Observe(*event.Event)     {}
func (aboutQueues) EventTypes() []event.Type { return []event.Type{event.Rejected} }

// An event that may be kept is a copy, complete, and the same for all listeners: an event
// that is selected, and one that waits.
func TestWhatIsKeptIsACopy(t *testing.T) {
	c := new(counter)
	stamps := 0
	stamp := func(ev *event.Event) { stamps++; ev.ID = fmt.Sprint(stamps) }
	l := New([]Observer{c}, slog.New(slog.DiscardHandler), stamp)
	sub := l.Subscribe(Filter{})
	job := &ojs.JobInfo{JobHeader: ojs.JobHeader{ID: "a", Type: "before"}}
	check := func(what string) {
		t.Helper()
		job.Type = "after"
		if ev := <-sub.C(); ev.Job.Type != "before" || ev.Job == job || ev.ID != fmt.Sprint(stamps) {
			t.Errorf("%s: event %s of a job %s", what, ev.ID, ev.Job.Type)
		}
		job.Type = "before"
	}
	publish1(l, job, event.Completed)
	check("at once")
	hung := l.Begin(None, "a")
	publish1(l, job, event.Completed)
	job.Type = "after"
	hung.End()
	check("later")
	if c.n != 2 || stamps != 2 {
		t.Errorf("%d events observed, %d stamped", c.n, stamps)
	}
}

// A brief observer that panics sees each event once.
func TestBriefObserverPanics(t *testing.T) {
	var logged bytes.Buffer
	first, second := new(counter), new(counter)
	l := New([]Observer{first, second}, slog.New(slog.NewTextHandler(&logged, nil)), nil)
	publish1(l, &ojs.JobInfo{JobHeader: ojs.JobHeader{ID: "panics"}}, event.Completed)
	publish1(l, &ojs.JobInfo{JobHeader: ojs.JobHeader{ID: "b"}}, event.Completed)
	if first.n != 2 || second.n != 2 || strings.Count(logged.String(), "observer panicked") != 2 {
		t.Errorf("%d and %d events:\n%s", first.n, second.n, &logged)
	}
}
