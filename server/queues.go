package server

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

var queueRoutes = []route{
	{method: http.MethodGet, path: "/queues", need: permInspect, serve: (*Server).listQueues},
	{method: http.MethodPost, path: "/queues", need: permOperate, body: requiredBody,
		serve: (*Server).createQueue},
	{method: http.MethodGet, path: "/queues/{name}", need: permInspect, serve: (*Server).getQueue},
	{method: http.MethodGet, path: "/queues/{name}/stats", need: permInspect, serve: (*Server).queueStats},
	{method: http.MethodGet, path: "/queues/{name}/priority-stats", need: permInspect,
		serve: (*Server).priorityStats},
	{method: http.MethodPost, path: "/queues/{name}/pause", need: permOperate, body: optionalBody,
		serve: (*Server).pauseQueue},
	{method: http.MethodPost, path: "/queues/{name}/resume", need: permOperate, body: optionalBody,
		serve: (*Server).resumeQueue},
	{method: http.MethodPut, path: "/queues/{name}/config", need: permOperate, body: requiredBody,
		serve: (*Server).putQueueConfig},
	{method: http.MethodGet, path: "/queues/{name}/config", need: permInspect,
		serve: (*Server).getQueueConfig},
	{method: http.MethodDelete, path: "/queues/{name}", need: permOperate, body: optionalBody,
		serve: (*Server).deleteQueue},
}

// queueDoc is what the server keeps of a queue in the storage, under queuePrefix.
type queueDoc struct {
	CreatedAt time.Time       `json:"created_at"`
	PausedAt  time.Time       `json:"paused_at,omitzero"`
	ResumedAt time.Time       `json:"resumed_at,omitzero"`
	Config    json.RawMessage `json:"config,omitempty"`
}

const queuePrefix = "server/queue/"

// documents are the values that the server keeps in the storage, under "server/".
func (s *Server) documents() document.Store { return document.Of(s.values()) }

func (s *Server) queueDoc(ctx context.Context, name string) (doc queueDoc, there bool, err error) {
	v, there, err := s.documents().Value(ctx, s.now(), queuePrefix+name)
	if err == nil && there {
		_ = json.Unmarshal(v.Data, &doc) // or another program has written it
	}
	return doc, there, err
}

func (s *Server) putQueueDoc(ctx context.Context, name string, doc queueDoc) error {
	return s.documents().PutValues(ctx, s.now(), []document.Value{{Key: queuePrefix + name,
		Data: marshal(doc)}})
}

// queue is what is known of a queue.
type queue struct {
	operate.QueueStats
	queueDoc
	of *Server // of a cell that has it
}

// queues returns all queues that there are: with jobs, with a state, or made by a call. A
// queue whose making no call has noted is as old as its oldest job.
func (s *Server) queues(c *call) ([]queue, error) {
	list, err := gathered(c.ctx, s, func(ctx context.Context, s *Server) ([]queue, error) {
		return s.ownQueues(ctx, c)
	})
	slices.SortStableFunc(list, func(a, b queue) int { return strings.Compare(a.Name, b.Name) })
	out := list[:0]
	for _, q := range list { // of several cells
		if n := len(out); n == 0 || out[n-1].Name != q.Name {
			out = append(out, q)
			continue
		}
		sum := &out[len(out)-1]
		for state, n := range q.Counts {
			sum.Counts[state] += n
		}
		if q.State == ojs.QueuePaused {
			sum.State = q.State
		}
	}
	return out, err
}

// ownQueues returns the queues of the server's storage.
func (s *Server) ownQueues(ctx context.Context, c *call) ([]queue, error) {
	list, err := s.op.Queues().List(ctx)
	if err != nil {
		return nil, err
	}
	docs := make(map[string]queueDoc)
	for v, err := range s.documents().EachValue(ctx, s.now(), storage.DocumentQuery{Prefix: queuePrefix}) {
		if err != nil {
			return nil, err
		}
		var doc queueDoc
		_ = json.Unmarshal(v.Data, &doc)
		docs[v.Key[len(queuePrefix):]] = doc
	}
	some, all := c.who.queues(c.rt.need)
	var out []queue
	add := func(st operate.QueueStats, doc queueDoc) {
		if all || slices.Contains(some, st.Name) {
			out = append(out, queue{st, doc, s})
		}
	}
	for _, st := range list {
		add(st, docs[st.Name])
		delete(docs, st.Name)
	}
	for name, doc := range docs {
		add(operate.QueueStats{Name: name, State: ojs.QueueActive, Counts: map[ojs.State]int{}}, doc)
	}
	return out, nil
}

// queueMadeAt is when a queue was made, or else its oldest job, or else this server.
func (s *Server) queueMadeAt(c *call, q *queue) (time.Time, error) {
	if !q.CreatedAt.IsZero() {
		return q.CreatedAt, nil
	}
	f := inspect.Filter{Queues: []string{q.Name}}
	page, err := q.of.op.Jobs().Page(c.ctx, f, "", 1)
	if err != nil || len(page.Jobs) == 0 {
		return s.begun, err
	}
	return page.Jobs[0].CreatedAt, nil
}

// ownQueue is a queue of the server's storage, as it is now.
func (s *Server) ownQueue(ctx context.Context, name string) (operate.QueueStats, error) {
	list, err := s.op.Queues().List(ctx)
	for i := range list {
		if list[i].Name == name {
			return list[i], err
		}
	}
	return operate.QueueStats{Name: name, State: ojs.QueueActive}, err
}

