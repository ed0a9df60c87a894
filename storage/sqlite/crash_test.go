package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs/internal/test/crashtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

func openForCrash(ctx context.Context, path string) (storage.Storage, func(), error) {
	// A process that is killed and started on a busy machine gets few turns.
	s, err := sqlite.Open(ctx, path, sqlite.WithBusyTimeout(time.Minute))
	return s, func() {}, err
}

func withinForCrash(s storage.Storage) crashtest.InTx {
	return func(ctx context.Context, f func(context.Context) error) error {
		return s.(*sqlite.Storage).Within(ctx, func(ctx context.Context, _ *zombiezen.Conn) error {
			return f(ctx)
		})
	}
}

// Processes that share a file are killed at any moment. With one worker there are
// moments at which no process has the file open.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 4} {
		t.Run(fmt.Sprint("workers ", workers), func(t *testing.T) {
			crashtest.Run(t, crashtest.Config{Open: openForCrash, At: filepath.Join(t.TempDir(), "jobs.db"),
				Workers: workers, Producers: 1})
		})
	}
}

// A killed process holds its job no longer than others need to notice.
func TestKilledProcess(t *testing.T) {
	crashtest.Killed(t, openForCrash, filepath.Join(t.TempDir(), "jobs.db"))
}
