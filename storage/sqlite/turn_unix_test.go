//go:build unix

package sqlite_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ojsengine/ojs/storage/sqlite"
)

// A user with permission to read and write the database may open it, though the lock
// beside it is another user's.
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	dir, err := os.MkdirTemp("", "ojs") // others may go there, and not to TempDir
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o777))
	binary, err := os.ReadFile(os.Args[0])
	must(t, err)
	child := filepath.Join(dir, "child")
	must(t, os.WriteFile(child, binary, 0o755))
	path := filepath.Join(dir, "jobs.db")
	s, err := sqlite.Open(t.Context(), path)
	must(t, err)
	must(t, insert(s, record(1)))
	must(t, s.Close())
	must(t, os.Chmod(path, 0o666)) // it is given to others
	must(t, os.Chmod(path+"-turn", 0o600))
	cmd := exec.Command(child)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), envLook+"="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "1" {
		t.Errorf("another user sees %s jobs and not 1: %v", out, err)
	}
}
