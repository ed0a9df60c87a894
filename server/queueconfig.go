package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// queueConfig is the configuration of a queue (F091, F141). Its members are the
// standard's: jobs inherit the defaults when they are enqueued, and the storage counts
// concurrency and rate_limit.
type queueConfig struct {
	defaults []ojs.Option
	bounds   ojs.RateLimit
	bound    draft.Bound
}

// configured are the names of a queue's configuration. The texts on queues and on
// backpressure have other names of some members: behind each is the name of the member.
var configured = map[string]string{"concurrency": "", "rate_limit": "", "throttle": "", "priority": "",
	"max_depth": "", "max_size": "max_depth", "overflow": "", "overflow_policy": "overflow",
	"timeout_ms": "", "default_timeout": "timeout_ms", "visibility_timeout_ms": "",
	"visibility_timeout": "visibility_timeout_ms", "retry": "", "default_retry": "retry",
	"backpressure": "", "backpressure.max_depth": "max_depth", "backpressure.strategy": "overflow"}

// checkConfig refuses what is no member of a configuration, and what has two names. It
// returns the name that was sent of each member.
func checkConfig(in, pressure *input) (map[string]string, error) {
	sent := make(map[string]string)
	for _, of := range []*input{in, pressure} {
		for _, m := range of.object {
			name := of.path[len(in.path):] + m.name
			to, known := configured[name]
			to = cmp.Or(to, name)
			switch {
			case !known || of == in && strings.Contains(m.name, "."):
				return nil, invalid(of.path+clip(m.name), "is no member of a queue's configuration")
			case isNull(m.value):
				continue
			case sent[to] != "":
				return nil, givenTwice(of.path + m.name)
			}
			sent[to] = name
		}
	}
	return sent, nil
}

// readConfig reads a configuration.
func readConfig(in *input) (q queueConfig, err error) {
	pressure := in.within("backpressure")
	if in.err != nil {
		return q, in.err
	}
	sent, err := checkConfig(in, pressure)
	if err != nil {
		return q, err
	}
	depth := cmp.Or(in.integer("max_depth", 0, 0, 1<<31), in.integer("max_size", 0, 0, 1<<31),
		pressure.integer("max_depth", 0, 0, 1<<31))
	priority := in.integer("priority", 0, -100, 100)
	timeout := cmp.Or(in.duration("timeout_ms"), in.wholeSeconds("default_timeout"))
	lease := cmp.Or(in.duration("visibility_timeout_ms"), in.wholeSeconds("visibility_timeout"))
	overflow := cmp.Or(in.text("overflow"), in.text("overflow_policy"), pressure.text("strategy"))
	concurrency := in.get("concurrency")
	if in.err == nil {
		in.err = pressure.err
	}
	if in.err == nil && lease > 0 && lease < minLease {
		in.fail("visibility_timeout_ms", "is too short", "at least 100")
	}
	if in.err != nil {
		return q, in.err
	}
	switch overflow {
	case "", "reject", "block", "drop_oldest":
	default:
		return q, invalid(in.path+sent["overflow"], "is unknown").expected("reject, block or drop_oldest").
			received(clip(overflow))
	}
	q.bound = draft.Bound{MaxDepth: depth, Blocks: overflow == "block", DropOldest: overflow == "drop_oldest"}
	if priority != 0 {
		q.defaults = append(q.defaults, ojs.WithPriority(priority))
	}
	if timeout > 0 {
		q.defaults = append(q.defaults, ojs.WithTimeout(timeout))
	}
	if lease > 0 {
		q.defaults = append(q.defaults, ojs.WithLease(lease))
	}
	if name := sent["retry"]; in.get(name) != nil {
		p, err := retryOf(in.get(name))
		var bad *ojs.InvalidError
		if errors.As(err, &bad) {
			bad.Field = in.path + name + strings.TrimPrefix(bad.Field, "retry")
		}
		if err != nil {
			return q, err
		}
		q.defaults = append(q.defaults, ojs.WithRetry(p))
	}
	q.bounds, err = boundsOf(in, concurrency)
	return q, err
}

// wholeSeconds reads a number of seconds above 0; 0 if it is absent.
func (in *input) wholeSeconds(name string) time.Duration {
	return time.Duration(in.integer(name, 0, 1, 1<<31)) * time.Second
}

