package claims_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine/internal/claims"
	"github.com/ojsengine/ojs/storage"
)

var at = time.Date(2026, 2, 12, 10, 31, 5, 0, time.UTC)

func none(string) bool { return false }

// active is a job that was claimed at a time.
func active(id string, claimed time.Time) storage.Record {
	r := storage.Record{JobInfo: ojs.JobInfo{StartedAt: claimed}}
	r.ID = id
	return r
}

// Invariant 3, condition by condition.
func TestUnknown(t *testing.T) {
	failed := func(b *claims.Book) { b.Fail(at, at) }
	retired := func(claimed time.Time, handedOn bool) func(b *claims.Book) {
		return func(b *claims.Book) {
			failed(b)
			b.Retire("x", claimed, handedOn)
		}
	}
	for name, tt := range map[string]struct {
		book      func(b *claims.Book)
		has, want bool
	}{
		"a claim has failed":  {failed, false, true},
		"no claim has failed": {func(*claims.Book) {}, false, false},
		"a claim of another time": {
			func(b *claims.Book) { b.Fail(at.Add(time.Second), at) }, false, false},
		"an attempt has it":              {failed, true, false},
		"an attempt has handed it on":    {retired(at, true), false, false},
		"an attempt has settled it":      {retired(at, false), false, true},
		"an earlier claim was handed on": {retired(at.Add(-time.Second), true), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var b claims.Book
			tt.book(&b)
			has := func(string) bool { return tt.has }
			lost, waits := b.Unknown([]storage.Record{active("x", at)}, 0, has)
			if got := len(lost) == 1; got != tt.want || waits {
				t.Errorf("unknown %v, waits %v", got, waits)
			}
		})
	}
}

// A look that meets a claim under way leaves its jobs to it. The end of the claim says
// so, once: the jobs may belong to no attempt.
func TestLookBesideAClaim(t *testing.T) {
	var b claims.Book
	step := claims.Step{Book: &b, Mu: new(sync.Mutex)}
	step.Asks(at)
	b.Fail(at, at)
	look := func() (n int, waits bool) {
		lost, waits := b.Unknown([]storage.Record{active("x", at)}, 0, none)
		return len(lost), waits
	}
	if n, waits := look(); n != 0 || !waits {
		t.Errorf("beside the claim: %d unknown, waits %v", n, waits)
	}
	if !step.End() {
		t.Error("the end of the claim does not tell of the look")
	}
	if n, waits := look(); n != 1 || waits {
		t.Errorf("after the claim: %d unknown, waits %v", n, waits)
	}
	step.Asks(at.Add(time.Second))
	if look(); step.End() {
		t.Error("the end of a claim tells of a look that left nothing to it")
	}
}

// Looks go on at once, after 1 s, 10 s and 60 s, and then end.
func TestLooked(t *testing.T) {
	var b claims.Book
	b.Fail(at, at)
	var after []time.Duration
	for now := at; b.Failed(); {
		next := b.Looked(now, false)
		if next.IsZero() {
			break
		}
		after = append(after, next.Sub(now))
		now = next
	}
	if want := []time.Duration{time.Second, 10 * time.Second, time.Minute}; !slices.Equal(after, want) {
		t.Errorf("looks after %v, not %v", after, want)
	}
	if b.Failed() {
		t.Error("the claim is looked for without end")
	}
}
