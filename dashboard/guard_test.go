package dashboard

import (
	"net/http/httptest"
	"testing"
)

// Pages without an authorizer, and pages with hosts, answer under names that no other
// site can lead here.
func TestHosts(t *testing.T) {
	for host, code := range map[string]int{"localhost": 200, "LOCALHOST:8080": 200, "jobs.localhost": 200,
		"127.0.0.1:80": 200, "[::1]:80": 200, "10.0.0.7": 200, "jobs.example.com:443": 200,
		"evil.example": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "": 403} {
		for i, opts := range [][]Option{{WithHosts("jobs.example.com")},
			{WithHosts("jobs.example.com"), WithAuthorizer(AllowAll)}, {WithAuthorizer(AllowAll)}} {
			if i == 2 {
				code = 200
			}
			s := newSite(t, opts...)
			r := httptest.NewRequest("GET", "/jobs/", nil)
			r.Host = host
			w := httptest.NewRecorder()
			s.pages.ServeHTTP(w, r)
			if w.Code != code {
				t.Errorf("%q, options %d: %d, want %d", host, i, w.Code, code)
			}
		}
	}
	if _, err := New(newSite(t).eng, WithHosts("a:80")); err == nil {
		t.Error("a host with a port is taken")
	}
}
