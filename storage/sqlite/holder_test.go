//go:build unix && !aix && !solaris

package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/internal/test/upgradetest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

const envHold = "OJS_SQLITE_HOLD"

// holdAsChild is a process that claims every job of a file, those of the queue "far" for
// a worker elsewhere, and holds them.
func holdAsChild() {
	path := os.Getenv(envHold)
	if path == "" {
		return
	}
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path)
	if err == nil {
		_, err = s.Claim(ctx, time.Now(), storage.Claim{Queues: []string{"q"}, Max: 10, Worker: "child"}, nil)
	}
	if err == nil {
		_, err = s.Claim(ctx, time.Now(), storage.Claim{Queues: []string{"far"}, Max: 10, Worker: "far",
			Remote: true}, nil)
	}
	fmt.Println(err)
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	os.Exit(0) // without a word
}

// hold starts a process that holds the jobs of a file, and returns what kills it.
func hold(t *testing.T, path string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envHold+"="+path)
	_, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "<nil>\n" {
		t.Fatalf("the child: %q, %v", line, err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	return kill
}

// live returns the lock files beside a database.
func live(t *testing.T, path string) []string {
	t.Helper()
	names, err := filepath.Glob(path + "-live-*")
	must(t, err)
	return names
}

func far(n int) storage.Record {
	r := record(n)
	r.Queue = "far"
	return r
}

// stalled returns what is handed over now.
func stalled(t *testing.T, s storage.Storage) (ids []string) {
	t.Helper()
	d, err := s.Due(t.Context(), time.Now(), 10, nil)
	must(t, err)
	for _, r := range d.Stalled {
		ids = append(ids, r.ID)
	}
	return ids
}

// The attempts of a process that has been killed are handed over long before their leases
// end, once, as lost leases.
func TestKilledHolder(t *testing.T) {
	t.Run("file opened again", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jobs.db")
		s := reopen(t, path)
		must(t, insert(s, record(1), record(2), far(3)))
		must(t, s.Close())
		kill := hold(t, path)
		s = reopen(t, path)
		if ids := stalled(t, s); len(ids) > 0 {
			t.Fatalf("jobs of a living process are handed over: %v", ids)
		}
		must(t, s.Close())
		kill()
		s = reopen(t, path)
		defer s.Close()
		if ids := stalled(t, s); len(ids) != 2 {
			t.Errorf("%v are handed over, not the two jobs of the process", ids)
		}
		if ids := stalled(t, s); len(ids) > 0 {
			t.Errorf("%v are handed over twice", ids)
		}
		if names := live(t, path); len(names) != 1 {
			t.Errorf("lock files of one storage: %v", names)
		}
	})
	t.Run("another process has it open", func(t *testing.T) {
		one := fresh(t, sqlite.WithPoll(time.Millisecond))
		path := file(t, one)
		other, err := sqlite.Open(t.Context(), path, sqlite.WithPoll(time.Millisecond))
		must(t, err)
		defer other.Close()
		must(t, insert(one, record(1), record(2), far(3)))
		kill := hold(t, path)
		news := make(chan storage.Notice, 1000)
		stop := one.Notify(t, func(n storage.Notice) {
			select {
			case news <- n:
			default:
			}
		})
		defer stop()
		kill()
		var ids []string
		for len(ids) < 2 {
			select {
			case <-news:
				ids = append(ids, stalled(t, one)...)
				ids = append(ids, stalled(t, other)...)
			case <-time.After(time.Minute):
				t.Fatalf("%v have been handed over", ids)
			}
		}
		if len(ids) != 2 || ids[0] == ids[1] {
			t.Errorf("handed over: %v", ids)
		}
		if r, err := one.Get(t.Context(), record(3).ID); err != nil || r.State != ojs.StateActive {
			t.Errorf("the job of a worker elsewhere: %v, %v", r.State, err)
		}
	})
	t.Run("nothing is written since it was opened", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jobs.db")
		s := reopen(t, path)
		must(t, insert(s, record(1), record(2)))
		must(t, s.Close())
		kill := hold(t, path)
		late, err := sqlite.Open(t.Context(), path, sqlite.WithPoll(time.Millisecond))
		must(t, err)
		defer late.Close()
		due := make(chan struct{}, 1)
		defer late.Notify(t, func(storage.Notice) {
			select {
			case due <- struct{}{}:
			default:
			}
		})()
		kill()
		select {
		case <-due:
		case <-time.After(30 * time.Second): // their leases are longer
		}
		if ids := stalled(t, late); len(ids) != 2 {
			t.Errorf("%v are handed over, not the two jobs of the process", ids)
		}
	})
	t.Run("handed over, and killed again", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jobs.db")
		s := reopen(t, path)
		must(t, insert(s, record(1)))
		kill := hold(t, path)
		kill()
		pace.Until(t, "the job is handed over", func() bool { return len(stalled(t, s)) > 0 })
		must(t, s.Close()) // not a death: what goes on in this process may still end well
		s = reopen(t, path)
		defer s.Close()
		if ids := stalled(t, s); len(ids) > 0 {
			t.Errorf("a closed storage counts as dead: %v", ids)
		}
	})
}

