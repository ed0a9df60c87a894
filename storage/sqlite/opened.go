package sqlite

import (
	"os"
	"slices"
	"sync"
)

// The locks of a file on Unix belong to the process, and closing any descriptor of the
// file drops them all: a look at a file that SQLite has open here already would take
// SQLite's locks from it, and another process that closes the file would then remove the
// log that this one still writes. So the package knows which files it has open, and looks
// at others only.
var opened struct {
	mu    sync.Mutex // held for an Open; guards the files
	files []os.FileInfo
}

// isOpen reports whether a storage of this process has a file open, under any of the
// file's names. opened.mu is held.
func isOpen(path string) bool {
	info, err := os.Stat(path)
	return err == nil && slices.ContainsFunc(opened.files, func(f os.FileInfo) bool {
		return os.SameFile(f, info)
	})
}

// keepOpen notes that a storage has a file open, under opened.mu, and returns what it is
// known by.
func keepOpen(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if err == nil {
		opened.files = append(opened.files, info)
	}
	return info, err
}

// letGo notes that a storage has closed its file.
func letGo(info os.FileInfo) {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if i := slices.Index(opened.files, info); i >= 0 {
		opened.files = slices.Delete(opened.files, i, i+1)
	}
}
