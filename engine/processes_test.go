package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// cluster are engines on one storage, each with a network of its own to it.
type cluster struct {
	t     *testing.T
	store storage.Storage
	start time.Time
	nodes []*clusterNode
}

type clusterNode struct {
	*engine.Engine[any]
	net  *storagetest.Faulty
	stop func()
}

// inCluster runs f with n running engines whose handler of "sleep" sleeps for 10 minutes.
func inCluster(t *testing.T, n int, f func(c *cluster), opts ...engine.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, store: memory.New(), start: time.Now()}
		defer func() {
			for _, n := range c.nodes {
				n.stop()
			}
		}()
		for range n {
			c.join(opts...)
		}
		f(c)
	})
}

func sleepsLong(ctx context.Context, _ *ojs.Job[any]) error {
	return handler.Sleep(ctx, 10*time.Minute)
}

// join starts one more engine.
func (c *cluster) join(opts ...engine.Option) *clusterNode {
	c.t.Helper()
	n := &clusterNode{net: &storagetest.Faulty{Storage: c.store}}
	reporting := engine.WithReports(engine.Reports{})
	opts = append([]engine.Option{quiet, reporting, engine.WithConcurrency(2)}, opts...)
	eng, err := engine.New[any](n.net, opts...)
	must(c.t, err)
	eng.Handle("sleep", sleepsLong)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	n.Engine, n.stop = eng, func() { stop(); <-ended }
	c.nodes = append(c.nodes, n)
	synctest.Wait()
	return n
}

func (c *cluster) advance(d time.Duration) { pace.Virtual(d); synctest.Wait() }

func (c *cluster) get(id string) storage.Record {
	c.t.Helper()
	rec, err := c.store.Get(context.Background(), id)
	must(c.t, err)
	return rec
}

// down fails every call.
func down(call *storagetest.Call) { call.Err = errStorage }

// A process that does not report for 30 s is dead: another one runs its jobs.
func TestDeadProcess(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		ctx := context.Background()
		dead := c.nodes[0]
		ticket, err := dead.Enqueue(ctx, "sleep", nil, noJitter)
		must(t, err)
		own, err := dead.Enqueue(ctx, "sleep", nil, noJitter, ojs.WithLease(time.Hour))
		must(t, err)
		c.advance(time.Second)
		lives := c.join()
		c.advance(6 * time.Second)
		if rec := c.get(ticket.ID); rec.Attempt != 1 || !rec.LeaseUntil.Equal(c.start.Add(90*time.Second)) {
			t.Fatalf("attempt %d is held until %v", rec.Attempt, rec.LeaseUntil.Sub(c.start))
		}
		dead.net.OnCall(down) // 2 s after its last report
		c.advance(18 * time.Second)
		e, err := lives.Jobs().Explain(ctx, ticket.ID)
		must(t, err)
		if len(e.Obstacles) != 1 || e.Obstacles[0].Code != inspect.ObstacleSilent ||
			!strings.Contains(e.Obstacles[0].Text, "the process that held it has been silent for 20 s") {
			t.Errorf("%+v", e)
		}
		h := lives.Health(ctx)
		if h.Status != engine.Degraded || len(h.Problems) != 1 ||
			h.Problems[0].Code != engine.ProblemSilent || h.Problems[0].N != 2 ||
			!strings.Contains(h.Problems[0].Text, "silent for 20 s") {
			t.Errorf("%+v", h)
		}
		holders, err := lives.Workers().List(ctx)
		must(t, err)
		if len(holders) != 2 || holders[1].Silent != 20*time.Second || holders[1].Jobs != 2 {
			t.Errorf("%+v", holders)
		}
		c.advance(10*time.Second - 1)
		if rec := c.get(ticket.ID); rec.State != ojs.StateActive || rec.Attempt != 1 {
			t.Errorf("after 30 s: %s, attempt %d", rec.State, rec.Attempt)
		}
		c.advance(7 * time.Second) // the next look, and the pause of the retry
		for _, id := range []string{ticket.ID, own.ID} {
			rec := c.get(id)
			if rec.State != ojs.StateActive || rec.Attempt != 2 || len(rec.Errors) != 1 {
				t.Fatalf("after 37 s: %s, attempt %d: %+v", rec.State, rec.Attempt, rec.Errors)
			}
			f := rec.Errors[0]
			if f.Type != policy.ErrorTypeLeaseExpired || f.Reason != ojs.ReasonLeaseExpired ||
				f.Message != "the process that held the job was silent beyond the limit of 30s" {
				t.Errorf("%+v", f)
			}
		}
		if h := lives.Health(ctx); h.Status != engine.Healthy {
			t.Errorf("%+v", h)
		}
		c.advance(10 * time.Second) // the next look finds that it holds nothing
		alive, err := document.Of(c.store).Values(ctx, time.Now(), "alive/", "", 9)
		if must(t, err); len(alive) != 1 {
			t.Errorf("the storage has the reports of %d processes, want one", len(alive))
		}
		// The process lives after all: what it brings is refused, and it works again.
		dead.net.OnCall(nil)
		c.advance(11 * time.Minute)
		for _, id := range []string{ticket.ID, own.ID} {
			if rec := c.get(id); rec.State != ojs.StateCompleted || rec.Attempt != 2 {
				t.Errorf("in the end: %s, attempt %d", rec.State, rec.Attempt)
			}
		}
		if nodes, err := lives.Jobs().Nodes(ctx); err != nil || len(nodes) != 2 {
			t.Errorf("%d nodes, %v", len(nodes), err)
		}
	})
}