// boundsOf reads the limits of a queue: concurrency, rate_limit, which is a rate or an
// object with a rate, and throttle.
func boundsOf(in *input, concurrency []byte) (l ojs.RateLimit, err error) {
	out := object{{"key", []byte(`"queue"`)}}
	if concurrency != nil {
		out = append(out, member{"concurrency", concurrency})
	}
	if v := in.get("rate_limit"); v != nil {
		nested := in.within("rate_limit")
		if in.err != nil {
			return l, in.err
		}
		if nested.has("limit") && nested.has("period") || nested.has("max_per_second") {
			out = append(out, nested.object...)
		} else {
			for _, m := range nested.object {
				switch {
				case m.name != "concurrency" && m.name != "rate" && m.name != "throttle":
					return l, invalid(nested.path+clip(m.name), "is no member of a limit").
						expected("concurrency, rate, throttle; or limit and period")
				case isNull(m.value):
				case out.has(m.name):
					return l, givenTwice(nested.path + m.name)
				default:
					out = out.set(m.name, m.value)
				}
			}
		}
	}
	if v := in.get("throttle"); v != nil {
		if out.has("throttle") {
			return l, givenTwice(in.path + "throttle")
		}
		out = out.set("throttle", v)
	}
	if len(out) == 1 {
		return l, nil
	}
	if err := l.UnmarshalJSON(out.appendJSON(nil)); err != nil {
		return l, err
	}
	l.Key = ""
	return l, nil
}

// applyConfig stores the configuration of a queue, with effect at once. A call that gives
// none leaves the limit, which may also be set by itself.
func (s *Server) applyConfig(c *call, name string, in *input, given bool) (obj, error) {
	q, err := readConfig(in)
	switch limit := operate.LimitOfQueue(name); {
	case err != nil || !given:
	case q.bounds.Bounds():
		err = s.op.Limits().Set(c.ctx, limit, q.bounds, time.Time{})
	default:
		err = s.op.Limits().Clear(c.ctx, limit)
	}
	if err != nil && !stored.Missing(err) {
		return nil, err
	}
	doc, there, err := s.queueDoc(c.ctx, name)
	if err != nil {
		return nil, err
	}
	if !there {
		doc.CreatedAt = s.now()
	}
	doc.Config = in.object.appendJSON(nil)
	if err := s.putQueueDoc(c.ctx, name, doc); err != nil {
		return nil, err
	}
	s.configs.forget()
	config, err := s.shownConfig(c, &queue{operate.QueueStats{Name: name}, doc, s})
	return obj{"name", name, "config", config, "created_at", doc.CreatedAt}, err
}

// configOf reads the configuration in a body: in the member config, or the body itself.
func configOf(in *input) *input {
	if in.get("config") != nil {
		return in.within("config")
	}
	return &input{object: in.object.without("name").without("config"), err: in.err}
}

// createQueue answers POST /queues (F091).
func (s *Server) createQueue(c *call) error {
	in := c.in()
	name := in.name("name")
	if in.err != nil {
		return in.err
	}
	if err := c.mayQueue("name", name); err != nil {
		return err
	}
	config := configOf(in)
	if in.err != nil {
		return in.err
	}
	given := len(config.object) > 0
	if doc, there, err := s.queueDoc(c.ctx, name); err != nil {
		return err
	} else if there && doc.Config != nil && !given { // what it has stays
		if config.object, err = split(doc.Config, ""); err != nil {
			return err
		}
	}
	out, err := s.applyConfig(c, name, config, given)
	if err != nil {
		return err
	}
	q, err := s.ownQueue(c.ctx, name)
	if err != nil {
		return err
	}
	c.audit("queue.created", name)
	c.w.Header().Set("Location", base+"/queues/"+name+"/stats")
	out = append(out, "state", string(q.State))
	made := append(out[:len(out):len(out)], "status", string(q.State), "paused", q.State == ojs.QueuePaused)
	return c.reply(http.StatusCreated, append(obj{"queue", made}, out...))
}

// putQueueConfig answers PUT /queues/{name}/config (F091).
func (s *Server) putQueueConfig(c *call) error {
	name := c.value("name")
	if err := c.mayQueue("name", name); err != nil {
		return err
	}
	in := c.in()
	config := configOf(in)
	if in.err != nil {
		return in.err
	}
	out, err := s.applyConfig(c, name, config, true)
	if err != nil {
		return err
	}
	c.audit("queue.configured", name)
	return c.reply(http.StatusOK, out)
}

