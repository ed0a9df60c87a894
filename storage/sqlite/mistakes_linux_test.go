package sqlite_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ojsengine/ojs/storage/sqlite"
)

// A file on a read-only mount cannot be written to, whether it exists or not. A process
// without the right to mount skips the test.
func TestReadOnlyMount(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Skip("no right to mount: ", err)
	}
	defer func() { must(t, syscall.Unmount(dir, 0)) }()
	there := filepath.Join(dir, "there.db")
	s, err := sqlite.Open(t.Context(), there)
	must(t, err)
	must(t, insert(s, record(0)))
	must(t, s.Close())
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	for _, path := range []string{there, filepath.Join(dir, "new.db")} {
		s, err := sqlite.Open(t.Context(), path)
		if err == nil {
			must(t, s.Close())
		}
		want := "opening " + path + ": the directory " + dir + " cannot be written to (read-only file " +
			"system), and SQLite writes files beside the database: use a directory that this process may write to"
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, syscall.EROFS) {
			t.Errorf("error %v\nwant  %s", err, want)
		}
	}
}
