package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ojsengine/ojs/storage/keyed"
)

// A process that is killed leaves active jobs without a handler. Their leases may last
// for half an hour, but the operating system knows at once that the process is gone. So
// each open storage holds a lock on a file of its own, the database's name with "-live-"
// and some digits, and its claims name it (keyed.Storage.Enter):
//
//  1. Open makes the file, locks it, and adds its name to the table, in this order: a
//     file that is not locked has no living owner.
//  2. At each look at what others have written (WithPoll), and when it is opened, a
//     storage tries the lock of each other holder. If it gets it, the holder's process
//     has ended: in one transaction the holder's active jobs come due as if their leases
//     had run out, and the holder leaves the table. Then the file goes.
//  3. Close removes the file before it lets go of the lock. A holder without a file is
//     not known to be dead: the database may be a copy, or have another name. Its jobs
//     wait for their leases.
//
// A process that tries the lock takes it shared, so that several that try at once do not
// take each other for the owner. An owner whose new file is tried, or removed as a stray,
// before it has locked it makes another one. Where there are no such locks, or no file
// can be made, there are no holders, and jobs wait for their leases.
type holder struct {
	base  string   // of the files' names
	file  *os.File // locked; nil: it is none
	name  string
	known []string // the others that look has to look at; nil: not known
}

const liveInfix = "-live-"

// newHolder makes the file of a holder of the database.
func newHolder(path string, mode os.FileMode) *holder {
	h := &holder{base: path}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		h.base = real
	}
	if abs, err := filepath.Abs(h.base); err == nil { // the process may go elsewhere
		h.base = abs
	}
	h.base += liveInfix
	for range 10 {
		name := rand.Text()
		f, err := createBeside(h.base+name, mode, os.O_EXCL)
		if err != nil {
			return h
		}
		got, able := lockFile(f, true)
		there, err := os.Stat(h.base + name)
		if mine, mineErr := f.Stat(); got && able && err == nil && mineErr == nil &&
			os.SameFile(there, mine) {
			h.file, h.name = f, name
			return h
		}
		_ = os.Remove(h.base + name)
		_ = f.Close()
		if !able {
			return h
		}
	}
	return h
}

// leave removes the file, and then the lock.
func (h *holder) leave() error {
	if h.file == nil {
		return nil
	}
	_ = os.Remove(h.base + h.name) // or another one does
	return h.file.Close()
}

// fate is what is known of a holder.
type fate int

const (
	alive   fate = iota // or not known
	dead                // its process has ended
	missing             // there is no file
)

// fateOf tries the lock of another holder.
func (h *holder) fateOf(name string) fate {
	f, err := os.Open(h.base + name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing
	case err != nil:
		return alive
	}
	defer f.Close()
	if got, able := lockFile(f, false); got && able {
		return dead
	}
	return alive
}

// enter adds the holder to the table, and buries those whose processes have ended. Then
// their files go.
func (h *holder) enter(ctx context.Context, k *keyed.Storage) error {
	if h.file == nil {
		return nil
	}
	others, err := k.Handles(ctx)
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	for _, name := range others {
		known[name] = true
		if h.bury(ctx, k, name) == missing {
			if err := k.Leave(ctx, name); err != nil {
				return err
			}
		}
	}
	if err := k.Enter(ctx, h.name); err != nil {
		return err
	}
	known[h.name] = true
	dir, prefix := filepath.Split(h.base)
	entries, _ := os.ReadDir(dir)
	// of processes that ended before they were in the table, or after they were buried
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), prefix); ok && !known[name] && h.fateOf(name) == dead {
			_ = os.Remove(h.base + name) // or another process does
		}
	}
	return nil
}

// bury has the jobs of a holder come due if its process has ended.
func (h *holder) bury(ctx context.Context, k *keyed.Storage, name string) fate {
	f := h.fateOf(name)
	if f != dead {
		return f
	}
	if _, err := k.Bury(ctx, name); err != nil {
		return alive
	}
	_ = os.Remove(h.base + name) // or another process does
	return dead
}

// look buries the holders whose processes have ended. One goroutine calls it.
func (h *holder) look(k *keyed.Storage, changed bool) {
	if h.file == nil {
		return
	}
	ctx := context.Background()
	if changed || h.known == nil {
		if others, err := k.Handles(ctx); err == nil {
			h.known = others
		}
	}
	h.known = slices.DeleteFunc(h.known, func(name string) bool {
		return name == h.name || h.bury(ctx, k, name) != alive
	})
}
