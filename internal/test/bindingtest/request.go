package bindingtest

import (
	"net/http"
	"net/http/httptest"
	"strings"
)

// Request makes a request of a line, headers and a body:
//
//	POST /jobs
//	OJS-Version: 1.0
//
//	{"type":"a","args":[]}
//
// The path is under /ojs/v1, unless it begins with /ojs.
func Request(text string) *http.Request {
	head, body, _ := strings.Cut(strings.TrimSpace(text), "\n\n")
	lines := strings.Split(head, "\n")
	method, path, _ := strings.Cut(strings.TrimSpace(lines[0]), " ")
	if !strings.HasPrefix(path, "/ojs") {
		path = "/ojs/v1" + path
	}
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Host = "127.0.0.1"
	if body != "" {
		req.Header.Set("Content-Type", "application/openjobspec+json")
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		req.Header.Set(name, strings.TrimSpace(value))
	}
	return req
}
