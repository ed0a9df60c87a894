package sqlite

import (
	"context"
	"fmt"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// SetLimit implements storage.Storage.
func (s *Storage) SetLimit(
	ctx context.Context, now time.Time, limit storage.LimitName, bounds ojs.RateLimit, until time.Time,
) error {
	if err := storage.CheckLimit(limit, bounds); err != nil {
		return err
	}
	return s.changeLimit(ctx, now, limit, func(c *rows.Counter) { c.Set(bounds, until) })
}

// BlockLimit implements storage.Storage.
func (s *Storage) BlockLimit(
	ctx context.Context, now time.Time, limit storage.LimitName, until time.Time,
) error {
	if err := storage.CheckLimit(limit, ojs.RateLimit{}); err != nil {
		return err
	}
	return s.changeLimit(ctx, now, limit, func(c *rows.Counter) { c.Block(until) })
}

// changeLimit changes what has been set of a limit.
func (s *Storage) changeLimit(
	ctx context.Context, now time.Time, limit storage.LimitName, change func(*rows.Counter),
) error {
	return s.write(ctx, func(t *tx) error {
		c, err := t.counter(limit)
		if err != nil {
			return err
		}
		change(c)
		var setting []byte
		if c.Setting != nil {
			text, err := rows.Bounds(c.Setting)
			if err != nil {
				return err
			}
			setting = []byte(text)
		}
		look := rows.Nanos(now)
		if limit.Kind != storage.LimitKey {
			look = rows.None // queues and types are few
			t.settings++
		}
		t.changed++
		t.given, t.written = true, true
		t.noteFreed()
		q := t.query(setLimit, string(limit.Kind), limit.Name)
		if q.err != nil {
			return q.close()
		}
		q.optional(3, string(setting))
		q.nanos(4, c.Until)
		q.nanos(5, c.Blocked)
		q.bind(6, c.Window)
		q.bind(7, c.Most)
		q.bind(8, t.changed)
		q.nanos(9, look)
		return q.exec()
	})
}

// GetLimit implements storage.Storage.
func (s *Storage) GetLimit(
	ctx context.Context, now time.Time, limit storage.LimitName,
) (state storage.Limit, err error) {
	if err := storage.CheckLimit(limit, ojs.RateLimit{}); err != nil {
		return state, err
	}
	there := false
	err = s.read(ctx, func(conn *zombiezen.Conn) (err error) {
		state, there, err = limitState(conn, rows.Nanos(now), limit)
		return err
	})
	if err == nil && !there {
		err = fmt.Errorf("%w: limit of %s %q", ojs.ErrNotFound, limit.Kind, limit.Name)
	}
	if err != nil {
		return storage.Limit{}, err
	}
	return state, nil
}

// ListLimits implements storage.Storage.
func (s *Storage) ListLimits(
	ctx context.Context, now time.Time, kind storage.LimitKind, after string, most int,
) (list []storage.Limit, err error) {
	if err := storage.CheckLimit(storage.LimitName{Kind: kind, Name: "any"}, ojs.RateLimit{}); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(conn *zombiezen.Conn) error {
		for len(list) < most {
			name, err := nextName(conn, kind, after)
			if err != nil || name == "" {
				return err
			}
			state, there, err := limitState(conn, rows.Nanos(now), storage.LimitName{Kind: kind, Name: name})
			if err != nil {
				return err
			}
			set := state.Setting != nil || !state.BlockedUntil.IsZero()
			if there && (set || kind == storage.LimitKey) {
				list = append(list, state)
			}
			after = name
		}
		return nil
	})
	return list, err
}

// nextName returns the first name after another of a limit that may have something to
// tell, "" if there is none.
func nextName(conn *zombiezen.Conn, kind storage.LimitKind, after string) (first string, err error) {
	asks := []*statement{query(conn, nextLimit, string(kind), after)}
	if kind == storage.LimitKey {
		asks = append(asks, query(conn, nextActiveKey, after), query(conn, nextReadyKey, after))
	}
	for _, q := range asks {
		if q.next() {
			if name := q.text(); name != "" && (first == "" || name < first) {
				first = name
			}
		}
		if closing := q.close(); closing != nil {
			err = closing
		}
	}
	return first, err
}

// limitState is the state of a limit. It reports false if there is nothing to tell.
func limitState(
	conn *zombiezen.Conn, now int64, limit storage.LimitName,
) (state storage.Limit, there bool, err error) {
	ask := func(sql string, args ...any) *statement { return query(conn, sql, args...) }
	c, err := readCounter(ask, limit)
	if err != nil {
		return state, false, err
	}
	sql := waitingOfKey
	switch limit.Kind {
	case storage.LimitQueue:
		sql = waitingOfQueue
	case storage.LimitType:
		sql = waitingOfType
	}
	waiting, bounds := 0, c.Last
	q := ask(sql, limit.Name, now)
	if q.next() {
		waiting = q.int()
		if limit.Kind == storage.LimitKey && bounds == "" {
			bounds = q.text()
		}
	}
	if err := q.close(); err != nil {
		return state, false, err
	}
	var own ojs.RateLimit
	if bounds != "" {
		if own, err = rows.ReadBounds(bounds); err != nil {
			return state, false, err
		}
	}
	state, there, err = c.State(own, waiting, now, startOf(ask, c))
	if rate := state.Bounds.Rate; err == nil && rate.Limit > 0 {
		q := ask(countStarts, string(limit.Kind), limit.Name, now-int64(rate.Per))
		if q.next() {
			state.Starts = q.int()
		}
		err = q.close()
	}
	return state, there, err
}