// A process that stops is not dead, and one that reports now and then lives.
func TestLiveProcesses(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		n := 0
		c.nodes[0].net.OnCall(func(call *storagetest.Call) {
			if call.Method == "PutDocuments value" {
				if n++; n%4 != 0 { // once in 20 s
					call.Err = errStorage
				}
			}
		})
		ticket, err := c.nodes[0].Enqueue(context.Background(), "sleep", nil)
		must(t, err)
		c.advance(11 * time.Minute)
		if rec := c.get(ticket.ID); rec.State != ojs.StateCompleted || rec.Attempt != 1 {
			t.Errorf("%s, attempt %d", rec.State, rec.Attempt)
		}
	})
}

// Time in which the storage answers no process counts neither as silence nor for a lease:
// after an outage each process has its full time.
func TestOutageLosesNoAttempt(t *testing.T) {
	for how, hook := range map[string]func(over <-chan struct{}) func(*storagetest.Call){
		"calls fail": func(<-chan struct{}) func(*storagetest.Call) { return down },
		"calls hang, and fail": func(over <-chan struct{}) func(*storagetest.Call) {
			return func(call *storagetest.Call) { <-over; call.Err = errStorage }
		},
		"calls hang, and are answered": func(over <-chan struct{}) func(*storagetest.Call) {
			return func(*storagetest.Call) { <-over }
		},
	} {
		for _, second := range []time.Duration{12, 29, 30, 47} {
			at := second * time.Second
			for _, lasts := range []time.Duration{time.Minute, 5 * time.Minute} {
				t.Run(fmt.Sprintf("%s from %v for %v", how, at, lasts), func(t *testing.T) {
					inCluster(t, 3, func(c *cluster) {
						var ids []string
						for i := range 6 {
							c.advance(time.Second)
							ticket, err := c.nodes[i%3].Enqueue(context.Background(), "sleep", nil)
							must(t, err)
							ids = append(ids, ticket.ID)
						}
						c.advance(time.Until(c.start.Add(at)))
						over := make(chan struct{})
						for _, n := range c.nodes {
							n.net.OnCall(hook(over))
						}
						c.advance(lasts)
						others := c.nodes
						c.join() // knows nothing of the outage
						c.advance(3 * time.Second)
						for _, n := range others {
							n.net.OnCall(nil)
						}
						close(over)
						c.advance(16 * time.Minute)
						for _, id := range ids {
							if rec := c.get(id); rec.State != ojs.StateCompleted || rec.Attempt != 1 {
								t.Errorf("%s, attempt %d: %+v", rec.State, rec.Attempt, rec.Errors)
							}
						}
					})
				})
			}
		}
	}
}

// An engine that does not report renews its own leases after an outage.
func TestOutageWithoutReports(t *testing.T) {
	store := &storagetest.Faulty{Storage: sharing{memory.New()}}
	inBubbleOn(t, store, func(b *rig) {
		b.handle("sleep", sleepsLong)
		b.run()
		ticket := b.enqueue("sleep")
		b.advance(14 * time.Second)
		store.OnCall(down)
		b.advance(5 * time.Minute)
		store.OnCall(nil)
		b.advance(10 * time.Minute)
		b.want(ticket.ID, ojs.StateCompleted, 1)
	}, engine.WithoutReports())
}

