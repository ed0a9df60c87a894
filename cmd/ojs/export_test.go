package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/codec"
)

// killed is a storage whose calls fail after some changes, as if the process had ended.
// The first that fails is made before, if late is set: its acknowledgement is lost.
type killed struct {
	storage.Storage
	after int
	late  bool
}

var errKilled = errors.New("killed")

// die reports whether a call fails, and makes it before if that is late.
func (k *killed) die(call func() error) bool {
	if k.after--; k.after == -1 && k.late {
		_ = call()
	}
	return k.after < 0
}

func (k *killed) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	if q.Limit = 7; k.die(func() error { return nil }) {
		return storage.Page{}, errKilled
	}
	return k.Storage.List(ctx, q)
}

func (k *killed) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) (list []storage.Inserted, err error) {
	call := func() error {
		list, err = k.Storage.Insert(ctx, now, batch, dst)
		return err
	}
	if k.die(call) {
		return nil, errKilled
	}
	return list, call()
}

func (k *killed) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) (list []storage.Settled, err error) {
	call := func() error {
		list, err = k.Storage.Settle(ctx, now, changes, dst)
		return err
	}
	if k.die(call) {
		return nil, errKilled
	}
	return list, call()
}

func (k *killed) PutDocuments(ctx context.Context, kind storage.Kind,
	documents []storage.Document) (versions []uint64, err error) {
	call := func() error {
		versions, err = k.Storage.PutDocuments(ctx, kind, documents)
		return err
	}
	if k.die(call) {
		return nil, errKilled
	}
	return versions, call()
}

func (k *killed) SetQueueState(
	ctx context.Context, queue string, to ojs.QueueState,
) (was ojs.QueueState, err error) {
	call := func() error {
		was, err = k.Storage.SetQueueState(ctx, queue, to)
		return err
	}
	if k.die(call) {
		return was, errKilled
	}
	return was, call()
}

// everything are the records of a storage in the order of their insertion, with what
// storages count and round left out.
func everything(t *testing.T, st storage.Storage) (list []storage.Record) {
	t.Helper()
	var q storage.Query
	for {
		page, err := st.List(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range page.Records {
			rec.Version = 0
			list = append(list, rec)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return list
		}
	}
}

func encoded(t *testing.T, rec *storage.Record) string {
	t.Helper()
	b, err := codec.EncodeRecord(rec)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// An export and an import between two storages lose nothing, also if both are killed
// after any of their calls and run again. No engine on the target gets a job before the
// end of the import.
func TestExportImport(t *testing.T) {
	importBatch = 5
	t.Cleanup(func() { importBatch = 500 })
	for _, way := range [][2]kind{{onMemory, onSQLite}, {onSQLite, onPostgres}, {onPostgres, onMemory}} {
		t.Run(string(way[0])+"-"+string(way[1]), func(t *testing.T) {
			from, to := newShell(t, way[0], true), newShell(t, way[1], false)
			ctx := context.Background()
			from.shop.enqueue("cart.expire", 1, ojs.WithUnique(ojs.UniquePolicy{}), ojs.WithTTL(time.Hour))
			from.shop.enqueue("cart.expire", 2, ojs.WithPending())
			from.shop.enqueue("cart.expire", 3, ojs.WithRateLimit(ojs.RateLimit{Key: "k", Concurrency: 1}))
			rec := from.shop.claim("w", "cart.expire")
			rec.Errors, rec.History = nil, []ojs.Note{{At: noon, What: ojs.NoteEdited, By: "ada",
				Text: "args"}}
			rec.Checkpoint = []byte(`{"n":1}`)
			from.shop.end(rec, 0, ojs.StateRetryable, "odd", "so")
			for n := range 4 {
				from.shop.enqueue("cart.order", n, ojs.WithOrderingKey("k"))
				from.shop.enqueue("cart.count", n, ojs.WithOrderingKey("l"),
					ojs.WithScheduledAt(noon.Add(time.Hour)))
			}
			from.shop.end(from.shop.claim("w", "cart.order"), 0, ojs.StateCompleted, "", "")
			from.shop.end(from.shop.claim("w", "cart.order"), 0, ojs.StateRetryable, "odd", "so")
			file := filepath.Join(t.TempDir(), "jobs.export")
			if out := from.run("ojs export " + file); !strings.Contains(out, "not everything is paused") {
				t.Fatal(out)
			}
			from.run("ojs queues pause --all")
			if out := from.run("ojs export " + file); !strings.Contains(out, "1 job is active") {
				t.Fatal(out)
			}
			for _, rec := range everything(t, from.shop.st) {
				if rec.State == ojs.StateActive {
					got, err := from.shop.st.Get(ctx, rec.ID)
					from.shop.must(err)
					from.shop.end(got, 0, ojs.StateCompleted, "", "")
				}
			}
			from.shop.clock.Set(noon)
			views := []string{"ojs queues", "ojs limits", "ojs cron", "ojs failures", "ojs jobs",
				"ojs jobs order:claim"}
			shown := make(map[string]string)
			for _, view := range views {
				shown[view] = from.run(view)
			}
			repeat := func(sh *shell, command string, between func()) {
				t.Helper()
				whole := sh.shop.st
				for after := 0; ; after++ {
					if after > 250 {
						t.Fatalf("%s does not come to an end", command)
					}
					sh.shop.st = &killed{whole, after / 2, after%2 == 1}
					out := sh.run(command)
					between()
					if !strings.Contains(out, "killed") {
						if strings.Contains(out, "exit code") {
							t.Fatal(out)
						}
						break
					}
				}
				sh.shop.st = whole
			}
			repeat(from, "ojs export "+file, func() {
				if text, err := os.ReadFile(file); err == nil && !strings.Contains(string(text), `"end":`) {
					from.shop.must(os.WriteFile(file, append(text, `{"job":"half`...), 0o600))
				}
			})
			if out := from.run("ojs export " + file); !strings.Contains(out, "is a complete export") {
				t.Error(out)
			}
			target := to.shop.st
			repeat(to, "ojs import "+file, func() {
				done, _, err := document.Of(target).Value(ctx, noon, "import/"+idOf(t, file))
				if err != nil || len(done.Data) > 0 {
					return
				}
				jobs, err := target.Claim(ctx, noon, storage.Claim{Max: 1, Worker: "early"}, nil)
				if err != nil || len(jobs) > 0 {
					t.Fatal("claimed before the end", jobs, err)
				}
				for _, rec := range everything(t, target) {
					open := rec.Meta[markImport] != nil
					if open && rec.State != ojs.StatePending && rec.Queue != queueImport {
						t.Fatalf("a job that is not complete is %s in queue %s", rec.State, rec.Queue)
					}
				}
			})
			want, got := everything(t, from.shop.st), everything(t, to.shop.st)
			if len(want) != len(got) {
				t.Fatalf("%d jobs, want %d", len(got), len(want))
			}
			for i := range want {
				if a, b := encoded(t, &want[i]), encoded(t, &got[i]); a != b {
					t.Errorf("job %d\n%s\nis not\n%s", i, b, a)
				}
			}
			for _, view := range views {
				if a, b := shown[view], to.run(view); strings.Split(a, "everything")[0] != b {
					t.Errorf("%s:\n%s\nis not\n%s", view, b, a)
				}
			}
			const inLine = "ojs jobs --count type:cart.order state:pending"
			if n := to.run(inLine); n != "2\n" {
				t.Error(n)
			}
			to.run("ojs cancel -y type:cart.order state:retryable") // gives the turn to the next
			if n := to.run(inLine); n != "1\n" {
				t.Error(n)
			}
			if out := to.run("ojs import " + file); !strings.Contains(out, "the export is imported") ||
				!strings.Contains(out, "[exit code 4]") {
				t.Error(out)
			}
		})
	}
}

// idOf is the id of an export.
func idOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "\n")
	var l exportLine
	if err := json.Unmarshal([]byte(head), &l); err != nil {
		t.Fatal(err)
	}
	return l.Head.ID
}

