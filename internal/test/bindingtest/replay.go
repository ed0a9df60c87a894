// Package bindingtest replays the golden requests of package server on other storages.
// Package server writes the files, in the directory golden, with its own tests over
// memory. A file has requests, whose lines begin with "> ", steps of the clock, which
// begin with "@ ", and answers.
//
// A storage may draw other ids than memory does. An id of an answer that differs from
// the file's stands for it from then on.
package bindingtest

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage"
)

//go:embed golden
var files embed.FS

// short are the files of a short pass: those whose server has no options, and whose
// answers are the same on each storage.
var short = []string{"enqueue", "workers", "settle", "deadletters", "queues", "cron", "forms",
	"workflow_chain", "workflow_batch", "workflow_graph", "workflow_nested", "bulk_operations",
	"rate_limits", "queue_limits"}

// Replay runs a short pass on storages that open makes, one for each file.
func Replay(t *testing.T, open func(testing.TB) storage.Storage) {
	for _, name := range short {
		t.Run(name, func(t *testing.T) {
			data, err := files.ReadFile("golden/" + name + ".golden")
			if err != nil {
				t.Fatal(err)
			}
			eng := enginetest.NewOn[any](t, open(t),
				append(server.EngineOptions(), engine.WithLogger(slog.New(slog.DiscardHandler)))...)
			srv, err := server.New(eng, server.WithClock(clock.NewMock()))
			if err != nil {
				t.Fatal(err)
			}
			defer srv.Close(t.Context())
			r := replay{t: t, name: name, ids: make(map[string]string)}
			for _, step := range r.steps(data) {
				if step.pause > 0 {
					eng.Advance(step.pause)
					continue
				}
				r.run(srv, step)
			}
		})
	}
}

// step is a request with its answer, or a step of the clock.
type step struct {
	line    int // of the file
	pause   time.Duration
	request string
	status  int
	answer  string // JSON, "" without a body
}

type replay struct {
	t    *testing.T
	name string
	ids  map[string]string // of the file, here
	n    int
}

func (r *replay) steps(data []byte) (list []step) {
	var at *step
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "@ "):
			d, err := time.ParseDuration(line[2:])
			if err != nil {
				r.t.Fatal(err)
			}
			list, at = append(list, step{line: n, pause: d}), nil
		case strings.HasPrefix(line, ">"):
			if at == nil || at.status != 0 {
				list = append(list, step{line: n})
				at = &list[len(list)-1]
			}
			at.request += strings.TrimPrefix(line[1:], " ") + "\n"
		case strings.HasPrefix(line, "< "):
			if _, err := fmt.Sscan(line[2:], &at.status); err != nil {
				r.t.Fatalf("%s:%d: %v", r.name, n, err)
			}
		case at != nil:
			at.answer += line + "\n"
		}
	}
	return list
}

// id is a UUID, or a cursor.
var id = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$`)

func (r *replay) run(srv *server.Server, st step) {
	r.t.Helper()
	text := st.request
	for from, to := range r.ids {
		text = strings.ReplaceAll(text, from, to)
	}
	req := Request(text)
	r.n++
	req.Header.Set("X-Request-Id", fmt.Sprintf("r%d", r.n))
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, req)
	if w.Code != st.status {
		r.t.Fatalf("%s:%d: status %d, not %d: %s", r.name, st.line, w.Code, st.status, w.Body)
	}
	if strings.TrimSpace(st.answer) == "" {
		return
	}
	var want, got any
	if json.Unmarshal([]byte(st.answer), &want) != nil || json.Unmarshal(w.Body.Bytes(), &got) != nil {
		r.t.Fatalf("%s:%d: no JSON: %s", r.name, st.line, w.Body)
	}
	if diff := r.differ("", want, got); diff != "" {
		r.t.Fatalf("%s:%d: %s\n%s\nanswered %s", r.name, st.line, diff, text, w.Body)
	}
}

// differ says where an answer differs from the file's, "" if nowhere.
func (r *replay) differ(path string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok || len(got) != len(want) {
			return fmt.Sprintf("%s has other members: %v", path, got)
		}
		for name := range want {
			if diff := r.differ(path+"."+name, want[name], got[name]); diff != "" {
				return diff
			}
		}
		return ""
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return fmt.Sprintf("%s has other elements: %v", path, got)
		}
		for i := range want {
			if diff := r.differ(fmt.Sprintf("%s[%d]", path, i), want[i], got[i]); diff != "" {
				return diff
			}
		}
		return ""
	case string:
		got, _ := got.(string)
		if got != want && (id.MatchString(want) && id.MatchString(got) || strings.HasSuffix(path,
			".next_cursor")) {
			if r.ids[want] == "" {
				r.ids[want] = got
			}
			want = r.ids[want]
		}
		for from, to := range r.ids { // a message names an id
			want = strings.ReplaceAll(want, from, to)
		}
		if got != want {
			return fmt.Sprintf("%s is %q, not %q", path, got, want)
		}
		return ""
	}
	if a, b := fmt.Sprint(want), fmt.Sprint(got); a != b {
		return fmt.Sprintf("%s is %s, not %s", path, b, a)
	}
	return ""
}
