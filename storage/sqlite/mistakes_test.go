package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// TestMistakes opens what is no file for jobs. Each error names the mistake and the
// remedy, and nothing is made.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must(t, os.WriteFile("file", nil, 0o600))
	must(t, os.Mkdir("directory", 0o700))
	for _, tt := range []struct {
		name, path, want string
		is               error
		opts             []sqlite.Option
	}{
		{"in memory", ":memory:",
			"ojs: invalid path: \":memory:\" is no file: use storage/memory for jobs in memory, or a file in a temporary directory", ojs.ErrInvalid, nil},
		{"in memory, as a URI", "file::memory:?cache=shared",
			`ojs: invalid path: "file::memory:?cache=shared" is no file: use storage/memory for jobs in ` +
				"memory, or a file in a temporary directory", ojs.ErrInvalid, nil},
		{"a URI", "file:jobs.db?mode=rwc",
			`ojs: invalid path: "file:jobs.db?mode=rwc" is a URI: give the path ` +
				"alone, such as jobs.db", ojs.ErrInvalid, nil},
		{"parameters of another driver", "jobs.db?_journal=WAL",
			`ojs: invalid path: "jobs.db?_journal=WAL" has ` +
				"parameters: give the path alone, such as jobs.db", ojs.ErrInvalid, nil},
		{"no path", "", "ojs: invalid path: is empty: name a file, such as jobs.db", ojs.ErrInvalid, nil},
		{"a directory", "directory", `ojs: invalid path: "directory" is a directory: name a file in it, ` +
			"such as directory/jobs.db", ojs.ErrInvalid, nil},
		{"the directory of the program", ".", `ojs: invalid path: "." is a directory: name a file in it, ` +
			"such as jobs.db", ojs.ErrInvalid, nil},
		{"a missing directory", "missing/deep/jobs.db",
			"ojs: sqlite: opening missing/deep/jobs.db: the directory missing/deep does not exist: make it first", fs.ErrNotExist, nil},
		{"a missing directory, looked at only", "missing/jobs.db",
			"ojs: sqlite: opening missing/jobs.db: the directory missing does not exist: make it first", fs.ErrNotExist,
			[]sqlite.Option{sqlite.WithoutMigration()}},
		{"a file as a directory", "file/jobs.db",
			`ojs: invalid path: "file/jobs.db": file is a file, and no directory`, ojs.ErrInvalid, nil},
		{"no file, looked at only", "none.db", "ojs: sqlite: opening none.db: there is no such file, and " +
			"WithoutMigration makes none", fs.ErrNotExist, []sqlite.Option{sqlite.WithoutMigration()}},
		{"a device", os.DevNull, `ojs: invalid path: "` + os.DevNull + `" is no regular file`, ojs.ErrInvalid,
			nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := sqlite.Open(t.Context(), tt.path, tt.opts...)
			if err == nil {
				must(t, s.Close())
			}
			if err == nil || err.Error() != tt.want || !errors.Is(err, tt.is) {
				t.Errorf("error %v\nwant  %s", err, tt.want)
			}
		})
	}
	entries, err := os.ReadDir(".")
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("files were made: %v", entries)
	}
	if s, err := sqlite.Open(t.Context(), "100%?.db"); err == nil { // only names of parameters are refused
		must(t, s.Close())
	} else if strings.Contains(err.Error(), "parameters") {
		t.Error(err)
	}
	s, err := sqlite.Open(t.Context(), filepath.Join(dir, "directory", "jobs.db"))
	must(t, err)
	must(t, s.Close())
}
