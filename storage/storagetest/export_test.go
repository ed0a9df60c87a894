package storagetest

import (
	"context"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// Prove runs one case and returns its failures.
func Prove(cfg Config, c Case) []string {
	tb := &quiet{}
	done := make(chan struct{})
	go func() { defer close(done); prove(tb, cfg, c) }()
	<-done
	tb.end()
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.failures
}

// CanRun reports whether a storage of cfg can run the case.
func CanRun(cfg Config, c Case) bool { why, _ := cfg.lacks(nil, c.needs); return why == "" }

// Stepper is a Reference that settles and claims in one step.
type Stepper struct{ *Reference }

// SettleAndClaim implements storage.SettleClaimer.
func (s Stepper) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record, dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	return s.settleAndClaim(ctx, now, to, dst, c, into)
}

// Unclaim implements storage.SettleClaimer.
func (s Stepper) Unclaim(ctx context.Context, _ time.Time, held []storage.Held) (int, error) {
	return s.unclaim(ctx, held)
}

// SetPatience sets how long a notice is waited for.
func SetPatience(d time.Duration) { patience = d }
