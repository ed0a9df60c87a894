package storagetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// forgetful forgets why attempts failed.
type forgetful struct{ *Reference }

func (s forgetful) Settle(ctx context.Context, now time.Time, changes []storage.Change, dst []storage.Settled) ([]storage.Settled, error) {
	for i := range changes {
		changes[i].Record.Errors = nil
	}
	return s.Reference.Settle(ctx, now, changes, dst)
}

// patient forgets priorities.
type patient struct{ *Reference }

func (s patient) Insert(ctx context.Context, now time.Time, batch []storage.Insert, dst []storage.Inserted) ([]storage.Inserted, error) {
	for i := range batch {
		batch[i].Record.Priority = 0
	}
	return s.Reference.Insert(ctx, now, batch, dst)
}

func TestDifferencesAreFound(t *testing.T) {
	want := play(t, NewReference(), true)
	if again := play(t, NewReference(), true); difference(want, again) != "" {
		t.Errorf("the scenario is not the same every time: %s", difference(want, again))
	}
	if len(want) < 200 || !strings.Contains(strings.Join(want, "\n"), "dead_letter") {
		t.Errorf("%d lines", len(want))
	}
	for name, s := range map[string]storage.Storage{"forgetful": forgetful{NewReference()}, "without priorities": patient{NewReference()}} {
		if difference(want, play(t, s, true)) == "" {
			t.Errorf("a storage that is %s does the same", name)
		}
	}
	if difference(want, want[:len(want)-1]) == "" || difference(want[:len(want)-1], want) == "" {
		t.Error("a line more or less is no difference")
	}
}
