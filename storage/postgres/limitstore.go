package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

// SetLimit implements storage.Storage. In a context of WithTx it is part of that
// transaction.
func (s *Storage) SetLimit(
	ctx context.Context, now time.Time, limit storage.LimitName, bounds ojs.RateLimit, until time.Time,
) error {
	if err := storage.CheckLimit(limit, bounds); err != nil {
		return err
	}
	return s.changeLimit(ctx, now, limit, func(c *rows.Counter) { c.Set(bounds, until) })
}

// BlockLimit implements storage.Storage. In a context of WithTx it is part of that
// transaction.
func (s *Storage) BlockLimit(
	ctx context.Context, now time.Time, limit storage.LimitName, until time.Time,
) error {
	if err := storage.CheckLimit(limit, ojs.RateLimit{}); err != nil {
		return err
	}
	return s.changeLimit(ctx, now, limit, func(c *rows.Counter) { c.Block(until) })
}

var setLimitSQL = define("setLimit", `INSERT INTO {schema}.job_limit (kind, name, setting, until, blocked, period, most, look)
		VALUES ($1, $2, nullif($3, ''), nullif($4::bigint, {none}), nullif($5::bigint, {none}), $6, $7, $8)
		ON CONFLICT (kind, name) DO UPDATE SET setting = excluded.setting, until = excluded.until,
			blocked = excluded.blocked, period = excluded.period, most = excluded.most`)

// changeLimit changes what has been set of a limit.
func (s *Storage) changeLimit(
	ctx context.Context, now time.Time, limit storage.LimitName, change func(*rows.Counter),
) error {
	if !sayable(limit.Name) {
		return invalid("limit.name", "holds a zero byte or is no UTF-8")
	}
	return s.atomically(ctx, func(ctx context.Context, tx transaction, n *storage.Notice) error {
		of := []storage.LimitName{limit}
		if err := s.lockLimits(ctx, tx, rows.Nanos(now), of); err != nil {
			return err
		}
		counters, err := s.counters(ctx, tx, of)
		if err != nil {
			return err
		}
		c := &counters[limit].Counter
		change(c)
		setting := ""
		if c.Setting != nil {
			if setting, err = rows.Bounds(c.Setting); err != nil {
				return err
			}
		}
		n.Available = true
		var look any // queues and types are few, and stay
		if limit.Kind == storage.LimitKey {
			look = later(rows.Nanos(now), idlePeriod)
		}
		err = tx.exec(ctx, s.sql[setLimitSQL], string(limit.Kind), limit.Name, setting, c.Until, c.Blocked,
			c.Window, c.Most, look)
		switch {
		case err != nil:
			return err
		case limit.Kind == storage.LimitKey:
			return tx.exec(ctx, s.sql[judgeSQL], []string{limit.Name})
		}
		// The commit has every process, this one too, tell of the ends of jobs that the
		// limit counts.
		return tx.exec(ctx, s.sql[notifySQL], s.channel(), []string{"tx w"})
	})
}

// GetLimit implements storage.Storage.
func (s *Storage) GetLimit(
	ctx context.Context, now time.Time, limit storage.LimitName,
) (storage.Limit, error) {
	if err := storage.CheckLimit(limit, ojs.RateLimit{}); err != nil {
		return storage.Limit{}, err
	}
	if err := s.enter(ctx); err != nil {
		return storage.Limit{}, err
	}
	defer s.mu.RUnlock()
	var state storage.Limit
	var err error
	if sayable(limit.Name) {
		state, err = s.limitState(ctx, rows.Nanos(now), limit)
	}
	if err == nil && !rule.Known(&state) {
		err = fmt.Errorf("%w: limit of %s %q", ojs.ErrNotFound, limit.Kind, limit.Name)
	}
	if err != nil {
		return storage.Limit{}, wrap(err)
	}
	return state, nil
}

