//go:build unix

package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// Every file that holds jobs, and those beside them, have the mode that is asked for, or
// what the umask leaves, or that of the database.
func TestFileMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	for name, tc := range map[string]struct {
		opts  []sqlite.Option
		there os.FileMode // 0: it is a new file
		want  os.FileMode
	}{
		"default":              {nil, 0, 0o640},
		"own":                  {[]sqlite.Option{sqlite.WithFileMode(0o600)}, 0, 0o600},
		"wider than umask":     {[]sqlite.Option{sqlite.WithFileMode(0o666)}, 0, 0o666},
		"a file that is there": {[]sqlite.Option{sqlite.WithFileMode(0o666)}, 0o600, 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "jobs.db")
			if tc.there != 0 {
				must(t, os.WriteFile(path, nil, tc.there))
			}
			s, err := sqlite.Open(t.Context(), path, tc.opts...)
			must(t, err)
			defer s.Close()
			must(t, insert(s, record(1)))
			files, err := os.ReadDir(dir)
			must(t, err)
			if len(files) < 5 {
				t.Errorf("there are only %d files: %v", len(files), files)
			}
			for _, f := range files {
				info, err := f.Info()
				must(t, err)
				if got := info.Mode().Perm(); got != tc.want {
					t.Errorf("%s has the mode %o and not %o", f.Name(), got, tc.want)
				}
			}
		})
	}
	for _, mode := range []os.FileMode{0, 0o400, 0o077, os.ModeSetuid | 0o600} {
		var invalid *ojs.InvalidError
		_, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "x"), sqlite.WithFileMode(mode))
		if !errors.As(err, &invalid) || invalid.Field != "file_mode" {
			t.Errorf("%v: %v", mode, err)
		}
	}
}
