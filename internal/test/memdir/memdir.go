// Package memdir finds the directory for the files of tests. No test asks what a loss of
// power leaves, so that the files may be in memory.
package memdir

import (
	"flag"
	"os"
)

// room is how many bytes a directory in memory has to have free. The longest tests of the
// storages write some of them, several at once.
const room = 8 << 30

// Dir returns a directory in memory, so that tests do not wait for a disk. It returns
// os.TempDir if TMPDIR is set, if no such directory has room, or if benchmarks run.
func Dir() string {
	const shared = "/dev/shm"
	if os.Getenv("TMPDIR") == "" && !benchmarks() && free(shared) >= room {
		return shared
	}
	return os.TempDir()
}

func benchmarks() bool {
	if !flag.Parsed() { // TestMain comes before
		flag.Parse()
	}
	f := flag.Lookup("test.bench")
	return f != nil && f.Value.String() != ""
}
