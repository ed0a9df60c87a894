package server_test

import (
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Hostile requests are refused: none fails the server, and none has an answer that is not
// the binding's.
func TestHostileRequests(t *testing.T) {
	const secret = "s3cr3t-value"
	r := newRig(t)
	r.enqueue("A", job)
	r.fetch("w")
	var bodies []string
	files, _ := filepath.Glob(filepath.Join("..", "internal", "test", "bindingtest", "golden", "*.golden"))
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if body, ok := strings.CutPrefix(strings.TrimSpace(line), "> {"); ok {
				bodies = append(bodies, "{"+body)
			}
		}
	}
	var requests [][2]string
	for path, item := range openAPI()["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			requests = append(requests, [2]string{strings.ToUpper(method), path})
		}
	}
	slices.SortFunc(requests, func(a, b [2]string) int { return strings.Compare(a[1]+a[0], b[1]+b[0]) })
	if len(bodies) < 50 || len(requests) < 50 {
		t.Fatalf("%d bodies and %d requests", len(bodies), len(requests))
	}
	n := 2000
	if os.Getenv("OJS_STORM") != "" {
		n = 100_000
	}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	for range n {
		at := requests[random.IntN(len(requests))]
		if strings.HasSuffix(at[1], "/events") || strings.HasSuffix(at[1], "/stream") ||
			strings.HasSuffix(at[1], "/ws") {
			continue // which do not end
		}
		path := at[1]
		for strings.Contains(path, "{") {
			from, to := strings.Index(path, "{"), strings.Index(path, "}")
			path = path[:from] + pick(r.vars["A"], "x", "%2e%2e", "%00", "default", strings.Repeat("y", 300),
				"%F0%9F%98%80") + path[to+1:]
		}
		path += pick("", "", "?limit=1", "?cursor=YWJj", "?limit=-1", "?page=99999999999", "?since=x",
			"?state=", "?%zz", "?sort=priority")
		body := []byte(strings.Replace(bodies[random.IntN(len(bodies))], "a@b.c", secret, 1))
		for range random.IntN(4) {
			if len(body) == 0 {
				break
			}
			switch i := random.IntN(len(body)); random.IntN(4) {
			case 0:
				body[i] = byte(random.IntN(256))
			case 1:
				body = body[:i]
			case 2:
				body = append(body[:i:i], append([]byte(pick("null", "[]", "{}", "-1", "1e999", `"\u0000"`,
					"[[[[")), body[i:]...)...)
			case 3:
				body = append(body, body[i:]...)
			}
		}
		req := httptest.NewRequest(at[0], "/x", strings.NewReader(string(body)))
		u, err := req.URL.Parse(path)
		if err != nil {
			continue
		}
		req.URL, req.RequestURI = u, path
		for name, value := range map[string]string{
			"Content-Type":     pick("application/json", "application/openjobspec+json", "text/html", ""),
			"OJS-Version":      pick("1.0", "1.0", "1.0", "9", "\x7f"),
			"Content-Encoding": pick("", "", "", "gzip", "x"),
			"X-Request-Id":     pick("r", "", strings.Repeat("z", 500)),
			"Authorization":    "Bearer " + secret,
		} {
			req.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		r.srv.ServeHTTP(w, req)
		if w.Code >= 500 {
			t.Fatalf("%s %s: %d %s\n%q", at[0], path, w.Code, w.Body, body)
		}
		if w.Code >= 400 && strings.Contains(w.Body.String(), secret) {
			t.Fatalf("%s %s: F021: %s", at[0], path, w.Body)
		}
		r.check(at[0], req.URL.Path, w)
		if t.Failed() {
			t.Fatalf("%s %s: %q", at[0], path, body)
		}
	}
}
