package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/codec"
)

// killed is a storage whose calls fail after some changes, as if the process had ended.
type killed struct {
	storage.Storage
	after int
}

var errKilled = errors.New("killed")

func (k *killed) die() error {
	if k.after--; k.after < 0 {
		return errKilled
	}
	return nil
}

func (k *killed) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	if q.Limit = 7; k.die() != nil {
		return storage.Page{}, errKilled
	}
	return k.Storage.List(ctx, q)
}

func (k *killed) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	if k.die() != nil {
		return nil, errKilled
	}
	return k.Storage.Insert(ctx, now, batch, dst)
}

func (k *killed) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	if k.die() != nil {
		return nil, errKilled
	}
	return k.Storage.Settle(ctx, now, changes, dst)
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
// after any of their calls and run again.
func TestExportImport(t *testing.T) {
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
			repeat := func(sh *shell, command string) {
				t.Helper()
				whole := sh.shop.st
				for after := 0; ; after++ {
					if after > 60 {
						t.Fatalf("%s does not come to an end", command)
					}
					sh.shop.st = &killed{whole, after}
					out := sh.run(command)
					if !strings.Contains(out, "killed") {
						if strings.Contains(out, "exit code") {
							t.Fatal(out)
						}
						break
					}
				}
				sh.shop.st = whole
			}
			repeat(from, "ojs export "+file)
			if out := from.run("ojs export " + file); !strings.Contains(out, "is a complete export") {
				t.Error(out)
			}
			repeat(to, "ojs import "+file)
			want, got := everything(t, from.shop.st), everything(t, to.shop.st)
			if len(want) != len(got) {
				t.Fatalf("%d jobs, want %d", len(got), len(want))
			}
			for i := range want {
				if a, b := encoded(t, &want[i]), encoded(t, &got[i]); a != b {
					t.Errorf("job %d\n%s\nis not\n%s", i, b, a)
				}
			}
			for _, look := range []string{"ojs queues", "ojs limits", "ojs cron", "ojs failures", "ojs jobs",
				"ojs jobs order:claim"} {
				if a, b := from.run(look), to.run(look); strings.Split(a, "everything")[0] != b {
					t.Errorf("%s:\n%s\nis not\n%s", look, b, a)
				}
			}
			if out := to.run("ojs import " + file); !strings.HasPrefix(out, "0 jobs imported") {
				t.Error(out)
			}
		})
	}
}

// A file that is no export is left as it is, and one that is not complete is refused.
func TestExportFiles(t *testing.T) {
	sh := newShell(t, onMemory, false)
	sh.run("ojs queues pause --all")
	file := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(file, []byte("my notes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := sh.run("ojs export " + file); !strings.Contains(out, "is no export") {
		t.Error(out)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "my notes\n" {
		t.Error(string(b), err)
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
	if err := os.WriteFile(file, []byte(`{"ojs_export":{"version":1}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := sh.run("ojs import " + file); !strings.Contains(out, "not complete") {
		t.Error(out)
	}
	sh.shop.enqueue("cart.expire", 1, ojs.WithOrderingKey("k"))
	sh.shop.enqueue("cart.expire", 2, ojs.WithOrderingKey("k"))
	if out := sh.run("ojs export"); !strings.Contains(out, "wait for others") {
		t.Error(out)
	}
}
