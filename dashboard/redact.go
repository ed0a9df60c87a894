package dashboard

import (
	"encoding/json"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// Part is a part of a job that may hold secrets.
type Part string

// The parts of a job, each as JSON.
const (
	PartArgs    Part = "args"
	PartMeta    Part = "meta" // an object
	PartResult  Part = "result"
	PartDetails Part = "details" // of an error, an object
	PartMessage Part = "message" // of an error, a string
	PartLog     Part = "log"     // a line that a handler has logged, an object

	PartCheckpoint Part = "checkpoint" // of a job that has not ended
)

// Redactor returns what a page shows of a part of a job: the JSON that it was given, or
// other JSON, such as "\"hidden\"". It must not change json. A part for which it returns
// what is not JSON is hidden. Meta and details must stay objects.
type Redactor func(job *ojs.JobInfo, part Part, json []byte) []byte

// shown returns the job as pages may show it. Every job that a page has goes through it.
func (h *Handler) shown(job *ojs.JobInfo) *ojs.JobInfo {
	if h.conf.redact == nil || job == nil || h.conf.masks && isPlain(job) {
		return job
	}
	out := job.Clone()
	hide := func(part Part, in []byte) []byte { return h.hide(job, part, in) }
	if args, err := ojs.NewArgs(json.RawMessage(hide(PartArgs, job.Args.JSON()))); err == nil {
		out.Args = args
	} else {
		out.Args = ojs.Args{}
	}
	object := func(part Part, in map[string]any) map[string]any {
		if len(in) == 0 {
			return nil
		}
		b, err := json.Marshal(in)
		var m map[string]any
		if err != nil || jsonvalue.Unmarshal(hide(part, b), &m) != nil {
			return nil
		}
		return m
	}
	out.Meta = object(PartMeta, job.Meta)
	if len(job.Result) > 0 {
		out.Result = hide(PartResult, job.Result)
	}
	out.Extra = h.shownExtra(job)
	failure := func(f *ojs.Failure) {
		f.Details = object(PartDetails, f.Details)
		f.Message = h.shownText(job, PartMessage, f.Message)
	}
	for i := range out.Errors {
		failure(&out.Errors[i])
	}
	if out.Error != nil {
		failure(out.Error)
	}
	return out
}

// shownExtra returns the attributes that this version does not know, which a redactor of
// the program does not know either.
func (h *Handler) shownExtra(job *ojs.JobInfo) (out map[string]json.RawMessage) {
	if !h.conf.masks || len(job.Extra) == 0 {
		return nil
	}
	b, err := json.Marshal(job.Extra)
	if err != nil || json.Unmarshal(mask(job, PartMeta, b), &out) != nil {
		return nil
	}
	return out
}

// shownPart returns a part that is stored beside a job as pages may show it.
func (h *Handler) shownPart(job *ojs.JobInfo, part Part, in json.RawMessage) json.RawMessage {
	if h.conf.redact == nil {
		return in
	}
	return h.hide(job, part, in)
}

// shownText returns a part that is a text as pages may show it.
func (h *Handler) shownText(job *ojs.JobInfo, part Part, text string) (out string) {
	b, err := json.Marshal(text)
	if err != nil || json.Unmarshal(h.shownPart(job, part, b), &out) != nil {
		return ""
	}
	return out
}

// hide asks the redactor, which there is, for a part of a job.
func (h *Handler) hide(job *ojs.JobInfo, part Part, in []byte) []byte {
	if b := h.conf.redact(job, part, in); json.Valid(b) {
		return b
	}
	return []byte(`"hidden"`)
}

func (h *Handler) shownAll(jobs []*ojs.JobInfo) []*ojs.JobInfo {
	out := make([]*ojs.JobInfo, len(jobs))
	for i, job := range jobs {
		out[i] = h.shown(job)
	}
	return out
}
