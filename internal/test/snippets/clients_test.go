package snippets

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage/memory"
)

// The clients in docs/server.md run a job against a server, as far as their languages are
// installed.
func TestClients(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	eng, err := engine.New[any](memory.New(), append(server.EngineOptions(),
		engine.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(eng)
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(srv)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	stopped := make(chan error, 1)
	go func() { stopped <- eng.Run(ctx) }()
	t.Cleanup(func() {
		if err := srv.Close(context.Background()); err != nil {
			t.Error(err)
		}
		ts.Close()
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	for language, client := range map[string]struct {
		queue   string
		command []string
	}{
		"sh":     {"shell", []string{"bash", "-euc"}},
		"js":     {"js", []string{"node", "--input-type=module", "-e"}},
		"python": {"py", []string{"python3", "-c"}},
	} {
		t.Run(language, func(t *testing.T) {
			program, err := exec.LookPath(client.command[0])
			if err != nil {
				t.Skip(err)
			}
			if language == "sh" {
				if _, err := exec.LookPath("curl"); err != nil {
					t.Skip(err)
				}
			}
			var code string
			for _, m := range fence.FindAllStringSubmatch(string(page), -1) {
				if m[3] == language && strings.Contains(m[4], "localhost:8080/ojs") {
					code = strings.ReplaceAll(m[4], "localhost:8080", strings.TrimPrefix(ts.URL, "http://"))
				}
			}
			if code == "" {
				t.Fatal("the page has no client")
			}
			ended := eng.Subscribe(engine.EventFilter{Queues: []string{client.queue},
				Types: []event.Type{event.Completed, event.Failed}})
			defer ended.Close()
			running, kill := context.WithCancel(ctx)
			cmd := exec.CommandContext(running, program, append(client.command[1:], code)...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = cmd.Stdout
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			said := make(chan string, 1)
			go func() {
				var b strings.Builder
				buf := make([]byte, 4096)
				for {
					n, err := out.Read(buf)
					b.Write(buf[:n])
					if err != nil {
						said <- b.String()
						return
					}
				}
			}()
			var job *ojs.JobInfo
			select {
			case ev := <-ended.C():
				job = ev.Job
			case <-time.After(20 * time.Second):
			}
			kill()
			text := <-said
			_ = cmd.Wait() // it is killed
			if job == nil || job.State != ojs.StateCompleted || !strings.Contains(string(job.Result),
				"sent") {
				t.Errorf("%+v\n%s", job, text)
			}
		})
	}
}
