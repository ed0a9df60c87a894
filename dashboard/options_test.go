package dashboard

import (
	"strings"
	"testing"
)

// An engine that never runs is no problem of an operator, and what it lacks is no reason
// of a job.
func TestWithoutRunning(t *testing.T) {
	for _, opts := range [][]Option{nil, {WithoutRunning()}} {
		s := newSite(t, opts...)
		id := s.enqueue("t", nil)
		for path, texts := range map[string][]string{"/": {"the engine does not run"},
			"/jobs/" + id + "/": {"this engine does not run", "has no handler in this engine"}} {
			body := s.ok(path)
			for _, text := range texts {
				if strings.Contains(body, text) != (opts == nil) {
					t.Errorf("%d options, %s: %q is there: %v", len(opts), path, text, opts != nil)
				}
			}
		}
	}
}
