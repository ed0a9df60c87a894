package memory

import "github.com/ojsengine/ojs/storage"

// closedKeys are the rate limit keys that the latest claim skipped, Claim.SkipKeys. The
// buckets of these keys are not in the heaps of their groups, so that a claim costs the
// same however many keys are closed and however many jobs wait for them:
//
//   - A bucket is in its group's heap if and only if it is not closed. It is closed if
//     and only if its key is in keys, or its lane is closed and claims obey limits.
//   - A claim with the same set as the one before costs the changes of the set since
//     then.
//   - A claim with another set, as that of a second engine, costs the keys of both.
type closedKeys struct {
	set     *storage.KeySet
	moment  uint64 // of set, that keys is up to
	keys    map[string]struct{}
	buckets map[string][]*bucket // those of the key in all groups; none is empty
}

// know enters a new bucket.
func (c *closedKeys) know(b *bucket) {
	_, b.closed = c.keys[b.key]
	b.keyAt = len(c.buckets[b.key])
	c.buckets[b.key] = append(c.buckets[b.key], b)
}

// forget takes out a bucket that has become empty.
func (c *closedKeys) forget(b *bucket) {
	list := c.buckets[b.key]
	last := list[len(list)-1]
	list[b.keyAt], last.keyAt = last, b.keyAt
	list[len(list)-1] = nil
	if list = list[:len(list)-1]; len(list) == 0 {
		delete(c.buckets, b.key)
	} else {
		c.buckets[b.key] = list
	}
}

// follow closes the keys of a set, and opens all others.
func (r *ready) follow(set *storage.KeySet) {
	c := &r.shut
	if set == c.set {
		if changed, moment, known := set.Changes(c.moment); known {
			for _, key := range changed {
				r.looked++
				r.turn(key, set.Has(key))
			}
			c.moment = moment
			return
		}
	}
	for key := range c.keys {
		r.looked++
		if !set.Has(key) {
			r.turn(key, false)
		}
	}
	for key := range set.All() {
		r.looked++
		r.turn(key, true)
	}
	c.set = set
	_, c.moment, _ = set.Changes(0)
}

// turn closes or opens a key, if it is not so.
func (r *ready) turn(key string, closed bool) {
	c := &r.shut
	if _, is := c.keys[key]; is == closed {
		return
	}
	if closed {
		c.keys[key] = struct{}{}
	} else {
		delete(c.keys, key)
	}
	for _, b := range c.buckets[key] {
		r.looked++
		r.refresh(b)
	}
}

// refresh closes or opens a bucket, if it is not so.
func (r *ready) refresh(b *bucket) {
	_, closed := r.shut.keys[b.key]
	closed = closed || r.obey && b.lane != nil && b.lane.closed
	if closed == b.closed {
		return
	}
	g := b.group
	if b.closed = closed; closed {
		g.buckets.remove(b.at)
	} else {
		g.buckets.push(b)
	}
	r.reindex(g)
}
