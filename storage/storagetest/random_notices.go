package storagetest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// listenerNames are who listens, and who makes calls.
var listenerNames = []string{"one", "two"}

// listener is one who listens in random operations. It hears of each thing that a call of
// another has done, at least once, and of no end and no lost claim that there was not,
// nor of its own.
type listener struct {
	name string
	stop func()

	mu      sync.Mutex // guards notices
	notices []storage.Notice
	more    chan struct{} // a notice has come; capacity 1

	// The things that it has yet to hear. Numbers are how many notices had come before
	// the call.
	available, crons int // -1: nothing
	due              []dueNotice
	ended            map[string]bool
	taken            map[storage.Taken]bool
	aside            map[string]int // keys in the quarantine: how often it was told

	// All that has happened, which it may hear.
	mayEnd   map[string]bool
	mayTaken map[storage.Taken]bool
}

// dueNotice is what a listener has to hear of: something comes due at a time, or earlier.
type dueNotice struct {
	at   time.Time
	from int
}

// listen begins to listen as each of listenerNames. A notice of a call before that may
// come late, when the storage that sent it is closed and does not know its callers.
func (w *world) listen() {
	n, ok := notifier(w.s)
	if !ok || !w.cfg.Notices {
		return
	}
	for _, name := range listenerNames {
		l := &listener{
			name: name, more: make(chan struct{}, 1), available: -1, crons: -1,
			ended: make(map[string]bool), taken: make(map[storage.Taken]bool), aside: make(map[string]int),
			mayEnd: maps.Clone(w.ended), mayTaken: maps.Clone(w.taken),
		}
		l.stop = n.Notify(name, func(n storage.Notice) {
			l.mu.Lock()
			l.notices = append(l.notices, n)
			l.mu.Unlock()
			select {
			case l.more <- struct{}{}:
			default:
			}
		})
		w.listeners = append(w.listeners, l)
	}
}

// deafen stops all listeners.
func (w *world) deafen() {
	for _, l := range w.listeners {
		l.stop()
	}
	w.listeners = nil
}

// heard is how many notices each listener has heard since it had to hear nothing more.
func (w *world) heard() []int {
	list := make([]int, len(w.listeners))
	for i, l := range w.listeners {
		l.mu.Lock()
		list[i] = len(l.notices)
		l.mu.Unlock()
	}
	return list
}

func (w *world) expectAvailable() { w.wants.Available = true }
func (w *world) expectCrons()     { w.wants.Crons = true }

// move is what an operation has done to a job.
type move struct {
	before, after storage.Record // before: zero if the job is new
	steps         uint64         // transitions
}

// expect notes what listeners have to hear of the operation that is over.
func (w *world) expect(name string, moves []move, heard []int) {
	n := w.wants
	w.wants = storage.Notice{}
	loose := make(map[string]bool)
	var looseTaken []storage.Taken
	for _, m := range moves {
		if m.steps == 0 {
			continue
		}
		wake := m.after.WakeAt()
		if wake.Equal(m.before.WakeAt()) {
			wake = time.Time{}
		}
		if m.before.State == ojs.StateAvailable && m.after.State == ojs.StateActive {
			wake = time.Time{} // not every storage tells of leases, which those who look now and then find
		}
		if m.steps > 1 { // what it was meanwhile may have been told
			loose[m.after.ID] = true
			for back := range min(m.steps, m.after.Version) {
				held := storage.Held{
					ID:      m.after.ID,
					Version: m.after.Version - back - 1 + w.ahead[m.after.ID],
				}
				for _, cause := range []error{ojs.ErrCancelled, ojs.ErrReplaced} {
					looseTaken = append(looseTaken, storage.Taken{Held: held, Cause: cause})
				}
			}
			continue
		}
		n.Add(m.after.ID, m.after.State, wake)
		if m.before.State != ojs.StateActive { // a storage need not know that there was no claim
			for _, cause := range []error{ojs.ErrCancelled, ojs.ErrReplaced} {
				held := storage.Held{ID: m.after.ID, Version: m.before.Version + w.ahead[m.after.ID]}
				looseTaken = append(looseTaken, storage.Taken{Held: held, Cause: cause})
			}
		}
		if m.before.State == ojs.StateActive {
			held := storage.Held{ID: m.after.ID, Version: m.before.Version + w.ahead[m.after.ID]}
			replaced := name == "insert" || w.as[m.after.ID] == "insert: replace"
			switch {
			case m.after.State == ojs.StateCancelled && replaced:
				n.Taken = append(n.Taken, storage.Taken{Held: held, Cause: ojs.ErrReplaced})
			case m.after.State == ojs.StateCancelled:
				n.Taken = append(n.Taken, storage.Taken{Held: held, Cause: ojs.ErrCancelled})
			case m.after.State == ojs.StateActive:
				n.Taken = append(n.Taken, storage.Taken{Held: held, Cause: ojs.ErrLeaseLost})
			}
		}
	}
	for i, l := range w.listeners {
		for _, q := range n.Quarantined { // its caller is told, too
			l.aside[q.Key] = 0
		}
		if l.name == w.self {
			continue
		}
		if n.Available {
			l.available = heard[i]
		}
		if n.Crons {
			l.crons = heard[i]
		}
		if !n.Due.IsZero() {
			l.due = append(l.due, dueNotice{n.Due, heard[i]})
		}
		for _, id := range n.Ended {
			l.ended[id], l.mayEnd[id] = true, true
		}
		for _, t := range n.Taken {
			l.taken[t], l.mayTaken[t] = true, true
		}
		for id := range loose {
			l.mayEnd[id] = true
		}
		for _, t := range looseTaken {
			l.mayTaken[t] = true
		}
	}
	for _, id := range slices.Concat(n.Ended, slices.Collect(maps.Keys(loose))) {
		w.ended[id] = true
	}
	for _, t := range slices.Concat(n.Taken, looseTaken) {
		w.taken[t] = true
	}
}

