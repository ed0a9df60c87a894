package dashboard

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/memory"
)

// running is a site whose engine runs a job that has saved a checkpoint. It is called in
// a bubble.
func running(t *testing.T, checkpoint any, opts ...Option) (s *site, id string) {
	t.Helper()
	eng, err := engine.New[any](memory.New(), engine.WithName("shop"), engine.WithGracePeriod(0),
		engine.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := New(eng, append([]Option{WithLogger(quiet)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	s = &site{t: t, eng: eng, pages: pages}
	eng.Handle("slow", func(ctx context.Context, _ *ojs.Job[any]) error {
		if err := handler.SaveCheckpoint(ctx, checkpoint); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	id = s.enqueue("slow", nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := pages.Close(); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return s, id
}

// The page of a job has its checkpoint, cut as other payloads, and the whole of it as a
// file.
func TestJobPageHasTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, id := running(t, map[string]any{"row": 4711, "seen": strings.Repeat("x", 2*maxInline)})
		body := s.ok("/jobs/" + id + "/")
		for _, want := range []string{"<h2>Checkpoint</h2>", "4711", "the page shows the beginning",
			`href="./raw/?part=checkpoint"`} {
			if !strings.Contains(body, want) {
				t.Errorf("no %q", want)
			}
		}
		if len(body) > 2*maxInline {
			t.Errorf("a page of %d bytes", len(body))
		}
		raw := s.ok("/jobs/" + id + "/raw/?part=checkpoint")
		if !strings.HasPrefix(raw, `{"row":4711,`) || len(raw) < 2*maxInline {
			t.Errorf("the file has %d bytes", len(raw))
		}
		none := s.enqueue("none", nil)
		if body := s.ok("/jobs/" + none + "/"); strings.Contains(body, "Checkpoint") {
			t.Error("a job without a checkpoint has one")
		}
	})
}

func TestCheckpointIsRedacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hide := func(_ *ojs.JobInfo, part Part, in []byte) []byte {
			if part == PartCheckpoint {
				return []byte(`"gone"`)
			}
			return in
		}
		s, id := running(t, "secret", WithRedact(hide))
		for _, path := range []string{"", "raw/", "raw/?part=checkpoint"} {
			if body := s.ok("/jobs/" + id + "/" + path); strings.Contains(body, "secret") {
				t.Errorf("%s has the secret", path)
			}
		}
		if got := s.ok("/jobs/" + id + "/raw/?part=checkpoint"); got != `"gone"` {
			t.Errorf("the file is %s", got)
		}
	})
}

// A list with active jobs has a column for who holds them, with links to their jobs.
func TestJobsHaveTheWorkerOfActiveJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, id := running(t, 1)
		later := s.enqueue("later", nil, ojs.WithDelay(time.Hour))
		life, err := s.eng.Jobs().Timeline(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		link := `href="../jobs/?q=worker%3A` + life.Worker + `"`
		if body := s.ok("/jobs/"); strings.Count(body, link) != 1 || !strings.Contains(body, later) {
			t.Errorf("the list has no %s:\n%s", link, body)
		}
		if body := s.ok("/jobs/?q=worker:" + life.Worker); !strings.Contains(body, id) {
			t.Error("the link does not lead to the job")
		}
		if body := s.ok("/jobs/?q=state:scheduled"); strings.Contains(body, ">Worker<") {
			t.Error("a list without active jobs has the column")
		}
	})
}

// The page of a unique job leads to the jobs that are equal to it. It does not if the
// redactor changes what makes them so.
func TestEqualJobs(t *testing.T) {
	hide := func(_ *ojs.JobInfo, part Part, b []byte) []byte {
		if part == PartArgs {
			return []byte(`{}`)
		}
		return b
	}
	for want, opts := range map[bool][]Option{true: nil, false: {WithRedact(hide)}} {
		s := newSite(t, opts...)
		unique := ojs.WithUnique(ojs.UniquePolicy{
			Keys: ojs.ByType | ojs.ByArgs, States: []ojs.State{ojs.StateCompleted},
		})
		id := s.enqueue("t", map[string]int{"n": 1}, unique)
		s.enqueue("t", map[string]int{"n": 1}, unique)
		s.enqueue("t", map[string]int{"n": 2}, unique)
		page := s.ok("/jobs/" + id + "/")
		_, link, found := strings.Cut(page, `jobs/?q=fingerprint`)
		if found != want {
			t.Fatalf("a link: %v, want %v", found, want)
		}
		if link, _, _ = strings.Cut(link, `"`); found {
			s.has("/jobs/?q=fingerprint"+link, "2 shown, 3 of 3 scanned")
		}
	}
}

// The page of a job that a pause holds back ends the pause, and tells no times of
// attempts.
func TestJobPageLeadsToTheRemedy(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	ctx := context.Background()
	s.eng.Handle("t", func(context.Context, *ojs.Job[any]) error { return nil })
	at := "/jobs/" + s.enqueue("t", nil, ojs.WithQueue("mail")) + "/"
	s.has(at, "Attempts that may follow")
	if _, err := s.eng.Queues().Pause(ctx, "mail"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.eng.Queues().PauseType(ctx, "t", ""); err != nil {
		t.Fatal(err)
	}
	body := s.has(at, `action="../../queues/mail/"><button class="act" name="do" value="resume"`,
		`action="../../types/t/"><button`, "queue mail is paused")
	if strings.Contains(body, "Attempts that may follow") || strings.Contains(body, "Queues.Resume") {
		t.Errorf("it tells unknown times, or names a method:\n%s", body)
	}
	if err := s.eng.Queues().PauseAll(ctx, ""); err != nil {
		t.Fatal(err)
	}
	s.has(at, `action="../../queues/"><button class="act" name="do" value="resume"`)
}
