package sqlite

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A process that is killed leaves active jobs without a handler. Their leases may last
// for half an hour, but the operating system knows at once that the process is gone. So
// each open storage holds a lock on a file of its own, the database's name with "-live-"
// and some digits, and its claims name it (holder in the schema):
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
	base string   // of the files' names
	file *os.File // locked; nil: it is none
	name string
	id   int64
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

// enter adds the holder to the table, and buries those whose processes have ended. It
// returns the files that are to be removed then.
func (h *holder) enter(t *tx) (files []string, err error) {
	if h.file == nil {
		return nil, nil
	}
	t.written = true
	others, err := h.others(t)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{h.name: true}
	for id, name := range others {
		known[name] = true
		switch h.fateOf(name) {
		case dead:
			files = append(files, h.base+name)
			if err := t.bury(id); err != nil {
				return nil, err
			}
		case missing:
			if err := t.exec(deleteHolder, id); err != nil {
				return nil, err
			}
		}
	}
	if err := t.exec(insertHolder, h.name); err != nil {
		return nil, err
	}
	h.id = t.conn.LastInsertRowID()
	dir, prefix := filepath.Split(h.base)
	entries, _ := os.ReadDir(dir)
	// of processes that ended before they were in the table, or after they were buried
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), prefix); ok && !known[name] && h.fateOf(name) == dead {
			files = append(files, h.base+name)
		}
	}
	return files, nil
}

// others returns the names of the other holders.
func (h *holder) others(t *tx) (map[int64]string, error) {
	others := make(map[int64]string)
	q := t.query(selectHolders)
	for q.next() {
		id := q.int64()
		if name := q.text(); name != h.name {
			others[id] = name
		}
	}
	return others, q.close()
}

// bury has the jobs of a holder come due whose process has ended.
func (t *tx) bury(id int64) error {
	t.written = true
	if err := t.exec(deleteHolder, id); err != nil {
		return err
	}
	if t.conn.Changes() == 0 { // another one was faster
		return nil
	}
	return t.exec(loseLeases, id)
}

// watchHolders buries the holders whose processes have ended. It is the writer's.
func (w *writer) watchHolders(changed bool) (buried bool) {
	if w.holder.file == nil {
		return false
	}
	if changed || w.others == nil {
		if others, err := w.holder.others(&tx{conn: w.conn}); err == nil {
			w.others = others
		}
	}
	for id, name := range w.others {
		switch w.holder.fateOf(name) {
		case missing:
			delete(w.others, id)
		case dead:
			if w.run(func(t *tx) error { return t.bury(id) }) == nil {
				_ = os.Remove(w.holder.base + name)
				delete(w.others, id)
				buried = true
			}
		}
	}
	return buried
}

// run makes a call of the writer's own.
func (w *writer) run(f func(*tx) error) error {
	c := &call{f: f, ended: make(chan struct{})}
	group := []*call{c}
	w.transact(&group)
	for _, c := range group {
		close(c.ended)
	}
	return c.err
}
