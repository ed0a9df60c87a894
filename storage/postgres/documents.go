package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/ojsengine/ojs/internal/fail"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// putDocumentsSQL stores the documents whose versions fit; -1 fits any. Calls of a kind
// come one after the other, so that it sees what the call before has done.
var putDocumentsSQL = define("putDocuments", `WITH given AS MATERIALIZED (
			SELECT u.i, u.name, nullif(u.due, {none}) AS due, nullif(u.data, '') AS data
			FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bytea[]) WITH ORDINALITY AS u(name, version, due, data, i)
				LEFT JOIN {schema}.document d ON d.kind = $1 AND d.name = u.name
			WHERE u.version IN (-1, coalesce(d.version, 0))),
		put AS (INSERT INTO {schema}.document AS d
			SELECT $1, name, nextval('{schema}.document_version'), due, data FROM given WHERE data IS NOT NULL
			ON CONFLICT (kind, name) DO UPDATE SET version = excluded.version, due = excluded.due, data = excluded.data
			RETURNING d.name, d.version),
		gone AS (DELETE FROM {schema}.document d USING given
			WHERE d.kind = $1 AND d.name = given.name AND given.data IS NULL RETURNING d.name, d.version)
		SELECT given.i, stored.version FROM given JOIN (TABLE put UNION ALL TABLE gone) AS stored USING (name)`)

// PutDocuments implements storage.Storage.
func (s *Storage) PutDocuments(
	ctx context.Context, kind storage.Kind, list []storage.Document,
) ([]uint64, error) {
	return ask(s.pooled(ctx), func(t *tx) []uint64 {
		t.apart()
		versions := make([]uint64, len(list))
		names := listOf(list, func(d *storage.Document) string { return d.Name })
		from := listOf(list, func(d *storage.Document) int64 { return int64(d.Version) })
		dues := listOf(list, func(d *storage.Document) int64 { return rows.Nanos(d.Due) })
		data := listOf(list, func(d *storage.Document) []byte { return d.Data })
		t.again(func() {
			clear(versions)
			t.notice = storage.Notice{}
			var i int
			var version int64
			read := each([]any{&i, &version}, func() {
				versions[i-1] = uint64(version)
				t.notice.AddDocuments(kind)
			})
			fail.If(tuned{s, true}.query(ctx, s.nameLock("document "+string(kind)),
				s.sent(putDocumentsSQL, read, string(kind), names, from, dues, data)))
		})
		s.tell(ctx, &t.notice)
		return versions
	})
}

const documentColumns = `name, version, coalesce(due, {none}), data FROM {schema}.document WHERE kind = $1`

var documentsSQL = define("documents", `SELECT `+documentColumns+`
		AND name > $2 AND name >= $3 AND name < $4 ORDER BY name LIMIT $5`)

var namedDocumentsSQL = define("namedDocuments", `SELECT `+documentColumns+`
		AND name > $2 AND starts_with(name, $3) AND name = ANY($4) ORDER BY name LIMIT $5`)

// Documents implements storage.Storage.
func (s *Storage) Documents(
	ctx context.Context, kind storage.Kind, q storage.DocumentQuery,
) ([]storage.Document, error) {
	if !sayable(q.Prefix) || !sayable(q.After) { // no name begins or comes so
		return nil, nil
	}
	if q.Names != nil {
		return s.readDocuments(ctx, kind, namedDocumentsSQL, q.After, q.Prefix, q.Names, q.Most())
	}
	const last = "\U0010ffff" // of all characters
	return s.readDocuments(ctx, kind, documentsSQL, q.After, q.Prefix, q.Prefix+last, q.Most())
}

// dueDocumentsSQL returns the documents that are due, and the first that is not.
var dueDocumentsSQL = define("dueDocuments", `(SELECT `+documentColumns+`
		AND (due, name) > ($2, $3) AND due <= $4 ORDER BY due, name LIMIT $5)
		UNION ALL (SELECT `+documentColumns+`
		AND (due, name) > ($2, $3) AND due > $4 ORDER BY due, name LIMIT 1)`)

// DueDocuments implements storage.Storage.
func (s *Storage) DueDocuments(
	ctx context.Context, kind storage.Kind, now time.Time, after *storage.Document, limit int,
) (due []storage.Document, next time.Time, err error) {
	from := &storage.Document{}
	if after != nil {
		from = after
	}
	most := max(0, min(limit, maxRows))
	due, err = s.readDocuments(ctx, kind, dueDocumentsSQL, rows.Nanos(from.Due), from.Name,
		rows.Nanos(now), most+1) // one more than asked for: next is of the same moment
	if err != nil {
		return nil, time.Time{}, err
	}
	slices.SortFunc(due, func(a, b storage.Document) int { return a.CompareDue(&b) })
	for i := range due {
		if i == most || due[i].Due.After(now) {
			return due[:i], due[i].Due, nil
		}
	}
	return due, time.Time{}, nil
}

// readDocuments reads documents. If some do not decode it sets them aside, and reads
// again: others come in their places.
func (s *Storage) readDocuments(
	ctx context.Context, kind storage.Kind, of statement, args ...any,
) (list []storage.Document, err error) {
	args = slices.Insert(args, 0, any(string(kind)))
	err = s.in(ctx).run(func(t *tx) {
		for aside := true; aside; {
			var d storage.Document
			var version, due int64
			var met []named
			list = nil
			t.query(of, each([]any{&d.Name, &version, &due, &d.Data}, func() {
				d.Version, d.Due = uint64(version), rows.Time(due)
				if err := rows.CheckDocument(kind, &d); err != nil {
					met = append(met, named{kind, d.Name, version, err})
				} else {
					list = append(list, d)
				}
				d.Data = nil // not to be written over
			}), args...)
			aside = !t.joined() && fail.Must(s.setAsideNamed(ctx, met))
		}
	})
	return list, err
}
