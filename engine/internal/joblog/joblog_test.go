package joblog_test

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/engine/internal/joblog"
)

func TestLines(t *testing.T) {
	var l joblog.Lines
	if array, n, cut := l.List(); array != nil || n+cut != 0 {
		t.Errorf("empty lines: %s, %d, %d cut", array, n, cut)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	other := slog.NewTextHandler(io.Discard, nil)
	log := slog.New(l.Tee(other, slog.LevelWarn, func() time.Time { return at }))
	log.Info("below the level")
	log.With("a", 1).WithGroup("g").Warn("one", "b", 2)
	log.Error("two")
	array, n, cut := l.List()
	const want = `[{"time":"2026-03-01T12:00:00Z","level":"WARN","msg":"one","a":1,"g":{"b":2}},` +
		`{"time":"2026-03-01T12:00:00Z","level":"ERROR","msg":"two"}]`
	if string(array) != want || n != 2 || cut != 0 {
		t.Errorf("%s, %d, %d cut", array, n, cut)
	}
}

// Invariant 2.
func TestCut(t *testing.T) {
	var l joblog.Lines
	line := []byte(`"` + strings.Repeat("x", 1000) + `"` + "\n")
	for range 200 {
		if n, err := l.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	_, _ = l.Write(make([]byte, joblog.Max+1))
	array, n, cut := l.List()
	if n != joblog.Max/len(line) || cut != 201-n || len(array) > joblog.Max+1 {
		t.Errorf("%d lines of %d bytes, %d cut", n, len(array), cut)
	}
}