// during is a storage that something happens to while its jobs are listed for an export.
type during struct {
	storage.Storage
	happens func(st storage.Storage)
}

func (d *during) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	page, err := d.Storage.List(ctx, q)
	if len(q.States) == 0 {
		d.happens(d.Storage)
	}
	return page, err
}

// An export ends only if no job has run during it.
func TestExportFence(t *testing.T) {
	ctx := context.Background()
	for name, tc := range map[string]struct {
		happens func(sh *shell, st storage.Storage)
		says    string
	}{
		"an engine has not heard of the pause": {func(sh *shell, st storage.Storage) {
			jobs, err := st.Claim(ctx, noon, storage.Claim{Max: 1, Worker: "late"}, nil)
			if err != nil || len(jobs) > 0 {
				t.Error("claimed during the export", err)
			}
		}, "1 job exported"},
		"a new queue": {func(sh *shell, st storage.Storage) {
			sh.shop.enqueue("cart.expire", nil, ojs.WithQueue("new"))
		}, "may have run during the export"},
		"resumed and paused": {func(sh *shell, st storage.Storage) {
			sh.shop.clock.Add(time.Second)
			sh.run("ojs queues resume --all")
			sh.run("ojs queues pause --all")
		}, "may have run during the export"},
		"resumed": {func(sh *shell, st storage.Storage) {
			sh.run("ojs queues resume --all")
		}, "not everything is paused"},
		"resumed and run": {func(sh *shell, st storage.Storage) {
			sh.run("ojs queues resume default")
			sh.shop.claim("w", "cart.expire")
		}, "1 job is active"},
	} {
		t.Run(name, func(t *testing.T) {
			sh := newShell(t, onMemory, false)
			sh.shop.enqueue("cart.expire", nil)
			sh.run("ojs queues pause --all")
			st, first := sh.shop.st, true
			sh.shop.st = &during{st, func(st storage.Storage) {
				if first {
					first = false
					tc.happens(sh, st)
				}
			}}
			file := filepath.Join(t.TempDir(), "x")
			if out := sh.run("ojs export " + file); !strings.Contains(out, tc.says) {
				t.Error(out)
			}
		})
	}
}

