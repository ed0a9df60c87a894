package crashtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

// journal is a file in which a process writes down what it does. The data of a write
// outlives the process.
type journal struct {
	mu sync.Mutex // held for a write, so that none is cut short but the last
	f  *os.File
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &journal{f: f}, err
}

// write panics if it fails: a handler without an entry must not go on.
func (j *journal) write(lines string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.f.WriteString(lines); err != nil {
		panic(err)
	}
}

func (j *journal) started(id string, attempt int) {
	j.write(fmt.Sprintln("started", id, attempt, wall.Now().UnixNano(), os.Getpid()))
}

func (j *journal) succeeded(id string, attempt int) {
	j.write(fmt.Sprintln("succeeded", id, attempt, wall.Now().UnixNano(), os.Getpid()))
}

func (j *journal) enqueued(tickets []ojs.Ticket) {
	var b strings.Builder
	for _, t := range tickets {
		fmt.Fprintln(&b, "enqueued", t.ID, 0, wall.Now().UnixNano(), os.Getpid())
	}
	j.write(b.String())
}

// run names an attempt.
type run struct {
	id      string
	attempt int
}

// act is something that was written down.
type act struct {
	at  time.Time
	pid int
}

// history is what all journals of a test tell.
type history struct {
	enqueued  map[string]act
	started   map[run][]act
	succeeded map[run][]act
}

func readJournals(t *testing.T, pattern string) *history {
	h := &history{make(map[string]act), make(map[run][]act), make(map[run][]act)}
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(b), "\n")
		// what follows the last newline was cut short, by a kill within the write
		for _, line := range lines[:len(lines)-1] {
			var verb string
			var r run
			var ns int64
			var a act
			if _, err := fmt.Sscan(line, &verb, &r.id, &r.attempt, &ns, &a.pid); err != nil {
				t.Fatalf("%s: %q: %v", name, line, err)
			}
			a.at = time.Unix(0, ns)
			switch verb {
			case "enqueued":
				h.enqueued[r.id] = a
			case "started":
				h.started[r] = append(h.started[r], a)
			case "succeeded":
				h.succeeded[r] = append(h.succeeded[r], a)
			}
		}
	}
	return h
}
