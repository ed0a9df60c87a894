package storage_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ojsengine/ojs/storage"
)

// A reader that follows a set by its changes has its keys at every look, and a set that
// changes for ever does not grow.
func TestKeySetChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := storage.Keys("a", "b")
	copied, at, anew, most := make(map[string]bool), uint64(0), 0, 0
	for range 100_000 {
		if key := fmt.Sprint(rng.IntN(50)); rng.IntN(2) == 0 {
			s.Add(key)
		} else {
			s.Remove(key)
		}
		if rng.IntN(500) > 0 && rng.IntN(3000) > 0 {
			continue
		}
		changed, now, ok := s.Changes(at)
		if !ok {
			anew++
			clear(copied)
			changed = slices.Collect(s.All())
		}
		most = max(most, len(changed))
		for _, key := range changed {
			delete(copied, key)
			if s.Has(key) {
				copied[key] = true
			}
		}
		at = now
		if len(copied) != s.Len() || !slices.Equal(slices.Sorted(maps.Keys(copied)), slices.Sorted(s.All())) {
			t.Fatalf("the follower has %d keys, the set %d", len(copied), s.Len())
		}
	}
	if anew == 0 || most > 2000 {
		t.Errorf("the set has forgotten %d times and remembered %d changes", anew, most)
	}
	_, now, _ := s.Changes(at)
	if _, _, ok := s.Changes(now + 1); ok {
		t.Error("what is to come is known")
	}
}

func TestKeySetNil(t *testing.T) {
	var s *storage.KeySet
	_, now, ok := s.Changes(0)
	if s.Has("a") || s.Len() != 0 || now != 0 || !ok || len(slices.Collect(s.All())) != 0 {
		t.Error("the nil set is not empty")
	}
}

func TestKeySetJSON(t *testing.T) {
	for _, c := range []storage.Claim{{}, {SkipKeys: storage.Keys()}, {SkipKeys: storage.Keys("b", "a")}} {
		b, err := json.Marshal(c)
		var back storage.Claim
		if err == nil {
			err = json.Unmarshal(b, &back)
		}
		if err != nil || !slices.Equal(slices.Sorted(c.SkipKeys.All()), slices.Sorted(back.SkipKeys.All())) {
			t.Errorf("%s: %v", b, err)
		}
	}
}
