package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
)

var resultRoutes = []route{
	{method: http.MethodGet, path: "/jobs/{id}/result", need: permInspect, waits: true,
		serve: (*Server).getResult},
	{method: http.MethodPost, path: "/jobs/results", need: permInspect, body: requiredBody,
		serve: (*Server).getResults},
}

// getResult answers GET /jobs/{id}/result (F152).
func (s *Server) getResult(c *call) error {
	timeout, err := c.number("timeout", 30, 0, 300)
	if err != nil {
		return err
	}
	rec, err := s.job(c)
	if err != nil {
		return pruned(c.value("id"), err)
	}
	wait := c.param("wait")
	if wait == "" && c.query.Has("wait") {
		wait = "true"
	}
	if wait != "" && wait != "true" && wait != "1" && wait != "false" && wait != "0" {
		return invalid("wait", "is neither true nor false").received(clip(wait))
	}
	if !rec.State.Terminal() && (wait == "true" || wait == "1") && timeout > 0 {
		if rec, err = s.waitFor(c, rec.ID, time.Duration(timeout)*time.Second); err != nil {
			return pruned(rec.ID, err)
		}
	}
	if !rec.State.Terminal() {
		r := refuse(http.StatusRequestTimeout, "timeout", "job %s is %s: it has no result yet", rec.ID,
			rec.State)
		r.retryable = true
		return r.with("job_id", rec.ID).with("current_state", string(rec.State))
	}
	return c.reply(http.StatusOK, append(obj{"job_id", rec.ID}, resultOf(&rec)...))
}

// resultOf is how a job has ended.
func resultOf(rec *storage.Record) obj {
	o := obj{"state", string(rec.State)}
	switch {
	case !rec.State.Terminal(), rec.State == ojs.StateCompleted && rec.Result == nil:
		return append(o, "result", nil)
	case rec.State == ojs.StateCompleted:
		return append(o, "result", raw(rec.Result))
	case rec.Error != nil:
		return append(o, "error", raw(appendFailure(nil, rec.Error, false)))
	}
	return o
}

// pruned says of a job that is not there that it was deleted, if that is known.
func pruned(id string, err error) error {
	if !errors.Is(err, ojs.ErrPruned) {
		return err
	}
	return refuse(http.StatusGone, "RESULT_PRUNED", "the job has ended, and was deleted with its result").
		with("job_id", id)
}

// waitFor waits until a job has ended, or the time is over.
func (s *Server) waitFor(c *call, id string, most time.Duration) (storage.Record, error) {
	eng, err := c.engine()
	if err != nil {
		return storage.Record{}, err
	}
	ctx, done := s.untilStopped(c.ctx, true)
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.clock.AfterFunc(most, cancel).Stop()
	var ended *ojs.EndedError
	if _, err := eng.Wait(ctx, id); err != nil && !errors.As(err, &ended) && ctx.Err() == nil {
		return storage.Record{}, err
	}
	return s.record(c.ctx, id)
}

// getResults answers POST /jobs/results (F152).
func (s *Server) getResults(c *call) error {
	in := c.in()
	in.require("ids")
	ids := in.texts("ids")
	if in.err == nil && len(ids) > 1000 {
		in.fail("ids", "has "+strconv.Itoa(len(ids))+" ids", "at most 1000")
	}
	if in.err != nil {
		return in.err
	}
	out := obj{}
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			continue
		}
		u, _ := uuid.Parse(id) // or else the zero id, which no job has
		rec, err := s.record(c.ctx, u.String())
		switch {
		case stored.Missing(err):
			out = append(out, id, nil)
			continue
		case err != nil:
			return err
		}
		if err := c.may(rec.Queue); err != nil {
			return err
		}
		out = append(out, id, resultOf(&rec))
	}
	return c.reply(http.StatusOK, obj{"results", out})
}
