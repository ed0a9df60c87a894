// Package claims keeps the books of an engine's claims, and of those of workers that
// fetch from it: claims under way, those that were lost meanwhile, and those whose answer
// was lost.
//
// A call that claims may fail after the storage has taken jobs, or before: a server may
// still commit what its client has given up. The jobs are active then, and no attempt of
// the engine has them. So the engine asks for its active jobs at once, and again after 1
// s, 10 s and 60 s, and gives back those that Unknown returns. Only this engine claims
// under its worker id. A worker may fetch from several engines. A job that it has fetched
// from another one at the time of a failed claim goes back, too.
//
// # Invariants
//
//  1. A claim is under way from before its call until its jobs have attempts.
//  2. A claim that is lost while any is under way is known until none is.
//  3. A job is unknown only if it was claimed at the time of a failed claim, no attempt
//     has it, none that has lost its lease or given up its outcome had it, and no claim
//     under way has that time.
package claims

import (
	"slices"
	"sync"
	"time"

	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/storage"
)

// Book is that of one engine or worker. The zero Book is ready. The lock of its owner
// guards it.
type Book struct {
	steps      int                   // that claim
	asking     []int64               // the times of claims under way
	unanswered []unanswered          // claims that have failed, and may have taken jobs
	retired    map[string]int64      // jobs that others settle, and when they were claimed
	early      map[storage.Held]bool // claims that were lost while others were under way
	met        bool                  // Unknown has left jobs to a claim under way
}

// unanswered is a claim that has failed.
type unanswered struct {
	at    int64
	looks int       // that the storage has answered
	next  time.Time // when to look next
}

// looksAfter are the pauses between the looks for the jobs of a failed claim.
var looksAfter = [...]time.Duration{time.Second, 10 * time.Second, time.Minute}

// maxUnanswered bounds the failed claims that are looked for: jobs of the oldest wait for
// their leases.
const maxUnanswered = 1000

// Step is a step that claims, once past the gate of an engine and once through it at
// most.
type Step struct {
	Book *Book
	Mu   sync.Locker // that guards the book
	at   [2]time.Time
	n    int // of at
}

// Asks records that a claim of the step is under way since now.
func (s *Step) Asks(now time.Time) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.n == 0 {
		s.Book.steps++
	}
	s.at[s.n] = now
	s.n++
	s.Book.asking = append(s.Book.asking, now.UnixNano())
}

// End ends the step: its jobs have attempts. It reports whether Unknown has left jobs to
// a claim under way since the last End. The caller holds Mu.
func (s *Step) End() (met bool) {
	b := s.Book
	if s.n == 0 {
		return false
	}
	for _, at := range s.at[:s.n] {
		i, last := slices.Index(b.asking, at.UnixNano()), len(b.asking)-1
		b.asking[i] = b.asking[last]
		b.asking = b.asking[:last]
	}
	s.n = 0
	if b.steps--; b.steps == 0 {
		clear(b.early)
	}
	met, b.met = b.met, false
	return met
}

// Lost records that a claim was lost for which there is no attempt.
func (b *Book) Lost(held storage.Held) {
	if b.steps == 0 {
		return
	}
	if b.early == nil {
		b.early = make(map[storage.Held]bool)
	}
	b.early[held] = true
}

// WasLost reports whether a claim that returns was lost meanwhile.
func (b *Book) WasLost(held storage.Held) bool { return b.early[held] }

// Fail records that a claim at a time has failed, now.
func (b *Book) Fail(at, now time.Time) {
	if len(b.unanswered) == maxUnanswered {
		b.unanswered = slices.Delete(b.unanswered, 0, 1)
	}
	b.unanswered = append(b.unanswered, unanswered{at: at.UnixNano(), next: now})
}

// Failed reports whether the jobs of failed claims are looked for.
func (b *Book) Failed() bool { return len(b.unanswered) > 0 }

// Retire records the end of an attempt, and whether another one settles its job.
func (b *Book) Retire(id string, claimed time.Time, handedOn bool) {
	if len(b.unanswered)+len(b.asking) == 0 {
		b.retired = nil
	} else if handedOn {
		if b.retired == nil {
			b.retired = make(map[string]int64)
		}
		b.retired[id] = claimed.UnixNano()
	}
}

// Unknown leaves those of the active jobs of the engine that a failed claim has taken and
// that no attempt has. The storage keeps times to a precision. waits: a claim under way
// may have others.
func (b *Book) Unknown(recs []storage.Record, precision time.Duration,
	has func(id string) bool) (lost []storage.Record, waits bool) {
	lost = slices.DeleteFunc(recs, func(rec storage.Record) bool {
		near := func(at int64) bool {
			d := time.Duration(rec.StartedAt.UnixNano() - at).Abs()
			return d < max(precision, 1)
		}
		failed := slices.ContainsFunc(b.unanswered, func(u unanswered) bool { return near(u.at) })
		// By the id: an attempt that has lost its lease may have an earlier version.
		if !failed || has(rec.ID) {
			return true
		}
		if at, had := b.retired[rec.ID]; had && near(at) {
			return true
		}
		busy := slices.ContainsFunc(b.asking, near)
		waits = waits || busy
		return busy
	})
	b.met = b.met || waits
	return lost, waits
}

// Looked records that the storage has answered a look, and returns when to look again;
// zero: not at all. waits is that of Unknown.
func (b *Book) Looked(now time.Time, waits bool) (next time.Time) {
	b.unanswered = slices.DeleteFunc(b.unanswered, func(u unanswered) bool {
		return !waits && u.looks == len(looksAfter) && !u.next.After(now)
	})
	for i := range b.unanswered {
		u := &b.unanswered[i]
		if !u.next.After(now) {
			if u.looks < len(looksAfter) {
				u.next = now.Add(looksAfter[u.looks])
				u.looks++
			} else {
				u.next = now.Add(time.Second)
			}
		}
		next = times.Earliest(next, u.next)
	}
	return next
}
