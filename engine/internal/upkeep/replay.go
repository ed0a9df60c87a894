package upkeep

import (
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/storage"
)

// Replay rules. A chore lists the dead letters at the start of Run, when a job that
// died in this engine is due, and, while the engine has rules, every five minutes for
// jobs that died in another one. It replays what is due and sleeps until the next.
//
//  1. A job is replayed by the first rule that selects it and is enabled, once for each
//     death.
//  2. Two lists are at least replayPause apart, so that many deaths cost one list.
//  3. Of several engines with the same rules one replays: the others find a job that is
//     no dead letter, or another death.

// ReplayRule replays dead letters. See engine.ReplayRule.
type ReplayRule struct {
	Name       string
	Query      storage.Query // selects the dead letters
	Delay      time.Duration
	MaxReplays int
}

// replayRuleFor returns the rule that decides on a dead letter and when the job is due;
// false: it stays dead.
func (c *Engine) replayRuleFor(r *storage.Record) (rule *ReplayRule, due time.Time, ok bool) {
	if r.Keeper() != "" {
		return nil, time.Time{}, false
	}
	for i := range c.Rules {
		rule := &c.Rules[i]
		if rule.Query.Matches(r) {
			return rule, r.DeadLetteredAt.Add(rule.Delay), draft.ReplayCount(r.Meta) < rule.MaxReplays
		}
	}
	return nil, time.Time{}, false
}

const (
	replayPause = time.Second     // between two lists
	replayEvery = 5 * time.Minute // at least one list
)

// Died follows the death of a job.
func (k *Upkeep) Died(job *storage.Record) {
	if _, due, ok := k.c.replayRuleFor(job); ok {
		k.Replay.By(times.Latest(due, time.Unix(0, k.listed.Load()).Add(replayPause)))
	}
}

// replayDead replays the dead letters that are due, and says when to list them next.
func (k *Upkeep) replayDead() (next time.Time) {
	c := k.c
	now := c.Now()
	k.listed.Store(now.UnixNano())
	defer func() { next = times.Latest(next, now.Add(replayPause)) }()
	next = now.Add(replayEvery)
	seen := make(map[string]struct{}) // a job that dies again meanwhile is listed again
	for rec, err := range c.Jobs.Records(k.base, inspect.Filter{DeadLettered: true}) {
		if err != nil {
			k.Replay.Fail("list of dead letters", err)
			return next
		}
		rule, due, ok := c.replayRuleFor(rec)
		if _, again := seen[rec.ID]; again || !ok {
			continue
		}
		if due.After(now) {
			next = times.Earliest(next, due)
			continue
		}
		seen[rec.ID] = struct{}{}
		died := rec.DeadLetteredAt
		err := c.Operator.DeadLetters().Replay(k.base, rec.ID, rule.Name, died)
		if err != nil && !foreign.Is(err, ojs.ErrTransition) && !foreign.Is(err, ojs.ErrNotFound) {
			k.Replay.Fail("replay", err, "job_id", rec.ID, "rule", rule.Name)
		}
		if k.set.Quitting() {
			return next
		}
	}
	return next
}
