package postgres_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// fairRecord is record with a fairness key.
func fairRecord(n int, key string, weight int) storage.Record {
	r := record(n)
	r.Fairness = ojs.Fairness{Key: key, Weight: weight}
	return r
}

// A job joins a round that claims of another process found closed.
func TestTurnsOverProcesses(t *testing.T) {
	a, name := open(t, "")
	b, _ := open(t, name)
	now := record(0).CreatedAt
	closeKey(t, a, "closed")
	claim := storage.Claim{Max: 1, Worker: "w"}
	add := func(s storage.Storage, r storage.Record) string {
		t.Helper()
		_, err := s.Insert(t.Context(), now, []storage.Insert{{Record: r}}, nil)
		must(t, err)
		return r.ID
	}
	next := func() string {
		t.Helper()
		recs, err := a.Claim(t.Context(), now, claim, nil)
		must(t, err)
		if len(recs) == 0 {
			return ""
		}
		return recs[0].ID
	}
	for n := range 2 { // two rounds
		r := fairRecord(n, "first", 1)
		r.RateLimit = &ojs.RateLimit{Key: "closed", Concurrency: 1}
		add(a, r)
	}
	for range 3 {
		if id := next(); id != "" {
			t.Fatalf("claimed %s, whose key is closed", id)
		}
	}
	plain := add(a, record(2))
	joins := add(b, fairRecord(3, "second", 1))
	for _, want := range []string{joins, plain} {
		if id := next(); id != want {
			t.Fatalf("claimed %s, not %s", id, want)
		}
	}
}

// However many processes store jobs and claim them at once, no key has more jobs in a
// round than its weight, no job stands behind its own place, each is claimed once, and no
// job comes before one of the same key that stands before it.
func TestTurnsAtOnce(t *testing.T) {
	s, name := open(t, "")
	pool := connect(t)
	now := record(0).CreatedAt
	const processes, rounds, batch = 4, 25, 6
	var work sync.WaitGroup
	claimed := make([]map[string]int, processes)
	for p := range processes {
		other, _ := open(t, name)
		claimed[p] = make(map[string]int)
		work.Go(func() {
			for i := range rounds {
				list := make([]storage.Insert, batch)
				for k := range list {
					n := (p*rounds+i)*batch + k
					r := fairRecord(n, fmt.Sprint("tenant", n%3), 1+n%3)
					if k == batch-1 {
						r = record(n)
					}
					if n%2 == 0 {
						r.Queue = "another"
					}
					list[k] = storage.Insert{Record: r}
				}
				if _, err := other.Insert(t.Context(), now, list, nil); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					continue
				}
				recs, err := other.Claim(t.Context(), now, storage.Claim{Max: batch, Worker: "w"}, nil)
				if err != nil {
					t.Error(err)
				}
				for _, r := range recs {
					claimed[p][r.ID]++
				}
			}
		})
	}
	work.Wait()
	for what, sql := range map[string]string{
		"rounds with more jobs of a key than its weight": `SELECT count(*) FROM (SELECT FROM %s.ready
			WHERE fair_key IS NOT NULL GROUP BY queue, priority, place, fair_key HAVING count(*) > max(share)) r`,
		"jobs in a round behind their own places": `SELECT count(*) FROM %s.ready WHERE place > own_place`,
		"jobs with a key and without a round": `SELECT count(*) FROM %s.ready
			WHERE (fair_key IS NULL) <> (own_place IS NULL)`,
		"jobs in an earlier round than an older one of the key": `SELECT count(*) FROM (SELECT place, lag(place) OVER (
			PARTITION BY queue, priority, fair_key ORDER BY own_place) AS before
			FROM %s.ready WHERE fair_key IS NOT NULL) r WHERE before > place`,
	} {
		var n int
		must(t, pool.QueryRow(t.Context(), fmt.Sprintf(sql, name)).Scan(&n))
		if n > 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	all := make(map[string]int)
	for _, list := range claimed {
		for id, n := range list {
			all[id] += n
		}
	}
	recs, err := s.Claim(t.Context(), now, storage.Claim{Max: 10_000, Worker: "w"}, nil)
	must(t, err)
	for _, r := range recs {
		all[r.ID]++
	}
	for id, n := range all {
		if n != 1 {
			t.Errorf("%s was claimed %d times", id, n)
		}
	}
	if len(all) != processes*rounds*batch {
		t.Errorf("%d jobs claimed, not %d", len(all), processes*rounds*batch)
	}
}

// A transaction that does not see what others have stored since it began stores no job
// with a key.
func TestTurnsAreIsolated(t *testing.T) {
	s, _ := open(t, "")
	pool := connect(t)
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		must(t, err)
		batch := []storage.Insert{{Record: fairRecord(1, "tenant", 1)}}
		_, err = s.Insert(postgres.WithTx(t.Context(), tx), time.Now(), batch, nil)
		if refused := err != nil; refused != (level == pgx.RepeatableRead) {
			t.Errorf("%s: %v", level, err)
		}
		must(t, tx.Rollback(t.Context()))
	}
}

// Rounds of which no job is left to be claimed are forgotten, and those that do not
// count.
func TestServedRoundsStayFew(t *testing.T) {
	s, name := open(t, "", postgres.WithPoll(10*time.Millisecond))
	pool := connect(t)
	now := record(0).CreatedAt
	for n := range 50 {
		_, err := s.Insert(t.Context(), now, []storage.Insert{{Record: fairRecord(n, "tenant", 1)}}, nil)
		must(t, err)
	}
	for range 50 {
		_, err := s.Claim(t.Context(), now, storage.Claim{Max: 1, Worker: "w"}, nil)
		must(t, err)
	}
	for n := 1; n > 0; {
		must(t, t.Context().Err())
		must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+name+".served").Scan(&n))
	}
}

// checkTurns wants a job to find its round by indexes, among a thousand keys and more.
func checkTurns(t *testing.T, pool *pgxpool.Pool, name, when string) {
	t.Helper()
	const most = 200 // pages of the job and its indexes, and of what it looks up
	for _, key := range []string{"tenant 1", "tenant new"} {
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		tx, err := pool.Begin(t.Context())
		must(t, err)
		for _, setting := range []string{"seqscan", "bitmapscan", "sort"} { // as inserts have them
			_, err = tx.Exec(t.Context(), "SET LOCAL enable_"+setting+" = off")
			must(t, err)
		}
		_, err = tx.Exec(t.Context(), "INSERT INTO "+name+`.ready (seq, place, version, attempt, priority, state, queue, type,
				fair_key, share, own_place)
			SELECT n, n / 10, 65536, 0, 0, 3, 'queue 3', 'x', CASE WHEN n % 10 > 0 THEN 'many ' || n % 5000 END, 1,
				CASE WHEN n % 10 > 0 THEN n END
			FROM generate_series(20000000, 20020000) n`)
		must(t, err)
		for range 2 { // the first one reads the catalog, too
			var text []byte
			must(t, tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) INSERT INTO "+name+
				`.ready (seq, place, version, attempt, priority, state, queue, type, fair_key, share)
				SELECT n, n, 65536, 0, 0, 3, 'queue 3', 'x', '`+key+`', 1
				FROM (SELECT nextval('`+name+`.place') + 30000000 AS n) n`).Scan(&text))
			must(t, json.Unmarshal(text, &plans))
		}
		if n := plans[0].Plan.Hit + plans[0].Plan.Read; n > most {
			t.Errorf("%s, a job with key %q reads %d pages to find its round", when, key, n)
		}
		must(t, tx.Rollback(t.Context()))
	}
}
