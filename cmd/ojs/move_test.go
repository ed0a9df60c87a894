package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// dying is a storage that kills its process in the call of a number.
type dying struct {
	storage.Storage
	calls int
}

func (d *dying) count() {
	if d.calls--; d.calls == 0 {
		if self, err := os.FindProcess(os.Getpid()); err != nil || self.Kill() == nil {
			select {}
		}
	}
}

func (d *dying) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	d.count()
	return d.Storage.List(ctx, q)
}

func (d *dying) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	d.count()
	return d.Storage.Insert(ctx, now, batch, dst)
}

func (d *dying) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	d.count()
	return d.Storage.Settle(ctx, now, changes, dst)
}

// asCommand is the variable that has a process of the tests be the command. Its value is
// the number of the call that kills it; 0: none does.
const asCommand = "OJS_TEST_COMMAND"

// beCommand runs the command.
func beCommand() int {
	ctx := context.Background()
	p := program{env: os.Getenv, in: os.Stdin, out: os.Stdout, errs: os.Stderr, clock: clock.New()}
	calls, err := strconv.Atoi(os.Getenv(asCommand))
	if err == nil && calls == 0 {
		main()
	}
	var st storage.Storage
	if err == nil {
		st, _, err = p.open(ctx, os.Getenv("OJS_STORAGE"), "")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	p.storage = &dying{st, calls}
	return p.run(ctx, os.Args[1:])
}

// process runs the command in a process of its own, which the call of a number kills.
func process(t *testing.T, address string, calls int, args ...string) string {
	t.Helper()
	begin := time.Now()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "OJS_STORAGE="+address, asCommand+"="+strconv.Itoa(calls))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	killed := errors.As(err, &exit) && exit.ExitCode() == -1 && len(out) == 0
	if killed != (calls > 0) || err != nil && !killed {
		t.Fatalf("ojs %s: %v: %s", strings.Join(args, " "), err, out)
	}
	t.Logf("ojs %s: %v, killed: %v", args[0], time.Since(begin).Round(time.Second/100), killed)
	return string(out)
}

// An export and an import between SQLite and PostgreSQL lose nothing if each is killed in
// the middle. OJS_MOVE sets the number of jobs:
//
//	OJS_MOVE=1000000 go test -run TestMove -v -timeout 2h ./cmd/ojs
func TestMove(t *testing.T) {
	n := 3000
	if text := os.Getenv("OJS_MOVE"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, way := range [][2]kind{{onSQLite, onPostgres}, {onPostgres, onSQLite}} {
		t.Run(string(way[0])+"-"+string(way[1]), func(t *testing.T) {
			from, to := newShell(t, way[0], false), newShell(t, way[1], false)
			from.shop.many(n)
			from.run("ojs queues pause --all")
			file := filepath.Join(t.TempDir(), "jobs.export")
			process(t, from.address, max(2, n/2000), "export", file)
			if out := process(t, from.address, 0, "export", file); !strings.Contains(out,
				counted(n, "job")+" exported") {
				t.Error(out)
			}
			process(t, to.address, max(2, n/500), "import", file)
			process(t, to.address, 3, "import", file)
			if out := process(t, to.address, 0, "import", file); !strings.Contains(out, "imported") {
				t.Error(out)
			}
			samePages(t, from.shop.st, to.shop.st, n)
		})
	}
}

// many fills a storage with n jobs, of which a third has run.
func (s *shop) many(n int) {
	s.t.Helper()
	ctx := context.Background()
	random := rand.New(rand.NewPCG(3, 3))
	s.at(time.Hour)
	for left := n; left > 0; {
		drafts := make([]ojs.Draft, min(left, 1000))
		left -= len(drafts)
		for i := range drafts {
			opts := []ojs.Option{ojs.WithQueue([]string{"mail", "media", "billing"}[random.IntN(3)]),
				ojs.WithPriority(random.IntN(3))}
			if random.IntN(10) == 0 {
				opts = append(opts, ojs.WithScheduledAt(noon.Add(time.Hour)))
			}
			drafts[i] = ojs.NewDraft("email.send", map[string]any{"to": random.IntN(1e6)}, opts...)
		}
		_, err := s.eng.EnqueueMany(ctx, drafts...)
		s.must(err)
		recs, err := s.st.Claim(ctx, s.clock.Now(), storage.Claim{Max: len(drafts) / 3, Worker: "w"}, nil)
		s.must(err)
		changes := make([]storage.Change, len(recs))
		for i, rec := range recs {
			to := []ojs.State{ojs.StateCompleted, ojs.StateDiscarded, ojs.StateRetryable}[i%3]
			rec = ended(rec, s.clock.Now(), to, "odd", "so")
			changes[i] = storage.Change{Record: rec, AttemptFieldsOnly: true}
		}
		_, err = s.st.Settle(ctx, s.clock.Now(), changes, nil)
		s.must(err)
	}
}

// samePages compares the records of two storages, in the order of their insertion.
func samePages(t *testing.T, a, b storage.Storage, n int) {
	t.Helper()
	var from, to storage.Query
	for seen := 0; ; {
		want, err := a.List(context.Background(), from)
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.List(context.Background(), to)
		if err != nil {
			t.Fatal(err)
		}
		if len(want.Records) != len(got.Records) {
			t.Fatalf("%d jobs and %d after %d", len(want.Records), len(got.Records), seen)
		}
		for i := range want.Records {
			x, y := &want.Records[i], &got.Records[i]
			x.Version, y.Version = 0, 0
			if x, y := encoded(t, x), encoded(t, y); x != y {
				t.Fatalf("job %d\n%s\nis not\n%s", seen+i, y, x)
			}
		}
		seen += len(want.Records)
		if from.Cursor, to.Cursor = want.Next, got.Next; from.Cursor == "" {
			if seen != n {
				t.Errorf("%d jobs, want %d", seen, n)
			}
			return
		}
	}
}
