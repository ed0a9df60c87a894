package storagetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// forgetful forgets why attempts failed.
type forgetful struct{ *Reference }

func (s forgetful) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	for i := range changes {
		changes[i].Record.Errors = nil
	}
	return s.Reference.Settle(ctx, now, changes, dst)
}

// patient forgets priorities.
type patient struct{ *Reference }

func (s patient) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	for i := range batch {
		batch[i].Record.Priority = 0
	}
	return s.Reference.Insert(ctx, now, batch, dst)
}

// coarse rounds times off.
type coarse struct {
	*Reference
	to time.Duration
}

func (s coarse) record(r storage.Record) storage.Record {
	cfg := Config{TimePrecision: s.to}
	return cfg.normal(r)
}

func (s coarse) Capabilities() storage.Capabilities {
	c := s.Reference.Capabilities()
	c.Precision = s.to
	return c
}

func (s coarse) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Record = s.record(batch[i].Record)
	}
	return s.Reference.Insert(ctx, now.Truncate(s.to), batch, dst)
}

func (s coarse) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	return s.Reference.Claim(ctx, now.Truncate(s.to), c, dst)
}

func (s coarse) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	changes = slices.Clone(changes)
	for i := range changes {
		changes[i].Record = s.record(changes[i].Record)
	}
	return s.Reference.Settle(ctx, now.Truncate(s.to), changes, dst)
}

func (s coarse) Extend(ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error) {
	return s.Reference.Extend(ctx, now.Truncate(s.to), xs)
}

func (s coarse) Due(ctx context.Context, now time.Time, most int, buf []storage.Record) (storage.Due, error) {
	return s.Reference.Due(ctx, now.Truncate(s.to), most, buf)
}

// A storage may keep times less exactly than the clock shows them.
func TestSameBehaviourOfTheLessExact(t *testing.T) {
	for name, cfg := range map[string]Config{
		"microseconds": coarseConfig(time.Microsecond), "milliseconds": coarseConfig(time.Millisecond),
		"seconds": coarseConfig(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("Claims", func(t *testing.T) { checkClaims(t, cfg) })
			SameBehaviour(t, cfg)
		})
	}
}

func coarseConfig(to time.Duration) Config {
	return Config{
		Open: func(testing.TB) storage.Storage { return coarse{NewReference(), to} },

		TimePrecision: to,
	}
}

func TestDifferencesAreFound(t *testing.T) {
	SkipWatched(t)
	all := Config{}
	want := play(t, NewReference(), all)
	if again := play(t, NewReference(), all); difference(want, again) != "" {
		t.Errorf("the scenario is not the same every time: %s", difference(want, again))
	}
	if len(want) < 200 || !strings.Contains(strings.Join(want, "\n"), "dead_letter") {
		t.Errorf("%d lines", len(want))
	}
	for name, bad := range map[string]struct {
		s   storage.Storage
		cfg Config
	}{
		"forgetful":          {forgetful{NewReference()}, all},
		"without priorities": {patient{NewReference()}, all},
		"less exact than microseconds": {coarse{NewReference(), 2 * time.Microsecond},
			coarseConfig(time.Microsecond)},
		"less exact than tenths of a second": {coarse{NewReference(), time.Second},
			coarseConfig(100 * time.Millisecond)},
		"less exact than it says":              {coarse{NewReference(), time.Microsecond}, all},
		"forgetful, and exact to microseconds": {forgetful{NewReference()}, coarseConfig(time.Microsecond)},
	} {
		if difference(play(t, NewReference(), bad.cfg), play(t, bad.s, bad.cfg)) == "" {
			t.Errorf("a storage that is %s does the same", name)
		}
	}
	if difference(want, want[:len(want)-1]) == "" || difference(want[:len(want)-1], want) == "" {
		t.Error("a line more or less is no difference")
	}
}
