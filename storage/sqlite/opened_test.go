package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// envLook names a file for a child of TestOpenTwiceKeepsLocks.
const envLook = "OJS_TEST_LOOK"

// lookAsChild is the child: it opens the file, says how many jobs there are, and closes
// it.
func lookAsChild() {
	path := os.Getenv(envLook)
	if path == "" {
		return
	}
	s, err := sqlite.Open(context.Background(), path)
	if err == nil {
		var counts []storage.Count
		counts, err = s.Counts(context.Background())
		for _, c := range counts {
			fmt.Print(c.N)
		}
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		fmt.Print(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A second storage on a file leaves the first one's locks alone. Without them another
// process that comes and goes takes the log with it that this one still writes.
func TestOpenTwiceKeepsLocks(t *testing.T) {
	one := fresh(t)
	path := file(t, one)
	must(t, insert(one, record(0))) // which it holds its locks since
	other, err := sqlite.Open(t.Context(), path)
	must(t, err)
	defer other.Close()
	for n := 1; n < 3; n++ {
		must(t, insert([]storage.Storage{one, other}[n%2], record(n)))
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), envLook+"="+path)
		out, err := child.CombinedOutput()
		if want := fmt.Sprint(n + 1); err != nil || string(out) != want {
			t.Fatalf("another process sees %s jobs and not %s: %v", out, want, err)
		}
		if _, err := os.Stat(path + "-wal"); err != nil {
			t.Fatalf("the log of a file that is open: %v", err)
		}
	}
}
