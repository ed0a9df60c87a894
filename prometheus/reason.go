package ojsprometheus

import "github.com/ojsengine/ojs/policy"

const exhaustedReason = string(policy.RuleExhausted)

// The reasons that are labels. Any other reason of an event becomes "other", so that no
// text becomes a label.
var (
	reasons = set(exhaustedReason, string(policy.RuleCode), string(policy.RuleMarker),
		string(policy.RuleArgs), string(policy.RuleNonRetryable),
		string(policy.RuleHook), string(policy.RuleTotalTimeout), "expired", "dropped", "rate_limited")
	skips = set("overlap_skip", "dst_skip", "dst_repeat", "duplicate", "dropped", "enqueue_failed", "missed")
)

func set(names ...string) map[string]struct{} {
	s := make(map[string]struct{}, len(names))
	for _, n := range names {
		s[n] = struct{}{}
	}
	return s
}

// known returns a reason that is in a set, or "other".
func known(s map[string]struct{}, reason string) string {
	if _, ok := s[reason]; ok {
		return reason
	}
	return other
}
