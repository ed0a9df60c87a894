package sqlite

import (
	"time"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Jobs with an ordering key (storage.Insert.OrderingKey).
//
// The table line has a row for each that has not ended. Such a job has awaited set, so
// that countEnds hears of its end. A job in the quarantine keeps its row and is in no
// line meanwhile.

// enterLine has a job that has just been stored wait for its turn.
func (t *tx) enterLine(in *storage.Insert) error {
	if in.OrderingKey == "" {
		return nil
	}
	h, _, err := t.head(in.Record.ID)
	if err != nil {
		return err
	}
	row := rows.Row{Record: in.Record, Seq: h.seq}
	row.Wait(in)
	if err := t.setDepends(&row); err != nil || rows.Terminal(h.state) { // it has been replaced
		return err
	}
	if err := t.exec(insertLine, h.seq, in.OrderingKey); err != nil {
		return err
	}
	return t.exec(setAwaited, h.seq)
}

// takeLine takes a job out of its line, and returns the key, "" if it was in none.
func (t *tx) takeLine(seq int64) (key string, err error) {
	q := t.query(deleteLine, seq)
	if q.next() {
		key = q.text()
	}
	return key, q.close()
}

// endInLine takes a job that has ended out of its line, which then gives the turn.
func (t *tx) endInLine(now time.Time, seq int64, dst []storage.Record) ([]storage.Record, error) {
	key, err := t.takeLine(seq)
	if err != nil || key == "" {
		return dst, err
	}
	return t.nextTurn(now, key, dst)
}

// nextTurn gives the turn of a key to the first in line, unless a job has it, and appends
// the job to dst if this moves it.
func (t *tx) nextTurn(now time.Time, key string, dst []storage.Record) ([]storage.Record, error) {
	q := t.query(selectTurn, key)
	taken := q.next()
	if err := q.close(); err != nil || taken {
		return dst, err
	}
	for {
		list, err := t.query(selectFirst, key).all()
		if err != nil || len(list) == 0 {
			return dst, err
		}
		row, err := t.decode(&list[0])
		if err != nil {
			if err := t.setAside(&list[0], err); err != nil {
				return dst, err
			}
			continue
		}
		if err := t.exec(takeTurn, row.Seq); err != nil {
			return dst, err
		}
		return t.moveWaiting(&list[0], row, row.Turn(now), dst)
	}
}
