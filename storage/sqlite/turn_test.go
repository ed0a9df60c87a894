package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// openTwice opens two storages on one new file, which need each other's turns as those of
// two processes do.
func openTwice(t *testing.T, opts ...sqlite.Option) (one, other *sqlite.Storage) {
	one = fresh(t, opts...)
	other, err := sqlite.Open(t.Context(), file(t, one), opts...)
	must(t, err)
	t.Cleanup(func() { must(t, other.Close()) })
	return one, other
}

// The process that waits first writes first.
func TestTurns(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("this system has no locks that the turns are made of")
	}
	one, other := openTwice(t)
	path := file(t, one)
	release, err := sqlite.Writing(path)
	must(t, err)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- insert(one, record(1)) }()
	began, taken := time.Now(), false
	for !taken && time.Since(began) < time.Minute {
		taken, err = sqlite.TurnTaken(path)
		must(t, err)
	}
	if !taken {
		t.Error("who waits has not taken the turn")
	}
	go func() { second <- insert(other, record(2)) }()
	must(t, release())
	must(t, <-second)
	must(t, <-first)
	page, err := one.List(t.Context(), storage.Query{})
	must(t, err)
	if len(page.Records) != 2 || page.Records[0].ID != record(1).ID {
		t.Errorf("the second has written before the first: %+v", page.Records)
	}
}

// The end of the context ends an Open that waits for another process.
func TestOpenWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	must(t, reopen(t, path).Close())
	release, err := sqlite.Writing(path)
	must(t, err)
	defer func() { must(t, release()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := sqlite.Open(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// The wait for another process that keeps writing ends with the busy timeout.
func TestBusyTimeout(t *testing.T) {
	one, other := openTwice(t, sqlite.WithBusyTimeout(30*time.Millisecond))
	release, err := sqlite.Writing(file(t, one))
	must(t, err)
	for range 2 {
		if err := insert(other, record(1)); err == nil || !strings.HasPrefix(err.Error(), "ojs: sqlite: ") {
			t.Errorf("somebody else writes: %v", err)
		}
	}
	must(t, release())
	must(t, insert(other, record(1)))
	must(t, insert(one, record(2)))
}
