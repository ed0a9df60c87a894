package dashboard

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// clocked is a storage with a clock of its own.
type clocked struct {
	storage.Storage
	ahead time.Duration
}

func (c clocked) ClockOffset() time.Duration { return c.ahead }

// bare hides the optional abilities of a storage.
type bare struct{ storage.Storage }

// onto serves an engine on a storage.
func onto(t *testing.T, st storage.Storage, opts ...engine.Option) *site {
	t.Helper()
	eng, err := engine.New[any](st, append(opts, engine.WithLogger(quiet))...)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := New(eng, WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pages.Close() })
	return &site{t: t, eng: eng, pages: pages}
}

func (s *site) has(path string, texts ...string) (body string) {
	s.t.Helper()
	body = s.ok(path)
	for _, text := range texts {
		if !strings.Contains(body, text) {
			s.t.Errorf("%s lacks %q:\n%s", path, text, body)
		}
	}
	return body
}

// The page System tells the clock of the storage and the retention.
func TestSystem(t *testing.T) {
	onto(t, bare{memory.New()}).has("/system/", "each process goes by its own clock")
	onto(t, clocked{memory.New(), 0}).has("/system/", "as far as can be measured")
	onto(t, clocked{memory.New(), 2 * time.Second}).has("/system/", "2s ahead of the clock")
	onto(t, clocked{memory.New(), -time.Second}).has("/system/", "1s behind the clock")

	none := engine.WithRetention(engine.Retention{MaxFinished: -1, Completed: 90 * time.Minute})
	newSiteOn(t, []engine.Option{none}).has("/system/", "1h 30m", "no limit", "180d", "10,000")
}

// The page has what the engine goes by, unless the engine never runs, and what its
// storage can do.
func TestSystemHasTheSettings(t *testing.T) {
	s := newSiteOn(t, []engine.Option{engine.WithConcurrency(17),
		engine.WithQueueConfig("mail", engine.QueueConfig{}), engine.WithCodec(codec.Gzip()),
		engine.WithJobLogs(slog.LevelWarn),
		engine.WithReports(engine.Reports{Every: 7 * time.Second})})
	s.has("/system/", "<h2>Settings</h2>", "<dd>17</dd>",
		`<a href="../queues/mail/">mail</a>`, codec.Gzip().Encoding(), "kept from level WARN on", "every 7s",
		"<dt>New jobs</dt><dd>start in a later step</dd>")
	visitor := newSite(t, WithoutRunning())
	body := visitor.ok("/system/")
	if strings.Contains(body, "<h2>Settings</h2>") || !strings.Contains(body, "<dt>New jobs</dt>") {
		t.Error(body)
	}
}
