package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
)

// clocked is a storage whose clock is ahead.
type clocked struct {
	storage.Storage
	ahead time.Duration
}

func (c clocked) ClockOffset() time.Duration { return c.ahead }
func (c clocked) Unwrap() storage.Storage    { return c.Storage }

// doctor finds each planted fault with its fix, and nothing else on a sound system.
func TestDoctor(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		check, says, fix string
		on               kind
		plant            func(sh *shell)
	}{
		{check: "", on: onMemory, plant: func(*shell) {}},
		{check: "", on: onSQLite, plant: func(*shell) {}},
		{check: "", on: onPostgres, plant: func(*shell) {}},
		{"clock", "5m away", "NTP", onMemory, func(sh *shell) {
			sh.shop.st = clocked{sh.shop.st, 5 * time.Minute}
		}},
		{"pauses", "everything", "resume --all", onMemory,
			func(sh *shell) { sh.run("ojs queues pause --all") }},
		{"pauses", "queue default", "resume default", onMemory,
			func(sh *shell) { sh.run("ojs queues pause default") }},
		{"workers", "no engine reports", "start the program", onMemory, func(sh *shell) {
			put := document.Value{Key: stored.PrefixNode + soundNode.ID}
			sh.shop.must(document.Of(sh.shop.st).PutValues(ctx, noon, []document.Value{put}))
		}},
		{"queues", "queue other", "ojs move", onMemory, func(sh *shell) {
			sh.shop.enqueue("cart.expire", nil, ojs.WithQueue("other"))
		}},
		{"queues", "queue default", "let an engine", onMemory, func(sh *shell) {
			quiet := soundNode
			quiet.Quiet = true
			sh.shop.node(quiet)
		}},
		{"types", "type cart.fill", "deploy", onMemory,
			func(sh *shell) { sh.shop.enqueue("cart.fill", nil) }},
		{"types", "type cart.fill and takes jobs of queue default", "deploy", onMemory, func(sh *shell) {
			sh.shop.node(inspect.Node{ID: "n2", Seen: noon, Queues: []string{"q"},
				Types: []string{"cart.fill"}})
			sh.shop.enqueue("cart.fill", nil)
		}},
		{"", "", "", onMemory, func(sh *shell) { // a worker of another program runs them
			sh.shop.enqueue("cart.fill", nil)
			sh.shop.end(sh.shop.claim("w", "cart.fill"), 0, ojs.StateCompleted, "", "")
			sh.shop.enqueue("cart.fill", nil)
		}},
		{"claims", "the lease is over", "start an engine", onMemory, func(sh *shell) {
			sh.shop.at(time.Hour).claim("gone", "cart.expire")
			sh.shop.at(0)
		}},
		{"due jobs", "was due", "start an engine", onMemory, func(sh *shell) {
			sh.shop.at(time.Hour).enqueue("cart.expire", nil, ojs.WithScheduledAt(noon.Add(-time.Minute*10)))
			sh.shop.at(0)
		}},
		{"recurring jobs", "entry late", "start an engine", onMemory, func(sh *shell) {
			sh.shop.at(time.Hour).must(sh.shop.eng.Cron().Set(ctx,
				cron.Entry{Name: "late", Schedule: "@every 10m",
					Job: ojs.NewDraft("cart.expire", nil)}))
			sh.shop.at(0)
		}},
		{"pauses", "everything", "resume --all", onMemory, func(sh *shell) { // and the entry waits for that
			sh.shop.at(time.Hour).must(sh.shop.eng.Cron().Set(ctx,
				cron.Entry{Name: "late", Schedule: "@every 10m",
					Job: ojs.NewDraft("cart.expire", nil)}))
			sh.shop.at(0)
			sh.run("ojs queues pause --all")
		}},
		{"limits", "queue/default lets none start", "ojs limits clear queue/default", onMemory,
			func(sh *shell) {
				sh.run("ojs limits set queue/default --concurrency 0")
			}},
		{"limits", "type/cart.expire is blocked", "--until now type/cart.expire", onMemory, func(sh *shell) {
			sh.run("ojs limits block type/cart.expire --until 1h")
		}},
		{"replica identity", "ojs.job has no replica identity", "REPLICA IDENTITY FULL", onPostgres,
			func(sh *shell) {
				sh.exec("ALTER TABLE ojs.job REPLICA IDENTITY NOTHING")
			}},
		{"server", "takes no changes", "target_session_attrs", onPostgres, func(sh *shell) {
			sh.shop.st = nil // open it anew
			sh.address += "&options=-c%20default_transaction_read_only%3Don"
		}},
		{"connections", "connections are in use", "pool_max_conns", onPostgres, func(sh *shell) {
			usualBounds.connections = 0
		}},
		{"bloat", "ojs.job has", "VACUUM ojs.job", onPostgres, func(sh *shell) {
			usualBounds.dead = 10
			for range 20 {
				sh.exec("UPDATE ojs.job SET args = args")
			}
			sh.exec("SELECT pg_stat_force_next_flush()")
		}},
		{"bloat", "the log", "that read for long", onSQLite, func(sh *shell) { usualBounds.spare = 1 }},
		{"transactions", "is open for", "pg_terminate_backend", onPostgres, func(sh *shell) {
			usualBounds.transaction = 50 * time.Millisecond
			conn, err := pgx.Connect(ctx, sh.address)
			sh.shop.must(err)
			sh.t.Cleanup(func() { _ = conn.Close(ctx) })
			_, err = conn.Exec(ctx, "BEGIN")
			sh.shop.must(err)
			for old := false; !old; {
				const age = "SELECT clock_timestamp() - now() > interval '60 ms'"
				sh.shop.must(conn.QueryRow(ctx, age).Scan(&old))
			}
		}},
		{"workers", "worker n2 is silent", "when their leases end", onMemory, func(sh *shell) {
			sh.shop.node(inspect.Node{ID: "n2", Seen: noon.Add(-time.Minute), Queues: []string{"q"}})
			sh.shop.claim("n2", "cart.expire")
		}},
		{"schema", "older", "ojs migrate up", onPostgres, func(sh *shell) {
			sh.shop.st = nil // open it anew
			sh.exec("DELETE FROM ojs.migration WHERE version = (SELECT max(version) FROM ojs.migration)")
		}},
		{"quarantine", "1 record", "ojs quarantine", onPostgres, func(sh *shell) {
			sh.exec("UPDATE ojs.job SET args = '{'")
			_, _ = sh.shop.st.List(ctx, storage.Query{}) // which sets it aside
		}},
	} {
		t.Run(tc.check+"/"+string(tc.on), func(t *testing.T) {
			usual := usualBounds
			t.Cleanup(func() { usualBounds = usual })
			sh := newShell(t, tc.on, false)
			sh.shop.node(soundNode)
			sh.shop.enqueue("cart.expire", nil)
			tc.plant(sh)
			out := sh.run("ojs doctor -o ndjson")
			if tc.check == "" {
				if out != "" {
					t.Fatal(out)
				}
				return
			}
			if !strings.Contains(out, `"check":"`+tc.check+`"`) || !strings.Contains(out, tc.says) ||
				!strings.Contains(out, tc.fix) || !strings.Contains(out, "[exit code 5]") ||
				strings.Count(out, "\n") != 2 {
				t.Error(out)
			}
		})
	}
}