// A file is continued only if everything has been paused since it was begun.
func TestExportContinues(t *testing.T) {
	sh := newShell(t, onMemory, true)
	for _, rec := range everything(t, sh.shop.st) {
		if rec.State == ojs.StateActive {
			got, err := sh.shop.st.Get(context.Background(), rec.ID)
			sh.shop.must(err)
			sh.shop.end(got, 0, ojs.StateCompleted, "", "")
		}
	}
	sh.shop.clock.Set(noon)
	sh.run("ojs queues pause --all")
	whole, file := sh.shop.st, filepath.Join(t.TempDir(), "x")
	sh.shop.st = &killed{whole, 6 + 2, false} // the queues, and a page
	if out := sh.run("ojs export --skip-waiting " + file); !strings.Contains(out, "killed") {
		t.Fatal(out)
	}
	sh.shop.st = whole
	sh.shop.clock.Add(time.Second)
	sh.run("ojs queues resume --all")
	sh.run("ojs queues pause --all")
	if out := sh.run("ojs export --skip-waiting " + file); !strings.Contains(out, "jobs may have run since") {
		t.Error(out)
	}
	// A queue that is new has had no pause: the file may have a job that has run.
	file += "y"
	sh.shop.st = &killed{whole, 6 + 2, false}
	sh.run("ojs export --skip-waiting " + file)
	sh.shop.st = whole
	sh.shop.enqueue("cart.expire", nil, ojs.WithQueue("new"))
	for _, says := range []string{"may have run during the export", "jobs exported"} {
		if out := sh.run("ojs export --skip-waiting " + file); !strings.Contains(out, says) {
			t.Error(out)
		}
	}
}

// A file that is no export is left as it is, and one that is not complete is refused.
func TestExportFiles(t *testing.T) {
	sh := newShell(t, onMemory, false)
	sh.run("ojs queues pause --all")
	file := filepath.Join(t.TempDir(), "notes.txt")
	for _, text := range []string{"my notes\n", "my notes", `{"job":"mine"}` + "\n", "{}\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := sh.run("ojs export " + file); !strings.Contains(out, "is no export") {
			t.Error(out)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != text {
			t.Error(string(b), err)
		}
	}
	begun := `{"ojs_export":{"version":1,"source":"other.db"}}` + "\n" + `{"next":{"jobs":7,"cursor":"x"}}` +
		"\n{"
	if err := os.WriteFile(file, []byte(begun), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := sh.run("ojs export " + file); !strings.Contains(out, "is an export of other.db") {
		t.Error(out)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != begun {
		t.Error(string(b), err)
	}
	if err := os.WriteFile(file, []byte("my notes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := sh.run("ojs import " + file); !strings.Contains(out, "line 1 is no line of an export") {
		t.Error(out)
	}
	if out := sh.run("ojs export | ojs import"); !strings.HasPrefix(out, "0 jobs imported") {
		t.Error(out)
	}
	for lines, says := range map[string]string{"": "not complete",
		`{"end":{"jobs":7}}` + "\n": "has 0 jobs and not the 7 of its end"} {
		text := `{"ojs_export":{"version":1,"id":"x"}}` + "\n" + lines
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := sh.run("ojs import " + file); !strings.Contains(out, says) {
			t.Error(out)
		}
	}
	id := sh.shop.enqueue("cart.expire", 1)
	sh.shop.enqueue("cart.expire", 2, ojs.WithDependsOn(id), ojs.WithOrderingKey("k"))
	file += ".none"
	if out := sh.run("ojs export " + file); !strings.Contains(out, "wait for others: 1; a storage counts") ||
		!strings.Contains(out, "[exit code 4]") {
		t.Error(out)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a refused export has made the file")
	}
}

// A job of an ordering key that has jobs in the target waits for them.
func TestImportBehind(t *testing.T) {
	from, to := newShell(t, onMemory, false), newShell(t, onSQLite, false)
	const second = "01a21ce0-6e00-7fff-8000-000000000002"
	from.shop.enqueue("cart.order", 1, ojs.WithOrderingKey("k"), ojs.WithID(second))
	from.run("ojs queues pause --all")
	file := filepath.Join(t.TempDir(), "jobs.export")
	from.run("ojs export " + file)
	first := to.shop.enqueue("cart.order", 0, ojs.WithOrderingKey("k"))
	if out := to.run("ojs import " + file); !strings.Contains(out, "1 job imported") {
		t.Fatal(out)
	}
	if jobs := to.run("ojs jobs -o id state:available"); jobs != first+"\n" {
		t.Error(jobs)
	}
	to.shop.end(to.shop.claim("w", "cart.order"), 0, ojs.StateCompleted, "", "")
	if jobs := to.run("ojs jobs -o id state:available"); jobs != second+"\n" {
		t.Error(jobs)
	}
}
