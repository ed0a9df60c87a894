package server

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/fetch"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
)

var progressRoutes = []route{
	{method: http.MethodGet, path: "/jobs/{id}/progress", need: permInspect, serve: (*Server).getProgress},
	{method: http.MethodPut, path: "/jobs/{id}/progress", need: permWork, body: requiredBody,
		serve: (*Server).putProgress},
	{method: http.MethodGet, path: "/jobs/{id}/checkpoint", need: permWork, serve: (*Server).getCheckpoint},
	{method: http.MethodPost, path: "/jobs/{id}/checkpoint", need: permWork, body: requiredBody,
		serve: (*Server).putCheckpoint},
	{method: http.MethodPut, path: "/jobs/{id}/checkpoint", need: permWork, body: requiredBody,
		serve: (*Server).putCheckpoint},
	{method: http.MethodDelete, path: "/jobs/{id}/checkpoint", need: permWork,
		serve: (*Server).deleteCheckpoint},
	{method: http.MethodGet, path: "/unique-jobs", need: permInspect, serve: (*Server).uniqueJobs},
}

// progressNote is what a worker has said along with its progress. The storage of jobs has
// no field for it.
type progressNote struct {
	Fraction float64         `json:"fraction"`
	Message  string          `json:"message,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	At       time.Time       `json:"at"`
}

const (
	progressPrefix = "server/progress/" // of the key of a note
	keepNotes      = 24 * time.Hour
	maxNote        = 4 << 10 // bytes of the data, and of the message
)

// replyProgress answers with the progress of a job (F153).
func (s *Server) replyProgress(c *call, rec *storage.Record) error {
	t, there, err := s.note(c, &rec.JobInfo)
	if err != nil {
		return err
	}
	o := obj{"job_id", rec.ID, "state", string(rec.State), "progress", nil, "message", nil, "data", nil,
		"updated_at", nil}
	if there {
		o[5] = rec.Progress
		if t.Message != "" {
			o[7] = t.Message
		}
		if t.Data != nil {
			o[9] = raw(t.Data)
		}
		o[11] = t.At
	}
	if rec.Progress > 0 {
		o[5] = rec.Progress
	}
	return c.reply(http.StatusOK, o)
}

// noteKey is where the note of a job's attempt is kept. A retry begins without the words
// of the attempt before, and an attempt that has lost its job changes no later one's.
// Numbers of attempts come again when a job begins anew.
func noteKey(j *ojs.JobInfo) string {
	return progressPrefix + j.ID + "/" + strconv.Itoa(j.Attempt) + "/" +
		strconv.FormatInt(j.StartedAt.UnixMilli(), 10)
}

// note reads the note of a job's latest attempt.
func (s *Server) note(c *call, j *ojs.JobInfo) (t progressNote, there bool, err error) {
	v, there, err := s.documents().Value(c.ctx, s.now(), noteKey(j))
	return t, there && json.Unmarshal(v.Data, &t) == nil, err
}

// getProgress answers GET /jobs/{id}/progress.
func (s *Server) getProgress(c *call) error {
	rec, err := s.job(c)
	if err != nil {
		return err
	}
	return s.replyProgress(c, &rec)
}

// putProgress answers PUT /jobs/{id}/progress. Of a job that is not active it is ignored.
func (s *Server) putProgress(c *call) error {
	in := c.in()
	v := in.get("progress")
	percent := v == nil && in.has("percentage")
	if percent {
		v = in.get("percentage")
	}
	var fraction float64
	if v == nil && in.get("data") == nil || v != nil && json.Unmarshal(v, &fraction) != nil {
		return invalid("progress",
			"is missing, as is data, or is not a number").expected("a number from 0 to 1").received(kindOf(v))
	}
	if percent {
		fraction /= 100
	}
	t := progressNote{Message: in.text("message"), Data: in.get("data"), At: s.now()}
	if in.err != nil {
		return in.err
	}
	if len(t.Data) > maxNote {
		return tooLarge(codeTooLarge, "data", int64(len(t.Data)), maxNote)
	}
	if len(t.Message) > maxNote {
		return tooLarge(codeTooLarge, "message", int64(len(t.Message)), maxNote)
	}
	rec, err := s.job(c)
	if err != nil {
		return err
	}
	if rec.State != ojs.StateActive {
		return s.replyProgress(c, &rec)
	}
	d, _, err := s.held(c, in)
	if err != nil {
		return err
	}
	if v := in.get("checkpoint"); v != nil {
		if err := d.SaveCheckpoint(c.ctx, jsonRaw(v)); err != nil {
			return s.lost(c, rec.ID, err)
		}
	}
	t.Fraction = min(max(fraction, rec.Progress), 1) // it never falls
	if err := s.progress(c, d, t); err != nil {
		return err
	}
	if rec, err = s.record(c.ctx, rec.ID); err != nil {
		return err
	}
	return s.replyProgress(c, &rec)
}

// progress stores progress of a delivery, and before that its note, which those read who
// are told of the progress.
func (s *Server) progress(c *call, d *fetch.Delivery, t progressNote) error {
	err := s.documents().PutValues(c.ctx, t.At, []document.Value{{
		Key: noteKey(d.Job), Data: marshal(t), Expires: t.At.Add(keepNotes)}})
	if err != nil {
		return err
	}
	if err := d.Progress(c.ctx, t.Fraction); err != nil {
		return s.lost(c, d.Job.ID, err)
	}
	return nil
}

// getCheckpoint answers GET /jobs/{id}/checkpoint (F153).
func (s *Server) getCheckpoint(c *call) error {
	rec, err := s.job(c)
	if err != nil {
		return err
	}
	if rec.Checkpoint == nil || isNull(rec.Checkpoint) {
		return notFound("checkpoint", rec.ID)
	}
	return c.reply(http.StatusOK, obj{"job_id", rec.ID, "attempt", rec.Attempt, "state", raw(rec.Checkpoint),
		"checkpoint", obj{"job_id", rec.ID, "state", raw(rec.Checkpoint)}})
}

// putCheckpoint answers POST and PUT /jobs/{id}/checkpoint. The checkpoint is the member
// state, checkpoint or data, or else the body.
func (s *Server) putCheckpoint(c *call) error {
	in := c.in()
	v := raw(in.object.appendJSON(nil))
	for _, name := range []string{"data", "checkpoint", "state"} {
		if given := in.get(name); given != nil {
			v = given
		}
	}
	return s.saveCheckpoint(c, jsonRaw(v), "state", v, "checkpoint", obj{"job_id", c.value("id"), "state", v})
}

// deleteCheckpoint answers DELETE /jobs/{id}/checkpoint.
func (s *Server) deleteCheckpoint(c *call) error {
	return s.saveCheckpoint(c, jsonRaw(null), "deleted", true)
}

func (s *Server) saveCheckpoint(c *call, v json.RawMessage, answer ...any) error {
	d, rec, err := s.held(c, c.in())
	if err != nil {
		return err
	}
	c.sent = v // whose size a refusal tells (F028)
	if err := d.SaveCheckpoint(c.ctx, v); err != nil {
		return s.lost(c, rec.ID, err)
	}
	return c.reply(http.StatusOK, append(obj{"job_id", rec.ID, "attempt", rec.Attempt, "saved_at", s.now()},
		answer...))
}

// uniqueJobs answers GET /unique-jobs: the jobs that may keep an equal one out (F184).
func (s *Server) uniqueJobs(c *call) error {
	p, err := c.paging()
	if err != nil {
		return err
	}
	f, err := c.jobFilter()
	if err != nil {
		return err
	}
	for digit := range strings.SplitSeq("0123456789abcdef", "") { // a job without a policy has none
		f.Fingerprints = append(f.Fingerprints, digit+"*")
	}
	recs, total, next, err := s.jobPage(c, &p, f)
	if err != nil {
		return err
	}
	out := []obj{}
	for i := range recs {
		r := &recs[i]
		o := obj{"unique_key", r.Fingerprint, "key", r.Fingerprint, "job_id", r.ID, "type", r.Type,
			"queue", r.Queue, "state", string(r.State), "created_at", r.CreatedAt}
		if r.Unique != nil {
			o = append(o, "unique", raw(marshal(r.Unique)))
		}
		out = append(out, o)
	}
	return c.reply(http.StatusOK, p.answer("unique_jobs", out, len(out), total, next))
}
