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

// Problems of the engine are in the reader's language.
func TestProblemsAreTranslated(t *testing.T) {
	s := newSite(t)
	for lang, want := range map[string]string{"en": "the engine does not run",
		"de": "Die Engine dieses Prozesses läuft nicht."} {
		for _, path := range []string{"/", "/system/"} {
			w := s.do("GET", path, "", "Accept-Language", lang)
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: no %q in\n%s", path, want, w.Body)
			}
		}
	}
}