// getQueueConfig answers GET /queues/{name}/config.
func (s *Server) getQueueConfig(c *call) error {
	q, err := s.findQueue(c)
	if err != nil {
		return err
	}
	config, err := s.shownConfig(c, &q)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj{"name", q.Name, "config", config})
}

// shownConfig is the configuration of a queue, whose limit may also be set by itself.
func (s *Server) shownConfig(c *call, q *queue) (raw, error) {
	limit, err := s.op.Limits().Get(c.ctx, operate.LimitOfQueue(q.Name))
	if err != nil && !stored.Missing(err) {
		return nil, err
	}
	var set ojs.RateLimit
	if limit.Setting != nil {
		set = *limit.Setting
	}
	set.Key, set.OnLimit = "", ""
	config := object{}
	if q.Config != nil {
		if config, err = split(q.Config, ""); err != nil {
			return nil, err
		}
	}
	given, err := readConfig(&input{object: config})
	if given.bounds.OnLimit = ""; err == nil && given.bounds == set { // as it was written
		return raw(config.appendJSON(nil)), nil
	}
	config = config.without("concurrency").without("rate_limit").without("throttle")
	for i, b := 0, bounds(&set); i < len(b); i += 2 {
		if b[i+1] != nil {
			name := b[i].(string)
			if name == "rate" {
				name = "rate_limit"
			}
			config = append(config, member{name, appendValue(nil, b[i+1])})
		}
	}
	return raw(config.appendJSON(nil)), nil
}

// liveJobs refuses to delete a queue that has jobs.
func liveJobs(name string, n int) error {
	r := refuse(http.StatusConflict, codeConflict, "queue %s has %d jobs that have not ended", name, n)
	return r.with("queue", name).with("depth", n)
}

// deleteQueue answers DELETE /queues/{name} (F091). Jobs that have ended go with it.
func (s *Server) deleteQueue(c *call) error {
	q, err := s.findQueue(c)
	if err != nil {
		return err
	}
	if err := c.mayDo(permPurge, q.Name); err != nil {
		return err
	}
	in := c.in()
	strategy, target := in.text("strategy"), in.text("target_queue")
	if in.err != nil {
		return in.err
	}
	if strategy == "" {
		strategy = c.param("strategy")
	}
	if target == "" {
		target = c.param("target_queue")
	}
	refused := q.Depth()
	switch strategy {
	case "", "reject":
		strategy = "reject"
	case "discard":
		refused = 0
	case "move":
		if target == q.Name {
			return badQueue("target_queue", target)
		}
		if err := c.mayQueue("target_queue", target); err != nil {
			return err
		}
		refused = q.Counts[ojs.StateActive] // which cannot be moved
	default:
		return invalid("strategy", "is unknown").expected("reject, discard or move").received(clip(strategy))
	}
	if refused > 0 {
		return liveJobs(q.Name, refused)
	}
	done, err := s.emptyQueue(c.ctx, q.Name, strategy, target)
	if err == nil {
		err = s.forgetQueue(c.ctx, q.Name)
	}
	if err != nil { // the queue stays, in the state that it had
		ctx, cancel := wall.WithTimeout(context.WithoutCancel(c.ctx), 5*time.Second)
		defer cancel()
		return errors.Join(err, s.setState(ctx, q.Name, q.State))
	}
	moved, discarded := done, 0
	if strategy == "discard" {
		moved, discarded = 0, done
	}
	c.audit("queue.deleted", q.Name+" "+strategy)
	return c.reply(http.StatusOK, obj{"deleted", true, "name", q.Name, "strategy", strategy, "jobs_moved",
		moved, "jobs_discarded", discarded})
}

// setState sets the state of a queue.
func (s *Server) setState(ctx context.Context, name string, to ojs.QueueState) error {
	set := s.op.Queues().Resume
	switch to {
	case ojs.QueuePaused:
		set = s.op.Queues().Pause
	case ojs.QueueDraining:
		set = s.op.Queues().Drain
	}
	_, err := set(ctx, name)
	return err
}

// mostPasses is how often emptyQueue goes through the jobs of a queue.
const mostPasses = 10

