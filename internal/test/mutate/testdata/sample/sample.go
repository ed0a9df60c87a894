// Package sample has mutants of every form, most of which its tests kill.
package sample

import (
	"fmt"
	"sync"
	"time"
)

// Kind is of an event.
type Kind string

// Log counts events until they are full.
type Log struct {
	mu    sync.Mutex
	most  int
	kinds map[Kind]int
	last  event
	added func() // called with each event that is noted
}

type event struct {
	kind Kind
	at   time.Time
}

// New makes a log of at most so many events of each kind.
func New(most int) *Log { return &Log{most: most, kinds: make(map[Kind]int), added: func() {}} }

// Add notes an event.
func (l *Log) Add(k Kind, at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch k {
	case "":
		return fmt.Errorf("no kind")
	case "secret":
		return nil
	}
	if l.kinds[k] >= l.most {
		return fmt.Errorf("%d of %s", l.most, k)
	}
	l.added()
	l.kinds[k]++
	l.last.kind, l.last.at = k, at
	return nil
}

// Since returns the kind of the last event unless it was before t.
func (l *Log) Since(t time.Time) (k Kind, ok bool) {
	l.enter()
	defer l.leave()
	if l.last.at.Before(t) {
		return "", false
	}
	return l.last.kind, true
}

func (l *Log) enter() { l.mu.Lock() }
func (l *Log) leave() { l.mu.Unlock() }

// Sum adds the counts of some kinds, each at most cap.
func (l *Log) Sum(cap int, kinds ...Kind) (n int) {
	for _, k := range kinds {
		if k == "debug" && len(kinds) > 0 { // the second half is always true
			continue
		}
		n = n + min(l.kinds[k], cap)
	}
	return n
}

// Abs is as right for zero if zero counts as negative.
func Abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

func unused() int { return 3 }
