package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs"
)

// parameters is how drivers of SQLite write settings behind a path.
var parameters = regexp.MustCompile(`\?\w+=`)

// checkPath refuses a path that names no regular file, before SQLite makes files of odd
// names or fails without a reason.
func checkPath(path string) error {
	bad := func(reason string, args ...any) error {
		reason = fmt.Sprintf(reason, args...)
		return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "path", Reason: reason}
	}
	const memory = "use storage/memory for jobs in memory, or a file in a temporary directory"
	switch {
	case path == "":
		return bad("is empty: name a file, such as jobs.db")
	case strings.Contains(path, ":memory:") || strings.Contains(path, "mode=memory"):
		return bad("%q is no file: %s", path, memory)
	case strings.HasPrefix(path, "file:"):
		return bad("%q is a URI: give the path alone, such as jobs.db", path)
	case parameters.MatchString(path):
		return bad("%q has parameters: give the path alone, such as jobs.db", path)
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return bad("%q is a directory: name a file in it, such as %s", path, filepath.Join(path, "jobs.db"))
	} else if err == nil && !info.Mode().IsRegular() {
		return bad("%q is no regular file", path)
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return bad("%q: %s is a file, and no directory", path, dir)
	}
	return nil
}

// cause is an error in words of our own, with the error that it explains.
type cause struct {
	text string
	err  error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.err }

// explain says why SQLite could not open a file, if the file system shows it.
func (s *store) explain(err error) error {
	switch zombiezen.ErrCode(err).ToPrimary() {
	case zombiezen.ResultCantOpen, zombiezen.ResultReadOnly, zombiezen.ResultPerm, zombiezen.ResultIOErr:
	default:
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	dir := filepath.Dir(s.path)
	if _, why := os.Stat(dir); errors.Is(why, fs.ErrNotExist) {
		return &cause{"the directory " + dir + " does not exist: make it first", errors.Join(why, err)}
	}
	_, missing := os.Stat(s.path)
	if errors.Is(missing, fs.ErrNotExist) && s.config.asIs {
		return &cause{"there is no such file, and WithoutMigration makes none", errors.Join(missing, err)}
	}
	if why := writable(dir); why != nil {
		text := fmt.Sprintf("the directory %s cannot be written to (%v), and SQLite writes files beside the "+
			"database: use a directory that this process may write to", dir, why)
		return &cause{text, errors.Join(why, err)}
	}
	if why := writable(s.path); missing == nil && why != nil {
		return &cause{fmt.Sprintf("the file cannot be written to (%v)", why), errors.Join(why, err)}
	}
	return err
}
