package engine

import (
	"context"
	"strconv"
	"strings"
	"time"
)

const (
	sizeParts = 8  // of a tier, in each of which some values are read
	sizeReads = 50 // values in a part
)

// HistorySize is what the storage has of the history in one width of its buckets.
type HistorySize struct {
	Width  time.Duration // of a bucket: 10 s, 1 min or 1 h
	Keep   time.Duration // how long a bucket is kept after its end
	Oldest time.Time     // the start of the oldest bucket; zero: there is none
	Values int           // one for each bucket and engine that has counted something in it
	Bytes  int           // of the values, without their keys
	Exact  bool          // false: Values and Bytes are estimates
}

// HistorySizes returns how large the history of the storage is, the narrowest buckets
// first. It reads 400 values of each width at most, evenly over its time. If there are
// more, the sizes are estimates. With more than 50 engines they are too low.
func (e *Engine[T]) HistorySizes(ctx context.Context) ([]HistorySize, error) {
	sizes := make([]HistorySize, len(historyTiers))
	for i := range historyTiers {
		var err error
		if sizes[i], err = historyTiers[i].size(ctx, e.core); err != nil {
			return nil, err
		}
	}
	return sizes, nil
}

func (t *historyTier) size(ctx context.Context, c *core) (HistorySize, error) {
	now := c.now()
	size := HistorySize{Width: t.width, Keep: t.keep, Exact: true}
	prefix := historyPrefix + t.name + "/"
	first, err := c.store.Values(ctx, now, prefix, "", 1)
	if err != nil || len(first) == 0 {
		return size, err
	}
	size.Oldest = bucketStart(first[0].Key, prefix)
	buckets := max(now.Sub(size.Oldest)/t.width+1, 1) // 1 if the clock has gone back
	for part := range time.Duration(sizeParts) {
		begin := size.Oldest.Add(buckets * part / sizeParts * t.width)
		end := size.Oldest.Add(buckets * (part + 1) / sizeParts * t.width)
		page, err := c.store.Values(ctx, now, prefix, prefix+bucketKey(begin), sizeReads)
		if err != nil {
			return size, err
		}
		n, bytes, covered := 0, 0, end.Sub(begin)
		for i := range page {
			start := bucketStart(page[i].Key, prefix)
			if !start.Before(end) && part < sizeParts-1 {
				break
			}
			n, bytes = n+1, bytes+len(page[i].Data)
			if n == sizeReads && start.Add(t.width).Before(end) {
				covered = start.Add(t.width).Sub(begin)
			}
		}
		if n == sizeReads { // the part may have more
			size.Exact = false
			scale := float64(end.Sub(begin)) / float64(covered)
			n, bytes = int(float64(n)*scale), int(float64(bytes)*scale)
		}
		size.Values, size.Bytes = size.Values+n, size.Bytes+bytes
	}
	return size, nil
}

// bucketStart is the start of the bucket of a key; zero if the key has none.
func bucketStart(key, prefix string) time.Time {
	seconds, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(unix, 0).UTC()
}
