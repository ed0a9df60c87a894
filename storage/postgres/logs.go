package postgres

import (
	"context"

	"github.com/ojsengine/ojs/storage"
)

// Changes with logs have a transaction of their own. It makes the changes, and then
// stores the logs of the applied ones. Nothing else reads or writes logs, so changes
// without logs cost nothing more.

// logged reports whether a change has a log.
func logged(c storage.Change) bool { return c.Log != nil }

var addLogsSQL = define("addLogs", `INSERT INTO {schema}.log SELECT b.seq, u.version, u.data
		FROM unnest($1::text[], $2::bigint[], $3::bytea[]) u (id, version, data) JOIN {schema}.job b ON b.id = u.id`)

// trimLogsSQL deletes the logs of the jobs $1 but for the latest $2 of each.
var trimLogsSQL = define("trimLogs", `DELETE FROM {schema}.log l WHERE l.seq = ANY ({seqs}) AND l.version <= (
		SELECT n.version FROM {schema}.log n WHERE n.seq = l.seq ORDER BY n.version DESC OFFSET $2 LIMIT 1)`)

// addLogs keeps the logs of changes that were applied, and deletes the logs that are too
// old.
func (t *tx) addLogs(changes []storage.Change, results []storage.Settled) {
	var ids []string
	var versions []int64
	var data [][]byte
	for i := range changes {
		if c := &changes[i]; c.Log != nil && results[i].Err == nil {
			ids, data = append(ids, c.Record.ID), append(data, c.Log)
			versions = append(versions, int64(results[i].Version))
		}
	}
	if len(ids) > 0 {
		t.exec(addLogsSQL, ids, versions, data)
		t.exec(trimLogsSQL, ids, storage.MaxLogs)
	}
}

var logsSQL = define("logs", `SELECT l.version, l.data FROM {schema}.job b JOIN {schema}.log l ON l.seq = b.seq
		WHERE b.id = $1 ORDER BY l.version`)

// Logs implements storage.Storage.
func (s *Storage) Logs(ctx context.Context, id string) (list []storage.Log, err error) {
	err = s.in(ctx).run(func(t *tx) {
		if !sayable(id) {
			return
		}
		var l storage.Log
		var version int64
		t.query(logsSQL, each([]any{&version, &l.Data}, func() {
			l.Version = uint64(version)
			list = append(list, l)
			l.Data = nil // not to be written over
		}), id)
	})
	return list, err
}
