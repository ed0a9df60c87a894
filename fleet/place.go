package fleet

import (
	"context"
	"fmt"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/policy"
)

// key is a reason for a job to be in one cell.
type key struct {
	kind, text string
	partition  int
}

func (k key) String() string { return fmt.Sprintf("%s %q", k.kind, k.text) }

// place returns the cell of the drafts, nil if it may be any. It gives those whose key is
// not that of WithCell the partition of it.
func (f *Fleet[T]) place(ctx context.Context, drafts []ojs.Draft) (c *cell[T], err error) {
	var first key // of c
	agree := func(k key, at *cell[T]) error {
		if c == nil {
			c, first = at, k
		}
		if at != c {
			return fmt.Errorf("%w: %s is in cell %s, and %s in cell %s: give both one key by fleet.WithCell",
				ErrCells, first, c.name, k, at.name)
		}
		return nil
	}
	same := -1 // the partition of the draft before
	one := func(d *ojs.Draft) error {
		partition, own := given(d.Options())
		if own && partition == same {
			return nil
		}
		keys, jobs, err := f.keys(d)
		if own {
			same = partition
		}
		for _, k := range keys {
			var at *cell[T]
			if at, err = f.at(ctx, k.partition); err == nil {
				err = agree(k, at)
			}
			if err != nil {
				return err
			}
		}
		if len(keys) > 0 && keys[0].kind != kindCell {
			*d = d.With(inPartition(keys[0].partition))
		}
		for _, id := range jobs {
			at, _, lost := f.find(ctx, id)
			if missed(lost) {
				return &ojs.DependencyError{Dependency: id}
			}
			if err = lost; err == nil {
				err = agree(key{kind: "dependency", text: id}, at)
			}
			if err != nil {
				return err
			}
		}
		return err
	}
	for i := range drafts {
		switch err := one(&drafts[i]); {
		case err != nil && len(drafts) > 1:
			return nil, fmt.Errorf("ojs: draft %d of %d: %w", i+1, len(drafts), err)
		case err != nil:
			return nil, err
		}
	}
	return c, nil
}

const kindCell = "cell key"

// keys returns the keys that place the job of a draft, and the jobs that it waits for.
// The keys are all of kindCell, or none is.
func (f *Fleet[T]) keys(d *ojs.Draft) (keys []key, jobs []string, err error) {
	add := func(kind, text string) { keys = append(keys, key{kind, text, Partition(text)}) }
	err = insideEngines.Resolve(f.cells[0].eng, d, func(o *ojs.Options) error {
		for _, id := range o.DependsOn {
			if _, ok := PartitionOf(id); ok { // it is no name of a draft
				jobs = append(jobs, id)
			}
		}
		if k := insideOptions.Place(o).Key; k != "" {
			add(kindCell, k)
			return nil
		}
		if f.key != nil {
			if k := f.key(*d); k != "" {
				add(kindCell, k)
				*d = d.Under(WithCell(k))
				return nil
			}
		}
		if o.OrderingKey != "" {
			add("ordering key", o.OrderingKey)
		}
		job, err := jobOf(d, o)
		if err == nil && o.RateLimit != nil {
			limit := o.RateLimit.Key
			if o.RateLimitBy != "" {
				limit, err = policy.RateLimitKey(limit, o.RateLimitBy, job)
			}
			add("rate limit key", limit)
		}
		if err == nil && o.Unique != nil {
			var fingerprint string
			fingerprint, err = policy.Fingerprint(o.Unique, job)
			add("unique job", fingerprint)
		}
		if p, ok := PartitionOf(o.ID); ok && len(keys)+len(jobs) == 0 {
			keys = append(keys, key{"id", o.ID, p})
		}
		return err
	})
	return keys, jobs, err
}

// jobOf makes what limits and unique policies look at, if the options have any.
func jobOf(d *ojs.Draft, o *ojs.Options) (*ojs.JobInfo, error) {
	if o.RateLimit == nil && o.Unique == nil {
		return nil, nil
	}
	args, err := draft.Args(d.Args(), d.Type(), nil, nil)
	if err != nil {
		return nil, err
	}
	meta, err := draft.Meta(o.Meta)
	if o.Unique != nil && len(o.Unique.MetaKeys) > 0 { // meta counts as it was given
		meta = o.Meta
	}
	header := ojs.JobHeader{Type: d.Type(), TypeVersion: o.TypeVersion, Queue: o.Queue, Meta: meta}
	return &ojs.JobInfo{JobHeader: header, Args: args}, err
}
