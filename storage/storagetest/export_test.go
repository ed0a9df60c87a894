package storagetest

import "time"

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

// SetPatience sets how long a notice is waited for.
func SetPatience(d time.Duration) { patience = d }