// An engine that runs beside a process which is killed takes over its job as a failed
// attempt.
func TestKilledHolderEngine(t *testing.T) {
	s := fresh(t, sqlite.WithPoll(time.Millisecond))
	job := record(1)
	job.MaxAttempts, job.Lease = 3, time.Hour
	job.Retry = ojs.RetryPolicy{MaxAttempts: 3, InitialInterval: time.Millisecond, BackoffCoefficient: 1,
		MaxInterval: time.Second}
	must(t, insert(s, job))
	kill := hold(t, file(t, s))
	eng, err := engine.New[any](s)
	must(t, err)
	ran := make(chan int, 1)
	eng.Handle("x", func(_ context.Context, job *ojs.Job[any]) error {
		ran <- job.Attempt
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	kill()
	select {
	case attempt := <-ran:
		if attempt != 2 {
			t.Errorf("attempt %d and not 2", attempt)
		}
	case <-time.After(time.Minute):
		t.Error("the job waits for its lease")
	}
	stop()
	must(t, <-ended)
	got, err := eng.Get(t.Context(), job.ID)
	must(t, err)
	const why = "the process that held the job has ended"
	if len(got.Errors) != 1 || !strings.Contains(got.Errors[0].Message, why) ||
		strings.Contains(got.Errors[0].Message, "lease") {
		t.Errorf("the error blames something else: %+v", got.Errors)
	}
}

// A claim whose holder is not known to be dead waits for its lease: a copy of the file
// has no locks beside it.
func TestHolderOfCopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := reopen(t, path)
	must(t, insert(s, record(1)))
	must(t, s.Close())
	kill := hold(t, path)
	must(t, sqlite.Exec(path, "PRAGMA wal_checkpoint(TRUNCATE)"))
	content, err := os.ReadFile(path)
	must(t, err)
	kill()
	elsewhere := filepath.Join(t.TempDir(), "jobs.db")
	must(t, os.WriteFile(elsewhere, content, 0o600))
	s = reopen(t, elsewhere)
	defer s.Close()
	if ids := stalled(t, s); len(ids) > 0 {
		t.Errorf("jobs of a copy are handed over: %v", ids)
	}
	if r, err := s.Get(t.Context(), record(1).ID); err != nil || r.State != ojs.StateActive {
		t.Fatalf("the job of the copy: %v, %v", r.State, err)
	}
}

// The active jobs of a process of an older version come due too when it is found dead.
func TestKilledHolderOfOlderVersion(t *testing.T) {
	script, err := os.ReadFile("testdata/version16.sql")
	must(t, err)
	path := filepath.Join(t.TempDir(), "jobs.db")
	must(t, sqlite.Old(path, 16, string(script)+"; INSERT INTO holder VALUES (7, 'DEAD'), (8, 'GONE');"+
		"UPDATE job SET holder = iif(queue = 'fair', 7, 8) WHERE state = 4 AND queue IN ('fair', 'bound')"))
	must(t, os.WriteFile(path+"-live-DEAD", nil, 0o600))
	s := reopen(t, path)
	defer s.Close()
	d, err := s.Due(t.Context(), upgradetest.Begin, 100, nil)
	must(t, err)
	for _, r := range d.Stalled {
		if r.Queue != "fair" {
			t.Errorf("a job of the queue %s", r.Queue)
		}
	}
	if len(d.Ended) != 3 || len(d.Stalled) != 3 {
		t.Errorf("%d jobs are handed over, of which %v are of a dead process", len(d.Stalled), d.Ended)
	}
	if names := live(t, path); len(names) != 1 {
		t.Errorf("lock files of one storage: %v", names)
	}
}

// Lock files go with their owners, whichever way these end, and one that cannot be made
// is done without.
func TestHolderFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "jobs.db")
	s := reopen(t, path)
	if names := live(t, path); len(names) != 1 {
		t.Errorf("one storage has %v", names)
	}
	must(t, os.WriteFile(path+"-live-STRAY", nil, 0o600))
	must(t, reopen(t, path).Close())
	if names := live(t, path); len(names) != 1 || strings.HasSuffix(names[0], "STRAY") {
		t.Errorf("after a second one: %v", names)
	}
	must(t, s.Close())
	if names := live(t, path); len(names) != 0 {
		t.Errorf("closed: %v", names)
	}
	for range 3 {
		hold(t, path)()
	}
	s = reopen(t, path)
	if names := live(t, path); len(names) != 1 {
		t.Errorf("after three that were killed: %v", names)
	}
	must(t, s.Close())
}

// Through another name of the file, and from another directory, holders are the same.
func TestHolderNames(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "jobs.db")
	s := reopen(t, path)
	must(t, insert(s, record(1)))
	must(t, s.Close())
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("this system has no symbolic links")
	}
	hold(t, path)()
	s = reopen(t, link)
	defer s.Close()
	if ids := stalled(t, s); len(ids) != 1 {
		t.Errorf("%v are handed over", ids)
	}
}