// findQueue returns the queue that the path names.
func (s *Server) findQueue(c *call) (q queue, err error) {
	name := c.value("name")
	c.about("queue", name)
	if err := c.may(name); err != nil {
		return q, err
	}
	list, err := s.queues(c)
	if err != nil {
		return q, err
	}
	for _, q := range list {
		if q.Name == name {
			return q, nil
		}
	}
	return q, notFound("queue", name)
}

// listQueues answers GET /queues (F088).
func (s *Server) listQueues(c *call) error {
	p, err := c.paging()
	if err != nil {
		return err
	}
	list, err := s.queues(c)
	if err != nil {
		return err
	}
	page, next := pageOf(&p, list, func(q *queue) string { return q.Name })
	out := []obj{}
	for i := range page {
		q := &page[i]
		at, err := s.queueMadeAt(c, q)
		if err != nil {
			return err
		}
		out = append(out, obj{"name", q.Name, "status", string(q.State), "paused", q.State == ojs.QueuePaused,
			"created_at", at})
	}
	return c.reply(http.StatusOK, p.answer("queues", out, len(page), len(list), next))
}

// counted are the states that the counts of a queue have, in their order.
var counted = []ojs.State{ojs.StateAvailable, ojs.StateActive, ojs.StateScheduled, ojs.StateRetryable,
	ojs.StateCompleted, ojs.StateDiscarded, ojs.StateCancelled, ojs.StatePending}

// stats answers with a queue in all forms in use (F155).
func (s *Server) stats(c *call, q *queue, further ...any) error {
	paused := q.State == ojs.QueuePaused
	counts := countsOf(q.Counts)
	var one any = q.Name
	if !c.older() {
		one = append(append(obj{"name", q.Name}, counts...), "paused", paused)
	}
	n, err := s.lastHour(c.ctx, q.Name)
	if err != nil {
		return err
	}
	nested := append(obj{"queue", q.Name, "depth", q.Depth()}, counts...)
	nested = append(nested, "completed_last_hour", n.completed, "failed_last_hour", n.failed,
		"avg_duration_ms", n.run, "avg_wait_ms", n.wait, "throughput_per_second", n.rate)
	out := append(obj{"queue", one, "name", q.Name, "status", string(q.State), "paused", paused}, counts...)
	out = append(out, "depth", q.Depth(), "stats", nested, "computed_at", s.now())
	return c.reply(http.StatusOK, append(out, further...))
}

// queueStats answers GET /queues/{name}/stats (F089).
func (s *Server) queueStats(c *call) error {
	q, err := s.findQueue(c)
	if err != nil {
		return err
	}
	return s.stats(c, &q)
}

// getQueue answers GET /queues/{name} (F091).
func (s *Server) getQueue(c *call) error {
	q, err := s.findQueue(c)
	if err != nil {
		return err
	}
	config, err := q.of.shownConfig(c, &q)
	if err != nil {
		return err
	}
	at, err := s.queueMadeAt(c, &q)
	if err != nil {
		return err
	}
	return s.stats(c, &q, "state", string(q.State), "config", config, "created_at", at)
}

// pauseQueue answers POST /queues/{name}/pause (F090).
func (s *Server) pauseQueue(c *call) error { return s.setQueue(c, ojs.QueuePaused) }

// resumeQueue answers POST /queues/{name}/resume (F090).
func (s *Server) resumeQueue(c *call) error { return s.setQueue(c, ojs.QueueActive) }

// setQueue pauses or resumes the queue that the path names. An unknown one is made.
func (s *Server) setQueue(c *call, to ojs.QueueState) error {
	name := c.value("name")
	if err := c.mayQueue("name", name); err != nil {
		return err
	}
	doc, there, err := s.queueDoc(c.ctx, name)
	if err != nil {
		return err
	}
	was, err := s.ownQueue(c.ctx, name)
	if err != nil {
		return err
	}
	set, event := s.op.Queues().Pause, "queue.paused"
	if to == ojs.QueueActive {
		set, event = s.op.Queues().Resume, "queue.resumed"
	}
	if _, err := set(c.ctx, name); err != nil {
		return err
	}
	now, word, at := s.now(), "paused_at", &doc.PausedAt
	if to == ojs.QueueActive {
		word, at = "resumed_at", &doc.ResumedAt
	}
	if !there {
		doc.CreatedAt = now
	}
	if at.IsZero() || was.State != to {
		*at = now
	}
	if err := s.putQueueDoc(c.ctx, name, doc); err != nil {
		return err
	}
	c.audit(event, name)
	if c.admin() {
		out := obj{"name", name, "queue", name, "paused", to == ojs.QueuePaused, "state", string(to)}
		return c.reply(http.StatusOK, append(out, word, *at))
	}
	q, err := s.findQueue(c)
	if err != nil {
		return err
	}
	return s.stats(c, &q, word, *at)
}

// priorityStats answers GET /queues/{name}/priority-stats (F153).
func (s *Server) priorityStats(c *call) error {
	q, err := s.findQueue(c)
	if err != nil {
		return err
	}
	f := inspect.Filter{Queues: []string{q.Name}, States: []ojs.State{ojs.StateAvailable}}
	counts := make(map[int]int)
	total := 0
	for rec, err := range s.op.Jobs().Records(c.ctx, f) {
		if err != nil {
			return err
		}
		counts[rec.Priority]++
		if total++; total == mostSorted {
			break
		}
	}
	out, byName := []obj{}, obj{}
	for _, priority := range slices.Backward(slices.Sorted(maps.Keys(counts))) {
		out = append(out, obj{"priority", priority, "count", counts[priority]})
		byName = append(byName, strconv.Itoa(priority), counts[priority])
	}
	return c.reply(http.StatusOK, obj{"queue", q.Name, "priorities", out, "distribution", out,
		"counts_by_priority", byName, "total", total})
}
