package admission

import "testing"

// Claims overlap, and hand in what they have found in any order. Whenever one that is
// handed in disagrees with what is known, the run claims again: an attempt may have ended
// that woke no claim, or a claim that was empty still says that nothing is available.
func TestClaimsDisagreeOnHeldJobs(t *testing.T) {
	type step struct {
		claim int  // the first step of a claim begins it, the second hands it in
		held  bool // what it has found
		again bool // the run claims again
	}
	for name, c := range map[string]struct {
		steps []step
		held  bool // what is known in the end
	}{
		"one claim finds held jobs": {[]step{{claim: 1}, {1, true, true}}, true},
		"one claim finds none":      {[]step{{claim: 1}, {1, false, false}}, false},
		"held jobs are known": {
			[]step{{claim: 1}, {1, true, true}, {claim: 2}, {2, true, false}},
			true,
		},
		"held jobs have gone": {
			[]step{{claim: 1}, {1, true, true}, {claim: 2}, {2, false, true}},
			false,
		},
		"one that found held jobs is handed in after one that cleared the bit": {
			[]step{
				{claim: 1}, {1, true, true},
				{claim: 2}, {claim: 3}, {3, false, true}, {2, true, true},
			},
			true,
		},
		"one that found none is handed in after one that found held jobs": {
			[]step{{claim: 1}, {claim: 2}, {2, true, true}, {1, false, false}},
			true,
		},
		"one that found none began before another found held jobs again": {
			[]step{
				{claim: 1}, {1, true, true},
				{claim: 2}, {claim: 3}, {3, true, false}, {2, false, false},
			},
			true,
		},
		"two that found none": {
			[]step{
				{claim: 1}, {1, true, true},
				{claim: 2}, {claim: 3}, {3, false, true}, {2, false, false},
			},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var h HeldBack
			began := make(map[int]uint64)
			for i, s := range c.steps {
				at, begun := began[s.claim]
				if !begun {
					began[s.claim] = h.Load()
					continue
				}
				if again := h.claimed(at, s.held); again != s.again {
					t.Errorf("step %d: claims again: %v, want %v", i, again, s.again)
				}
			}
			if h.now() != c.held {
				t.Errorf("held jobs are known: %v, want %v", h.now(), c.held)
			}
		})
	}
}
