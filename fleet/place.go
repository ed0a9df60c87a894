package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/policy"
)

// key is a reason for a job to be in one cell.
type key struct {
	kind, text string
	partition  int
}

func (k key) String() string { return fmt.Sprintf("%s %q", k.kind, k.text) }

// place returns the cell of the drafts, nil if it may be any. It gives those whose key is
// not that of WithCell the partition of it. It adds to waited how long it has waited for
// strict moves.
func (f *Fleet[T]) place(
	ctx context.Context, drafts []ojs.Draft, waited *time.Duration,
) (c *cell[T], err error) {
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
		if err != nil {
			return err
		}
		if own {
			same = partition
		}
		for _, k := range keys {
			at, err := f.at(ctx, k.partition, waited)
			if err == nil {
				err = agree(k, at)
			}
			if err != nil {
				return err
			}
		}
		if len(keys) > 0 && keys[0].kind != kindCell && keys[0].kind != kindID {
			*d = d.With(inPartition(keys[0].partition))
		}
		for _, id := range jobs {
			at, _, err := f.find(ctx, id)
			if stored.Missing(err) {
				return &ojs.DependencyError{Dependency: id}
			}
			if err == nil {
				err = agree(key{kind: "dependency", text: id}, at)
			}
			if err != nil {
				return err
			}
		}
		return nil
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

const (
	kindCell = "cell key"
	kindID   = "id"
)

// keys returns the keys that place the job of a draft, and the jobs that it waits for. If
// one is of kindCell or kindID, it is the only one. An id must carry the partition of the
// first key.
func (f *Fleet[T]) keys(d *ojs.Draft) (keys []key, jobs []string, err error) {
	err = insideEngines.Resolve(f.cells[0].eng, d, func(o *ojs.Options) (err error) {
		for _, id := range o.DependsOn {
			if _, ok := PartitionOf(id); ok { // it is no name of a draft
				jobs = append(jobs, id)
			}
		}
		if keys, err = f.keysOf(d, o); err != nil {
			return err
		}
		place := insideOptions.Place(o)
		if place.Apart && len(keys) == 0 && len(jobs) == 0 {
			keys = []key{{kindID, o.ID, place.Near - 1}}
		}
		p, ok := PartitionOf(o.ID)
		ok = ok && place.Near == 0
		switch {
		case ok && len(keys) == 0:
			keys = []key{{kindID, o.ID, p}}
		case ok && p != keys[0].partition:
			return draft.Invalid("id", "carries partition %d, and %s has partition %d: "+
				"leave out the id or the key", p, keys[0], keys[0].partition)
		}
		return nil
	})
	return keys, jobs, err
}

// keysOf returns the keys of a draft whose options are o, without its id.
func (f *Fleet[T]) keysOf(d *ojs.Draft, o *ojs.Options) (keys []key, err error) {
	add := func(kind, text string) { keys = append(keys, key{kind, text, Partition(text)}) }
	if k := insideOptions.Place(o).Key; k != "" {
		add(kindCell, k)
		return keys, nil
	}
	if f.key != nil {
		if k := f.key(*d); k != "" {
			add(kindCell, k)
			*d = d.Under(WithCell(k))
			return keys, nil
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
	return keys, err
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
