package keyed

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// rank is where a job is among the available ones of its queue, in the order of claims:
// the highest priority first, and then the round and the place.
func (j *job) rank() key {
	k := key{}.number(^int64(j.Priority))
	if j.round != 0 {
		return k.number(j.round).number(j.Place)
	}
	return k.number(j.Place).number(0)
}

// ready is what a claim asks of an available job, so that it need not decode those that
// it skips: seq, deadline, type, version, and the key of the rate limit if it has one.
func (j *job) ready() []byte {
	v := key{}.number(j.Seq).time(j.Deadline()).name(j.Type).name(j.TypeVersion)
	if j.RateLimit != nil {
		v = v.name(j.RateLimit.Key)
	}
	return v
}

// Claim implements storage.Storage. It walks past the available jobs that it may not
// take. Each costs a step of a scan.
func (s *Storage) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	claimed, err := change(ctx, s, func(t *tx) (claimed []storage.Record) {
		for _, j := range t.pick(now, &c) {
			t.serve(j)
			t.change(j, true, func(r *storage.Record) { r.Claim(now, c.Worker, c.Lease) })
			claimed = append(claimed, j.Record)
		}
		return claimed
	})
	return append(dst, claimed...), err
}

// pick returns the jobs that a claim takes, in order.
func (t *tx) pick(now time.Time, c *storage.Claim) (jobs []*job) {
	var seqs [][]byte
	taken := storage.Keys() // rate limits of the jobs in seqs
	take := func(_, v []byte) bool {
		seq, deadline := v[:numberLen], timeOf(v[numberLen:])
		jobType, v := cut(v[numberLen+timeLen:])
		version, v := cut(v)
		if !deadline.IsZero() && !now.Before(deadline) || !c.Takes(jobType, version) {
			return true
		}
		if len(v) > 0 {
			limit, _ := cut(v)
			if c.SkipKeys.Has(limit) || taken.Has(limit) {
				return true
			}
			taken.Add(limit)
		}
		seqs = append(seqs, seq)
		return len(seqs) < c.Max
	}
	if c.Max <= 0 {
		return nil
	}
	if len(c.Queues) == 0 {
		t.walk(t.queues())(take)
	}
	for i, q := range c.Queues {
		if len(seqs) < c.Max && !slices.Contains(c.Queues[:i], q) {
			t.walk([]string{q})(take)
		}
	}
	t.fetchJobs(seqs)
	for _, seq := range seqs {
		jobs = append(jobs, t.load(seq))
	}
	return jobs
}

// walk yields the available jobs of queues together in the order of claims, without those
// of paused queues.
func (t *tx) walk(queues []string) iter.Seq2[[]byte, []byte] {
	var prefixes []key
	for _, q := range queues {
		if t.queueState(q) != ojs.QueuePaused {
			prefixes = append(prefixes, newKey(readyTable).name(q))
		}
	}
	return t.merged(prefixes, peeking)
}

// queues returns the queues with available jobs.
func (t *tx) queues() (names []string) {
	for rest := range t.scan(newKey(countTable).byte(rows.Available), nil) {
		name, _ := cut(rest)
		names = append(names, name)
	}
	return names
}
