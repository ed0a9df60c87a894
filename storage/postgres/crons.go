package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// setCronsSQL stores entries under the versions that they were read with. A lock has
// calls come one after the other: otherwise an entry could be stored under a version
// that another call has passed and deleted meanwhile.
var setCronsSQL = define("setCrons", `WITH given AS MATERIALIZED (
			SELECT u.* FROM unnest($1::int[], $2::text[], $3::bigint[], $4::bytea[]) AS u(i, name, version, entry),
				(SELECT pg_advisory_xact_lock(hashtextextended('{name} cron', 3131961357)) OFFSET 0) AS turn ORDER BY name),
		added AS (INSERT INTO {schema}.cron SELECT name, nextval('{schema}.cron_version'), entry FROM given WHERE version = 0
			ON CONFLICT DO NOTHING RETURNING name, version),
		there AS (UPDATE {schema}.cron SET version = nextval('{schema}.cron_version'), entry = given.entry
			FROM given WHERE cron.name = given.name AND cron.version = given.version AND given.version > 0
			RETURNING cron.name, cron.version)
		SELECT given.i, stored.version FROM given JOIN (TABLE added UNION ALL TABLE there) AS stored USING (name)`)

// SetCrons implements storage.Storage.
func (s *Storage) SetCrons(ctx context.Context, entries []storage.Cron) ([]uint64, error) {
	if err := s.enterApart(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	documents, err := rows.EncodeCrons(entries)
	if err != nil {
		return nil, err
	}
	places, names, from := make([]int32, len(entries)), make([]string, len(entries)),
		make([]int64, len(entries))
	for i := range entries {
		places[i], names[i], from[i] = int32(i), entries[i].Name, int64(entries[i].Version)
	}
	versions := make([]uint64, len(entries))
	err = again(func() error { // calls that set the same entries lock them in any order
		clear(versions)
		var i int
		var version int64
		args := []any{places, names, from, documents}
		return s.query(ctx, s.sql[setCronsSQL], args, each([]any{&i, &version}, func() {
			versions[i] = uint64(version)
		}))
	})
	if err != nil {
		return nil, wrap(err)
	}
	s.tell(ctx, &storage.Notice{Crons: true})
	return versions, nil
}

var deleteCronSQL = define("deleteCron", `DELETE FROM {schema}.cron WHERE name = $1`)

// DeleteCron implements storage.Storage.
func (s *Storage) DeleteCron(ctx context.Context, name string) (bool, error) {
	if err := s.enterApart(ctx); err != nil {
		return false, err
	}
	defer s.mu.RUnlock()
	tag, err := s.exec(ctx, s.sql[deleteCronSQL], name)
	if err != nil || tag.RowsAffected() == 0 {
		return false, wrap(err)
	}
	s.tell(ctx, &storage.Notice{Crons: true})
	return true, nil
}

var cronsSQL = define("crons", `SELECT name, version, entry FROM {schema}.cron
		WHERE name > $1 AND ($2::text[] IS NULL OR name = ANY($2)) ORDER BY name LIMIT $3`)

// Crons implements storage.Storage.
func (s *Storage) Crons(ctx context.Context, q storage.CronQuery) ([]storage.Cron, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	for {
		list, aside, err := s.readCrons(ctx, s.sql[cronsSQL], q.After, q.Names, q.Most())
		if err != nil || !aside {
			return list, err
		}
	}
}

// dueCronsSQL returns the entries that are due, and the first that is not.
var dueCronsSQL = define("dueCrons", `(SELECT name, version, entry FROM {schema}.cron
		WHERE (next_run, name) > ($1, $2) AND next_run <= $3 ORDER BY next_run, name LIMIT $4)
		UNION ALL (SELECT name, version, entry FROM {schema}.cron
		WHERE (next_run, name) > ($1, $2) AND next_run > $3 ORDER BY next_run, name LIMIT 1)`)

// DueCrons implements storage.Storage.
func (s *Storage) DueCrons(
	ctx context.Context, now time.Time, after *storage.Cron, limit int,
) (due []storage.Cron, next time.Time, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, time.Time{}, err
	}
	defer s.mu.RUnlock()
	run, name := rows.CronPlace(after)
	most := max(0, min(limit, maxRows))
	for aside := true; aside; { // one more than asked for: next is of the same moment
		if due, aside, err = s.readCrons(ctx, s.sql[dueCronsSQL], run, name, rows.Nanos(now),
			most+1); err != nil {
			return nil, time.Time{}, err
		}
	}
	slices.SortFunc(due, func(a, b storage.Cron) int { return a.CompareRuns(&b) })
	for i := range due {
		if i == most || due[i].NextRun.After(now) {
			return due[:i], due[i].NextRun, nil
		}
	}
	return due, time.Time{}, nil
}

// readCrons reads entries. It reports whether it has set some aside, so that others come
// in their places.
func (s *Storage) readCrons(
	ctx context.Context, sql string, args ...any,
) (list []storage.Cron, aside bool, err error) {
	var name string
	var version int64
	var entry []byte
	var met []named
	err = s.query(ctx, sql, args, each([]any{&name, &version, &entry}, func() {
		if c, err := rows.DecodeCron(name, version, entry); err != nil {
			met = append(met, named{storage.KindCron, name, version, err})
		} else {
			list = append(list, c)
		}
		entry = nil // not to be written over
	}))
	if err == nil {
		aside, err = s.setAsideNamed(ctx, met)
	}
	return list, aside, wrap(err)
}
