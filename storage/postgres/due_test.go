package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// afterBatch cancels contexts when a batch with them has ended: each has its CancelFunc
// as the value of afterBatch{}.
type afterBatch struct{}

func (afterBatch) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData,
) context.Context {
	return ctx
}
func (afterBatch) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (afterBatch) TraceBatchStart(
	ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData,
) context.Context {
	return ctx
}
func (afterBatch) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (afterBatch) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	if f, ok := ctx.Value(afterBatch{}).(context.CancelFunc); ok {
		f()
	}
}

// If a Due is cancelled after it has changed jobs, it returns them. The caller has to
// settle the jobs whose leases have expired.
func TestDueHalfway(t *testing.T) {
	cfg := connect(t).Config()
	cfg.ConnConfig.Tracer = afterBatch{}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	s, err := postgres.Open(t.Context(), pool, postgres.WithSchema(schema(t, connect(t))))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	stalled, promoted, expired := record(1), record(2), record(3)
	must(t, insert(t.Context(), s, stalled))
	now := time.Now()
	_, err = s.Claim(t.Context(), now, storage.Claim{Max: 1}, nil)
	must(t, err)
	promoted.State, promoted.ScheduledAt = ojs.StateScheduled, now.Add(time.Minute)
	expired.ExpiresAt = now.Add(time.Minute)
	must(t, insert(t.Context(), s, promoted, expired))
	now = now.Add(2 * time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d, err := s.Due(context.WithValue(ctx, afterBatch{}, cancel), now, 10, nil)
	must(t, err)
	if len(d.Stalled) != 1 || len(d.Promoted) != 1 || len(d.Expired) != 0 || !d.Next.Equal(now) {
		t.Errorf("broken off: %+v", d)
	}
	d, err = s.Due(t.Context(), now, 10, nil)
	must(t, err)
	if len(d.Stalled) != 0 || len(d.Promoted) != 0 || len(d.Expired) != 1 {
		t.Errorf("the rest: %+v", d)
	}
}