// hear waits until each listener has heard what it has to.
func (w *world) hear() {
	w.rt.Helper()
	for _, l := range w.listeners {
		late := wall.After(patience)
		for missing := l.missing(); missing != ""; missing = l.missing() {
			select {
			case <-l.more:
			case <-late:
				if missing = l.missing(); missing != "" { // a busy machine may be later than the notice
					w.failf("listener %s was not told of %s", l.name, missing)
				}
			}
		}
		if wrong := l.wrong(); wrong != "" {
			w.failf("listener %s was told of %s", l.name, wrong)
		}
		l.mu.Lock()
		l.notices = nil
		l.mu.Unlock()
	}
}

// missing takes in what has been told, and says what has not.
func (l *listener) missing() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, n := range l.notices {
		if n.Available && i >= l.available {
			l.available = -1
		}
		if n.Crons && i >= l.crons {
			l.crons = -1
		}
		for _, id := range n.Ended {
			delete(l.ended, id)
		}
		for _, t := range n.Taken {
			delete(l.taken, t)
		}
		l.due = slices.DeleteFunc(l.due, func(d dueNotice) bool {
			return i >= d.from && !n.Due.IsZero() && !n.Due.After(d.at)
		})
	}
	told := make(map[string]bool)
	for _, n := range l.notices {
		for _, q := range n.Quarantined {
			told[q.Key] = true
		}
	}
	switch {
	case l.available >= 0:
		return "an available job"
	case l.crons >= 0:
		return "a change of recurring entries"
	case len(l.due) > 0:
		return "something due at " + clockText(l.due[0].at)
	}
	for id := range l.ended {
		return "the end of " + nameOf(id)
	}
	for t := range l.taken {
		return fmt.Sprintf(
			"the claim of %s at version %d that was taken: %v",
			nameOf(t.ID),
			t.Version,
			t.Cause,
		)
	}
	for key, times := range l.aside {
		if times == 0 && !told[key] {
			return fmt.Sprintf("the record %s in the quarantine", key)
		}
	}
	return ""
}

// wrong says what was told that did not happen, or happened by calls of the listener's
// own.
func (l *listener) wrong() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.notices {
		for _, id := range n.Ended {
			if !l.mayEnd[id] {
				return fmt.Sprintf(
					"the end of %s, which has not ended or was ended by the listener's own call",
					nameOf(id),
				)
			}
		}
		for _, t := range n.Taken {
			if !l.mayTaken[t] {
				return fmt.Sprintf(
					"the claim of %s at version %d that was taken, %v, which it was not",
					nameOf(t.ID),
					t.Version,
					t.Cause,
				)
			}
		}
		for _, q := range n.Quarantined {
			if l.aside[q.Key]++; l.aside[q.Key] > 1 {
				return fmt.Sprintf("the record %s in the quarantine more than once", q.Key)
			}
		}
	}
	return ""
}
