package dashboard

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/foreign"
)

// attemptLog is what an attempt has logged, with its lines as text.
type attemptLog struct {
	inspect.AttemptLog
	Text string
}

// logs are the logs of a job, the latest attempt first. unread reports whether some
// cannot be read.
func (h *Handler) logs(p *page, job *ojs.JobInfo) (logs []attemptLog, unread bool) {
	stored, err := h.eng.Jobs().Logs(p.r.Context(), job.ID)
	for _, log := range slices.Backward(stored) {
		logs = append(logs, h.attemptLog(p, job, log))
	}
	return logs, err != nil
}

func (h *Handler) attemptLog(p *page, job *ojs.JobInfo, log inspect.AttemptLog) attemptLog {
	var text strings.Builder
	for _, line := range log.Lines {
		text.WriteString(logLine(h.shownPart(job, PartLog, line), p.Zone))
		text.WriteByte('\n')
	}
	return attemptLog{log, text.String()}
}

// runningLog is what the running attempt of a job has logged so far; nil: nothing is
// known. The engine of another process answers some seconds later, while an open page
// asks. keeps reports whether that engine keeps logs.
func (h *Handler) runningLog(p *page, job *ojs.JobInfo, worker string) (is *attemptLog, keeps bool) {
	log, ok, err := h.eng.Workers().Log(p.r.Context(), worker, job.ID)
	if err != nil && !foreign.Is(err, ojs.ErrNotFound) { // the page has all else
		h.conf.log.Debug("ojs: dashboard: log of a running attempt cannot be read", "job_id", job.ID,
			"error", err)
	}
	if !ok || log.Attempt != job.Attempt {
		return nil, err == nil
	}
	shown := h.attemptLog(p, job, log)
	return &shown, true
}

// logLine is a line of a log as text: time, level, message, and the attributes in the
// order of their names. A line that is not an object stays as it is.
func logLine(line json.RawMessage, zone *time.Location) string {
	var fields map[string]json.RawMessage
	var head struct {
		Time       time.Time
		Level, Msg string
	}
	if json.Unmarshal(line, &fields) != nil || json.Unmarshal(line, &head) != nil || fields == nil {
		return string(line)
	}
	for _, name := range []string{"time", "level", "msg"} {
		delete(fields, name)
	}
	text := fmt.Sprint(head.Time.In(zone).Format("15:04:05.000"), " ", head.Level, " ", head.Msg)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text += fmt.Sprintf(" %s=%s", name, fields[name])
	}
	return text
}
