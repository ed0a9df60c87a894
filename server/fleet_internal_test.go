package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/fleet"
)

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

// An enqueue that a move of partitions holds up may be tried again.
func TestMovingIsToBeTriedAgain(t *testing.T) {
	r := new(call).refusalOf(fmt.Errorf("%w: of key a, for reasons of its own", fleet.ErrMoving))
	if r.status != http.StatusServiceUnavailable || !r.retryable || !strings.Contains(r.message, "moves") {
		t.Errorf("F031: %d %t %q", r.status, r.retryable, r.message)
	}
}