// emptyQueue moves or cancels the live jobs of a queue, as a strategy says, and returns
// how many. A queue that keeps live jobs is an error. The queue is left stopped:
//
//  1. The queue is paused, so that no more jobs are claimed. The jobs that are active
//     then refuse a move.
//  2. The jobs are moved or cancelled.
//  3. Unless they are moved, the queue begins to refuse new jobs. A worker may claim one
//     that was enqueued between 2 and 3: a move keeps the pause.
//  4. Jobs that were enqueued meanwhile are moved or cancelled, too.
//
// A move of jobs that are enqueued faster than it moves them leaves some. They count as
// enqueued after the queue was deleted.
func (s *Server) emptyQueue(ctx context.Context, name, strategy, target string) (done int, err error) {
	live, do := inspect.Filter{Queues: []string{name}}, operate.MoveJobs(target)
	if strategy == "discard" {
		do = operate.CancelJobs()
		live.States = []ojs.State{ojs.StateAvailable, ojs.StateScheduled, ojs.StatePending,
			ojs.StateRetryable, ojs.StateActive}
	}
	to, moves, last := ojs.QueuePaused, strategy == "move", applied{}
	for pass := 0; ; pass++ {
		if err := s.setState(ctx, name, to); err != nil {
			return done, err
		}
		now, err := s.ownQueue(ctx, name)
		if err != nil {
			return done, err
		}
		left := now.Depth()
		if strategy == "discard" && pass > 0 && left > 0 {
			kept, err := s.keptRecords(ctx, name)
			if err != nil {
				return done, err
			}
			left -= kept
		}
		switch {
		case left == 0 && (moves || to == ojs.QueueDraining), pass == mostPasses && moves && last.done > 0:
			return done, nil
		case pass == mostPasses, left > 0 && strategy == "reject",
			moves && (now.Counts[ojs.StateActive] > 0 || last.matched > 0 && last.done == 0):
			return done, liveJobs(name, left)
		case strategy != "reject":
			if last, err = s.apply(ctx, do, live); err != nil {
				return done, err
			}
			done += last.done
		}
		if !moves {
			to = ojs.QueueDraining
		}
	}
}

// keptRecords moves the records of workflows out of a queue whose jobs were discarded.
// It returns how many stay. The record of a workflow that has jobs elsewhere is none of
// the queue's jobs.
func (s *Server) keptRecords(ctx context.Context, name string) (int, error) {
	records := inspect.Filter{Queues: []string{name},
		Types: []string{workflow.Type, workflow.JoinType, workflow.AddType}}
	if name != ojs.DefaultQueue {
		if _, err := s.apply(ctx, operate.MoveJobs(ojs.DefaultQueue), records); err != nil {
			return 0, err
		}
	}
	records.States = []ojs.State{ojs.StatePending}
	n, err := s.op.Jobs().Count(ctx, records, 0)
	return n.N, err
}

// forgetQueue deletes what there is of a queue beside its live jobs.
func (s *Server) forgetQueue(ctx context.Context, name string) error {
	if _, err := s.apply(ctx, operate.DeleteJobs(), inspect.Filter{Queues: []string{name}}); err != nil {
		return err
	}
	if err := s.setState(ctx, name, ojs.QueueActive); err != nil {
		return err
	}
	if err := s.op.Limits().Clear(ctx, operate.LimitOfQueue(name)); err != nil && !stored.Missing(err) {
		return err
	}
	defer s.configs.forget()
	return s.documents().PutValues(ctx, s.now(), []document.Value{{Key: queuePrefix + name}})
}

// config returns the configuration of a queue.
func (s *Server) config(ctx context.Context, name string) (queueConfig, error) {
	if s.of == nil {
		return queueConfig{}, nil // a decoder under test has no storage
	}
	byName, err := common(ctx, s, func(ctx context.Context, s *Server) (map[string]queueConfig, error) {
		return s.configs.get(s.now(), false, func() (map[string]queueConfig, error) {
			return s.readConfigs(ctx)
		})
	})
	return byName[name], err
}

// readConfigs reads the configurations of all queues.
func (s *Server) readConfigs(ctx context.Context) (map[string]queueConfig, error) {
	byName := make(map[string]queueConfig)
	for v, err := range s.documents().EachValue(ctx, s.now(), storage.DocumentQuery{Prefix: queuePrefix}) {
		if err != nil {
			return nil, err
		}
		var doc queueDoc
		if json.Unmarshal(v.Data, &doc) != nil || len(doc.Config) == 0 {
			continue
		}
		members, err := split(doc.Config, "")
		if err == nil {
			if conf, err := readConfig(&input{object: members}); err == nil {
				byName[strings.TrimPrefix(v.Key, queuePrefix)] = conf
			}
		}
	}
	return byName, nil
}
