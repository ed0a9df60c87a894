package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/fail"
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
	return s.atomically(ctx, func(t *tx) {
		of := []storage.LimitName{limit}
		t.lockLimits(rows.Nanos(now), of)
		c := &t.counters(of)[limit].Counter
		change(c)
		setting := ""
		if c.Setting != nil {
			setting = fail.Must(rows.Bounds(c.Setting))
		}
		t.notice.Available = true
		var look any // queues and types are few, and stay
		if limit.Kind == storage.LimitKey {
			look = later(rows.Nanos(now), idlePeriod)
		}
		t.exec(setLimitSQL, string(limit.Kind), limit.Name, setting, c.Until, c.Blocked,
			c.Window, c.Most, look)
		if limit.Kind == storage.LimitKey {
			t.exec(judgeSQL, []string{limit.Name})
			return
		}
		// The commit has every process, this one too, tell of the ends of jobs that the
		// limit counts.
		t.exec(notifySQL, s.channel(), []string{"tx w"})
	})
}

// GetLimit implements storage.Storage.
func (s *Storage) GetLimit(
	ctx context.Context, now time.Time, limit storage.LimitName,
) (storage.Limit, error) {
	if err := storage.CheckLimit(limit, ojs.RateLimit{}); err != nil {
		return storage.Limit{}, err
	}
	return ask(s.in(ctx), func(t *tx) (state storage.Limit) {
		if sayable(limit.Name) {
			state = t.limitState(rows.Nanos(now), limit)
		}
		if !rule.Known(&state) {
			fail.With(fmt.Errorf("%w: limit of %s %q", ojs.ErrNotFound, limit.Kind, limit.Name))
		}
		return state
	})
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
	err = s.in(ctx).run(func(t *tx) {
		for len(list) < most {
			var next []string
			if t.query(nextLimitSQL, values(&next), string(kind), after); len(next) == 0 {
				return
			}
			after = next[0]
			state := t.limitState(rows.Nanos(now), storage.LimitName{Kind: kind, Name: after})
			if rule.Listed(&state) {
				list = append(list, state)
			}
		}
	})
	return list, err
}

// waitingSQL are statements that count the jobs of a limit that wait at $2. They return
// the bounds of one of them, too.
var waitingSQL = map[storage.LimitKind]statement{
	storage.LimitKey:   defineWaiting("waitingOfKey", "j.rate_key = $1 AND j.bounds IS NOT NULL"),
	storage.LimitQueue: defineWaiting("waitingOfQueue", "j.queue = $1"),
	storage.LimitType:  defineWaiting("waitingOfType", "split_part(j.type, '@', 1) = $1 AND j.attempt >= 0"),
}

func defineWaiting(name, of string) statement {
	return define(name, `SELECT count(*), coalesce(min(j.bounds), '') FROM {schema}.ready j
		WHERE (j.wake IS NULL OR j.wake > $2) AND `+of)
}

var countStartsSQL = define("countStarts",
	`SELECT count(*) FROM {schema}.job_start WHERE kind = $1 AND name = $2 AND at > $3`)

// limitState is the state of a limit.
func (t *tx) limitState(now int64, limit storage.LimitName) storage.Limit {
	l := t.counters([]storage.LimitName{limit})[limit]
	var waiting int
	var bounds string
	if t.query(waitingSQL[limit.Kind], one(&waiting, &bounds), limit.Name, now); l.Last != "" {
		bounds = l.Last
	}
	var own ojs.RateLimit
	if bounds != "" && limit.Kind == storage.LimitKey {
		own = fail.Must(rows.ReadBounds(bounds))
	}
	state := fail.Must(l.State(own, waiting, now, l.startOf(now)))
	if rate := state.Bounds.Rate; rate.Limit > 0 {
		t.query(countStartsSQL, one(&state.Starts), string(limit.Kind), limit.Name, now-int64(rate.Per))
	}
	return state
}
