package server

import "testing"

// A rule for a route that there is not would leave a route of one cell unnoticed.
func TestRulesNameRoutes(t *testing.T) {
	there := make(map[string]bool)
	for _, rt := range routes() {
		there[rt.method+" "+rt.path] = true
	}
	for name := range rules {
		if !there[name] {
			t.Errorf("%q is no route", name)
		}
	}
}
