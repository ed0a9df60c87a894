package policy

import "github.com/ojsengine/ojs"

// Canonical is the text whose hash is the fingerprint, by way of the library.
var Canonical = canonical

// Builtin are the strategies of the presets.
var Builtin = builtin

// Simple is the same text without it.
func Simple(p *ojs.UniquePolicy, job *ojs.JobInfo) (string, bool) {
	w := writers.Get().(*simpleWriter)
	defer w.release()
	text, ok := w.simple(p, job)
	return string(text), ok
}