// All processes of a storage are killed. A later process runs their jobs.
func TestAllProcessesDead(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		ticket, err := c.nodes[0].Enqueue(context.Background(), "sleep", nil, noJitter)
		must(t, err)
		c.advance(7 * time.Second)
		c.nodes[0].net.OnCall(down)
		c.advance(10 * time.Hour)
		c.join()
		c.advance(30*time.Second - 1)
		if rec := c.get(ticket.ID); rec.Attempt != 1 {
			t.Errorf("attempt %d", rec.Attempt)
		}
		c.advance(7 * time.Second)
		if rec := c.get(ticket.ID); rec.State != ojs.StateActive || rec.Attempt != 2 {
			t.Errorf("%s, attempt %d", rec.State, rec.Attempt)
		}
	})
}

// Without reports a job waits for its lease.
func TestClaimLease(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []engine.Option
		job  []ojs.Option
		runs time.Duration // its second attempt
	}{
		"90 s":             {nil, nil, 90 * time.Second},
		"as it is set":     {[]engine.Option{engine.WithClaimLease(5 * time.Minute)}, nil, 5 * time.Minute},
		"that of each job": {[]engine.Option{engine.WithClaimLease(0)}, nil, ojs.DefaultLease},
		"that of the job":  {nil, []ojs.Option{ojs.WithLease(7 * time.Minute)}, 7 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			opts := append(tt.opts, engine.WithoutReports())
			inCluster(t, 2, func(c *cluster) {
				c.nodes[1].net.OnCall(breaks("Claim", false, nil))
				ticket, err := c.nodes[0].Enqueue(context.Background(), "sleep", nil,
					append(tt.job, noJitter, ojs.WithTimeout(10*time.Hour))...)
				must(t, err)
				c.advance(time.Second)
				c.nodes[0].net.OnCall(down)
				c.nodes[1].net.OnCall(nil)
				c.advance(tt.runs - time.Second - 1)
				if rec := c.get(ticket.ID); rec.Attempt != 1 || rec.Lease < 7*time.Minute {
					t.Errorf("attempt %d, lease %v", rec.Attempt, rec.Lease)
				}
				c.advance(2 * time.Second)
				if rec := c.get(ticket.ID); rec.State != ojs.StateActive || rec.Attempt != 2 {
					t.Errorf("%s, attempt %d", rec.State, rec.Attempt)
				}
			}, opts...)
		})
	}
	_, err := engine.New[any](memory.New(), engine.WithClaimLease(time.Millisecond))
	wantInvalid(t, err, "claim_lease")
}

// Engines on a storage that processes share report, unless they are told not to.
func TestReportsByDefault(t *testing.T) {
	off, mocked := engine.WithoutReports(), engine.WithClock(clock.NewMock())
	for name, tt := range map[string]struct {
		store   storage.Storage
		opts    []engine.Option
		reports time.Duration
	}{
		"a shared storage":      {sharing{memory.New()}, nil, 5 * time.Second},
		"one that is not":       {memory.New(), nil, 0},
		"turned off":            {sharing{memory.New()}, []engine.Option{off}, 0},
		"turned off, then set":  {sharing{memory.New()}, []engine.Option{off, reports}, 10 * time.Second},
		"a virtual clock":       {sharing{memory.New()}, []engine.Option{mocked}, 0},
		"set, and then set off": {sharing{memory.New()}, []engine.Option{reports, off}, 0},
	} {
		eng, err := engine.New[any](tt.store, tt.opts...)
		must(t, err)
		if got := eng.Describe().Reports; got != tt.reports {
			t.Errorf("%s: %v, want %v", name, got, tt.reports)
		}
	}
	_, err := engine.New[any](memory.New(), engine.WithReports(engine.Reports{DeadAfter: time.Second}))
	if !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("dead before the third report: %v", err)
	}
}

// sharing is a memory storage that says that processes share it.
type sharing struct{ *memory.Storage }

func (s sharing) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.Shared = true
	return c
}
