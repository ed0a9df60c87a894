package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Replay rules. Maintenance lists the dead letters at the start of Run, when a job that
// died in this engine is due, and, while the engine has rules, every five minutes for
// jobs that died in another one. It replays what is due and sleeps until the next.
//
//  1. A job is replayed by the first rule that selects it and is enabled, once for each
//     death.
//  2. Two lists are at least replayPause apart, so that many deaths cost one list.
//  3. Of several engines with the same rules one replays: the others find a job that is
//     no dead letter, or another death.

// ReplayRule replays dead letters without a person (OJS dead letter, section 7).
type ReplayRule struct {
	// Name has at most 255 lower-case letters, digits, "-" and "."; the first is a letter
	// or a digit. The replayed job has it as ojs.MetaReplayRule.
	Name string
	// Filter selects the dead letters. The zero Filter selects all. It names no states.
	Filter inspect.Filter
	// Delay is the time from the death of a job to its replay. It is not negative.
	Delay time.Duration
	// MaxReplays is how often a job is replayed at most, and at least 1. Replays by hand
	// and by other rules count.
	MaxReplays int
	// Disabled says that the rule replays nothing. The rules behind it apply.
	Disabled bool
}

// WithReplayRules makes the engine replay dead letters while it runs. For each job the
// first enabled rule that selects it decides. A replay is DeadLetters.Retry without
// options, and publishes event.DeadLetterReplayed. A job that died in another engine
// on the storage may be replayed up to five minutes after it is due, any other up to a
// second. A step of a workflow is replayed with its workflow only (Workflows.Retry).
func WithReplayRules(rules ...ReplayRule) Option {
	return func(c *config) error {
		for _, rule := range rules {
			if err := c.addReplayRule(rule); err != nil {
				return fmt.Errorf("ojs: replay rule %q: %w", clipName(rule.Name), err)
			}
		}
		return nil
	}
}

// clipName cuts a name to fit an error message.
func clipName(s string) string { return s[:min(len(s), 64)] }

func (c *config) addReplayRule(rule ReplayRule) error {
	switch {
	case !cron.ValidName(rule.Name):
		return invalid("name",
			"%q: use lower-case letters, digits, - and ., at most 255", clipName(rule.Name))
	case slices.ContainsFunc(c.replayRules, func(r replayRule) bool { return r.Name == rule.Name }):
		return invalid("name", "is given twice")
	case len(rule.Filter.States) > 0:
		return invalid("filter.states", "are given: a dead letter is discarded")
	case rule.Delay < 0:
		return invalid("delay", "%v is negative", rule.Delay)
	case rule.MaxReplays < 1:
		return invalid("max_replays", "%d is less than 1", rule.MaxReplays)
	}
	f := &rule.Filter
	f.DeadLettered = true
	f.Queues, f.Types, f.ErrorTypes = slices.Clone(f.Queues), slices.Clone(f.Types),
		slices.Clone(f.ErrorTypes)
	q, err := f.Query()
	if err != nil {
		return err
	}
	c.replayRules = append(c.replayRules, replayRule{rule, q})
	return nil
}

type replayRule struct {
	ReplayRule
	query storage.Query // of its filter
}

// replayRuleFor returns the rule that decides on a dead letter and when the job is due;
// false: it stays dead.
func (c *config) replayRuleFor(r *storage.Record) (rule *replayRule, due time.Time, ok bool) {
	if workflowOf(r) != "" {
		return nil, time.Time{}, false
	}
	for i := range c.replayRules {
		rule := &c.replayRules[i]
		if !rule.Disabled && rule.query.Matches(r) {
			return rule, r.DeadLetteredAt.Add(rule.Delay), draft.ReplayCount(r.Meta) < rule.MaxReplays
		}
	}
	return nil, time.Time{}, false
}

const (
	replayPause = time.Second     // between two lists
	replayEvery = 5 * time.Minute // at least one list
)

// died follows the death of a job.
func (k *maintenance) died(job *storage.Record) {
	if _, due, ok := k.r.c.replayRuleFor(job); ok {
		k.replay.By(later(due, time.Unix(0, k.listed.Load()).Add(replayPause)))
	}
}

// replayDead replays the dead letters that are due, and says when to list them next.
func (k *maintenance) replayDead() (next time.Time) {
	c := k.r.c
	now := c.now()
	k.listed.Store(now.UnixNano())
	defer func() { next = later(next, now.Add(replayPause)) }()
	next = now.Add(replayEvery)
	seen := make(map[string]struct{}) // a job that dies again meanwhile is listed again
	for rec, err := range c.jobs.Records(k.r.base, inspect.Filter{DeadLettered: true}) {
		if err != nil {
			k.replay.Fail("list of dead letters", err)
			return next
		}
		rule, due, ok := c.replayRuleFor(rec)
		if _, again := seen[rec.ID]; again || !ok {
			continue
		}
		if due.After(now) {
			next = earliest(next, due)
			continue
		}
		seen[rec.ID] = struct{}{}
		died := rec.DeadLetteredAt
		err := c.operator.DeadLetters().Replay(k.r.base, rec.ID, rule.Name, died)
		if err != nil && !foreign.Is(err, ojs.ErrTransition) && !foreign.Is(err, ojs.ErrNotFound) {
			k.replay.Fail("replay", err, "job_id", rec.ID, "rule", rule.Name)
		}
		if k.Quitting() {
			return next
		}
	}
	return next
}
