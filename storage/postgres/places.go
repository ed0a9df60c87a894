package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The sequence place numbers jobs (seq), their places in orders, and their versions
// (place * 65536 and up). Logical replication copies the rows of a schema and not its
// sequences. So may a partial restore. New jobs would then come before stored ones, and
// their numbers may be taken.

// placesSQL returns the last number that the sequence gave out, and a number that it gave
// out at some time: the highest of the newest job and of the jobs that ended last. One
// statement reads the sequence after it has decided which rows it sees.
var placesSQL = define("places", `SELECT coalesce(pg_sequence_last_value('{schema}.place'::pg_catalog.regclass), 0), coalesce(max(place), 0) FROM (
		SELECT max(seq) AS place FROM {schema}.job
		UNION ALL SELECT d.place FROM unnest(ARRAY[6, 7, 8]) s CROSS JOIN generate_series(0, 1) n CROSS JOIN LATERAL (
			SELECT place FROM {schema}.done WHERE state = s AND num_nonnulls(dead) = n AND kept IS NULL
			ORDER BY coalesce(finished, {none}) DESC, place DESC LIMIT 1) d) p`)

// checkPlaces fails with ErrBehind if the sequence would give out numbers again, and has
// all calls fail so. A role that may not read what it asks for is not told.
func (s *Storage) checkPlaces(ctx context.Context) error {
	var last, stored int64
	list := []sent{s.sent(tuneSQL, nil), s.sent(placesSQL, one(&last, &stored))}
	err := s.within(ctx, func(ctx context.Context) error { // without a mark: the listener may wait for none
		return s.borrow(ctx, func(conn *pgxpool.Conn) error { return bare{conn}.query(ctx, list...) })
	})
	if isCode(err, insufficientPrivilege) {
		return nil
	}
	if err == nil && last < stored {
		err = fmt.Errorf("%w: the sequence place of the schema %s is at %d, and %d is stored: run postgres.Advance, as the owner of the schema",
			ErrBehind, s.config.schema, last, stored)
		s.refusal.Store(&err)
	}
	return err
}

// Advance moves the sequences of the schema past the numbers of all that is stored. Call
// it after a switch-over by logical replication, or a partial restore: the rows have come
// from another database without the sequences, and Open fails with ErrBehind.
//
// Advance reads every job once. Enqueues wait for it meanwhile. A sequence that is far
// enough ahead already stays as it is. Of the options only WithSchema counts. The role
// has to own the schema.
func Advance(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	s, err := newStorage(pool, opts)
	if err != nil {
		return err
	}
	return wrap(s.begun(ctx, tuned{s: s}, func(t *tx) {
		for _, of := range advanceSQL {
			t.exec(of)
		}
	}))
}

// margin is how far Advance moves a sequence past what is stored. Jobs that were deleted
// had numbers, too: a worker that still has one must not meet its version again.
const margin = "16777216"

// advanceSQL moves the sequences. The first statement keeps other transactions from the
// sequence place.
var advanceSQL = []statement{
	define("advance", `ALTER SEQUENCE {schema}.place OWNED BY NONE`),
	advancing(`'{schema}.place'`, `SELECT max(greatest(seq, place, other_place, own_place, version / 65536)) FROM (
		SELECT seq, place, other_place, own_place, version FROM {schema}.stage
		UNION ALL SELECT seq, place, other_place, own_place, version FROM {schema}.quarantined_job
		UNION ALL SELECT seq, NULL, NULL, NULL, NULL FROM {schema}.job
		UNION ALL SELECT place, NULL, NULL, NULL, NULL FROM {schema}.served
		) j WHERE version IS NULL OR version <= {most}`),
	advancing(`'{schema}.document_version'`, `SELECT max(version) FROM {schema}.document`),
	advancing(`pg_catalog.pg_get_serial_sequence('{schema}.quarantine', 'n')`,
		`SELECT max(n) FROM {schema}.quarantine`),
}

func advancing(sequence, highest string) statement {
	fill := strings.NewReplacer("{sequence}", sequence, "{highest}", highest, "{margin}", margin)
	return define("advance", fill.Replace(`SELECT setval({sequence}::pg_catalog.regclass, highest + {margin}) FROM ({highest}) h (highest)
			WHERE highest + {margin} > coalesce(pg_sequence_last_value({sequence}::pg_catalog.regclass), 0)`))
}
