package memdir

import (
	"os"
	"testing"
)

func TestDir(t *testing.T) {
	t.Setenv("TMPDIR", "")
	if f, err := os.CreateTemp(Dir(), "memdir"); err != nil {
		t.Error(err)
	} else if err := os.Remove(f.Name()); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	if free(dir+"/none") != 0 {
		t.Error("a directory that does not exist has room")
	}
	t.Setenv("TMPDIR", dir)
	if got := Dir(); got != dir {
		t.Errorf("%s goes before TMPDIR", got)
	}
}