var soundNode = inspect.Node{ID: "n1", Host: "h", PID: 1, Seen: noon, Queues: []string{"default"},
	Types: []string{"cart.expire"}, Slots: 1}

// exec runs a statement on the database of the shell.
func (sh *shell) exec(sql string) {
	sh.t.Helper()
	conn, err := pgx.Connect(context.Background(), sh.address)
	if err != nil {
		sh.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		sh.t.Fatal(err)
	}
}

// A record in the quarantine is listed, and put back after it is corrected.
func TestQuarantine(t *testing.T) {
	sh := newShell(t, onPostgres, false)
	id := sh.shop.enqueue("cart.expire", nil)
	if out := sh.run("ojs quarantine"); out != "the quarantine is empty\n" {
		t.Error(out)
	}
	sh.exec("UPDATE ojs.job SET args = '{'")
	_, _ = sh.shop.st.List(context.Background(), storage.Query{}) // which sets it aside
	key := strings.TrimSpace(sh.run("ojs quarantine -o id"))
	if out := sh.run("COLUMNS=160 ojs quarantine"); !strings.Contains(out, id) || !strings.Contains(out,
		"args") {
		t.Error(out)
	}
	if out := sh.run("ojs job " + id); !strings.Contains(out, "fix: ojs quarantine") {
		t.Error(out)
	}
	if out := sh.run("ojs export --live"); !strings.Contains(out, "records in the quarantine: 1") {
		t.Error(out)
	}
	if out := sh.run("ojs quarantine release " + key); !strings.Contains(out, "[exit code 4]") {
		t.Error(out)
	}
	sh.exec("UPDATE ojs.quarantined_job SET args = '1'")
	if out := sh.run("ojs quarantine release " + key); out != "record "+key+" is back\n" {
		t.Error(out)
	}
	if out := sh.run("ojs quarantine delete " + key); !strings.Contains(out, "[exit code 3]") {
		t.Error(out)
	}
	if out := sh.run("ojs jobs -o id"); out != id+"\n" {
		t.Error(out)
	}
}

// migrate makes a schema that is missing, and names one that is older or newer.
func TestMigrate(t *testing.T) {
	for _, address := range []string{filepath.Join(t.TempDir(), "new.db"), newDatabase(t, "template1")} {
		sh := &shell{t: t, shop: &shop{}, address: address}
		if out := sh.run("ojs migrate"); address[:8] == "postgres" && !strings.Contains(out, "missing") ||
			strings.Contains(out, "current") {
			t.Error(out)
		}
		if out := sh.run("ojs stats"); !strings.Contains(out, "ojs migrate up") {
			t.Error(out)
		}
		made, want := sh.run("ojs migrate up"), "the schema is up to date\n"
		if info, err := os.Stat(address); err == nil {
			if want = "made " + address + "\n"; info.Mode() != 0o600 {
				t.Error(info.Mode())
			}
		}
		if made != want {
			t.Error(made)
		}
		if out := sh.run("ojs migrate up"); out != "the schema is up to date\n" {
			t.Error(out)
		}
		if out := sh.run("ojs migrate"); !strings.HasPrefix(out, "current") {
			t.Error(out)
		}
	}
	sh := newShell(t, onPostgres, false)
	sh.shop.st = nil // open it anew
	sh.exec("INSERT INTO ojs.migration (version, oldest) VALUES (1000, 1000)")
	if out := sh.run("ojs migrate -o id"); out != "newer\n[exit code 5]\n" {
		t.Error(out)
	}
	sh.exec("DELETE FROM ojs.migration WHERE version > 20")
	if out := sh.run("ojs migrate -o id"); out != "older\n[exit code 5]\n" {
		t.Error(out)
	}
	if out := sh.run("ojs migrate sql --schema work --from 24"); !strings.HasPrefix(out, "-- 0024") ||
		!strings.Contains(out, `"work".migration`) {
		t.Error(out)
	}
	dir := t.TempDir()
	sh.run("ojs migrate sql --from 24 --dir " + dir)
	if files, err := os.ReadDir(dir); err != nil || len(files) == 0 || files[0].Name()[:5] != "0024_" {
		t.Errorf("%v, %v", files, err)
	}
}
