package sqlite

import (
	"context"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs/storage"
)

// addLog keeps the log of a change that has given a job a version.
func (t *tx) addLog(seq int64, version uint64, data []byte) error {
	if err := t.exec(insertLog, seq, int64(version), data); err != nil {
		return err
	}
	return t.exec(trimLogs, seq, storage.MaxLogs)
}

// Logs implements storage.Storage.
func (s *Storage) Logs(ctx context.Context, id string) (list []storage.Log, err error) {
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		list = nil
		q := query(conn, selectLogs, id)
		for q.next() {
			list = append(list, storage.Log{Version: uint64(q.int64()), Data: q.blob()})
		}
		return q.close()
	})
	return list, err
}
