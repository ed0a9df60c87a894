package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	ojsprometheus "github.com/ojsengine/ojs/prometheus"
	"github.com/ojsengine/ojs/storage/memory"
)

// ask makes a request of the binding.
func ask(t *testing.T, method, url, token, body string) (status int, answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/openjobspec+json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	b, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(b, &answer) != nil {
		t.Fatalf("%s %s: %v: %s", method, url, err, b)
	}
	return resp.StatusCode, answer
}

// The command answers the HTTP binding beside the pages, for whom the log-in permits.
func TestBinding(t *testing.T) {
	s := start(t, environment("OJS_TOKEN", "secret"), "--storage", "memory", "--binding")
	url := s.url + "ojs/v1"
	if status, a := ask(t, "POST", url+"/jobs", "", `{}`); status != 401 || a["error"] == nil {
		t.Errorf("F025: without the token: %d %v", status, a)
	}
	status, a := ask(t, "POST", url+"/jobs", "secret", `{"type":"email.send","args":["a@b.c"]}`)
	if status != 201 {
		t.Fatalf("F041: %d %v", status, a)
	}
	id := a["job"].(map[string]any)["id"]
	_, a = ask(t, "POST", url+"/workers/fetch", "secret", `{"queues":["default"],"wait_ms":1000}`)
	jobs, _ := a["jobs"].([]any)
	if len(jobs) != 1 || jobs[0].(map[string]any)["id"] != id {
		t.Fatalf("F060: %v", a)
	}
	if status, a := ask(t, "POST", url+"/workers/ack", "secret",
		`{"job_id":"`+id.(string)+`"}`); status != 200 {
		t.Errorf("F066: %d %v", status, a)
	}
	if status, a := ask(t, "GET", s.url+"ojs/manifest", "secret", ""); status != 200 ||
		a["ojs_version"] != "1.0" {
		t.Errorf("F100: %d %v", status, a)
	}
	if status, a := ask(t, "POST", url+"/schemas", "secret",
		`{"uri":"urn:mail","type":"email.send","version":1,"schema":{"type":"object"}}`); status != 201 {
		t.Errorf("F093: %d %v", status, a)
	}
	conn, _, err := websocket.Dial(t.Context(), strings.Replace(url, "http", "ws", 1)+"/ws",
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer secret"}}})
	if err != nil {
		t.Fatalf("F131: %v", err)
	}
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Errorf("F131: %v", err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("x", 70<<10))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("F194: headers of 70 KiB: %d", resp.StatusCode)
	}
}

// The command ends when the engine of the binding does.
func TestBindingEndsWithItsEngine(t *testing.T) {
	st := memory.New()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	pages := closer(func(context.Context) error { return nil })
	_, end, err := withBinding(ctx, stop, st, access{}, slog.New(slog.DiscardHandler),
		ojsprometheus.New(), http.NotFoundHandler(), pages)
	if err != nil {
		t.Fatal(err)
	}
	st.Close()
	if <-ctx.Done(); ctx.Err() != context.Canceled {
		t.Errorf("%v", ctx.Err())
	}
	if err := end(context.Background()); err == nil {
		t.Error("the command ends without an error")
	}
}

// Without a log-in the command warns that every program may do everything (F192).
func TestBindingWarns(t *testing.T) {
	for _, env := range []func(string) string{environment(), environment("OJS_TOKEN", "secret")} {
		s := start(t, env, "--storage", "memory", "--binding")
		s.end()
		if open := env("OJS_TOKEN") == ""; strings.Contains(s.errs.String(), "asks for no log-in") != open ||
			strings.Contains(s.errs.String(), "OJS_TOKEN, or OJS_USER and OJS_PASSWORD") != open {
			t.Errorf("F192: open %t: %s", open, s.errs)
		}
	}
}