// nextLimitSQL returns the first limit after a name that may have jobs, a setting or a
// block.
var nextLimitSQL = define("nextLimit", `SELECT name FROM (
		(SELECT name FROM {schema}.job_limit WHERE kind = $1 AND name > $2 AND (setting IS NOT NULL OR blocked IS NOT NULL)
			ORDER BY name LIMIT 1)
		UNION ALL (SELECT rate_key FROM {schema}.active WHERE $1 = 'key' AND bounds IS NOT NULL AND rate_key > $2 ORDER BY rate_key LIMIT 1)
		UNION ALL (SELECT rate_key FROM {schema}.ready WHERE $1 = 'key' AND bounds IS NOT NULL AND rate_key > $2 ORDER BY rate_key LIMIT 1)) n
		ORDER BY name LIMIT 1`)

// ListLimits implements storage.Storage.
func (s *Storage) ListLimits(
	ctx context.Context, now time.Time, kind storage.LimitKind, after string, most int,
) (list []storage.Limit, err error) {
	if err := storage.CheckLimit(storage.LimitName{Kind: kind, Name: "any"}, ojs.RateLimit{}); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.RUnlock()
	for len(list) < most {
		some := false
		err := s.in(ctx).query(ctx, s.sql[nextLimitSQL], []any{string(kind), after}, one(&some, &after))
		if err != nil || !some {
			return list, wrap(err)
		}
		state, err := s.limitState(ctx, rows.Nanos(now), storage.LimitName{Kind: kind, Name: after})
		if err != nil {
			return nil, wrap(err)
		}
		if rule.Listed(&state) {
			list = append(list, state)
		}
	}
	return list, nil
}

// waitingOfKeySQL counts the jobs of a key that wait at $2, and returns the bounds of
// one.
var waitingOfKeySQL = define("waitingOfKey", `SELECT count(*), coalesce(min(j.bounds), '') FROM {schema}.ready j
		WHERE j.rate_key = $1 AND j.bounds IS NOT NULL AND (j.wake IS NULL OR j.wake > $2)`)

var waitingOfQueueSQL = define("waitingOfQueue", `SELECT count(*), '' FROM {schema}.ready j
		WHERE j.queue = $1 AND (j.wake IS NULL OR j.wake > $2)`)

var waitingOfTypeSQL = define("waitingOfType", `SELECT count(*), '' FROM {schema}.ready j
		WHERE split_part(j.type, '@', 1) = $1 AND (j.wake IS NULL OR j.wake > $2) AND j.attempt >= 0`)

var countStartsSQL = define("countStarts",
	`SELECT count(*) FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND at > $3`)

// limitState is the state of a limit.
func (s *Storage) limitState(
	ctx context.Context, now int64, limit storage.LimitName,
) (state storage.Limit, err error) {
	q := s.in(ctx)
	counters, err := s.counters(ctx, q, []storage.LimitName{limit})
	if err != nil {
		return state, err
	}
	t := counters[limit]
	sql := s.sql[waitingOfKeySQL]
	switch limit.Kind {
	case storage.LimitQueue:
		sql = s.sql[waitingOfQueueSQL]
	case storage.LimitType:
		sql = s.sql[waitingOfTypeSQL]
	}
	waiting, some := 0, false
	var bounds string
	if err := q.query(ctx, sql, []any{limit.Name, now}, one(&some, &waiting, &bounds)); err != nil {
		return state, err
	}
	if t.Last != "" {
		bounds = t.Last
	}
	var own ojs.RateLimit
	if bounds != "" {
		if own, err = rows.ReadBounds(bounds); err != nil {
			return state, err
		}
	}
	state, err = t.State(own, waiting, now, s.startOf(ctx, q, t, now))
	if rate := state.Bounds.Rate; err == nil && rate.Limit > 0 {
		args := []any{string(limit.Kind), limit.Name, now - int64(rate.Per)}
		err = q.query(ctx, s.sql[countStartsSQL], args, one(&some, &state.Starts))
	}
	return state, err
}
