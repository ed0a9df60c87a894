package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
)

// The history of a storage is values that each engine on it writes for itself, so that no
// two of them write the same one: history/TIER/START/WORKER has what the engine of a
// worker has counted in the bucket of the tier that starts then, in seconds since 1970. A
// bucket is written again while it is open. The storage deletes it when its time is over.

// historyTier is how finely the history is kept, and for how long.
type historyTier struct {
	name  string
	width time.Duration
	keep  time.Duration
}

var historyTiers = []historyTier{
	{"10s", 10 * time.Second, 2 * time.Hour},
	{"1m", time.Minute, 48 * time.Hour},
	{"1h", time.Hour, 90 * 24 * time.Hour},
}

const (
	historyPrefix = "history/"
	historyPairs  = 100 // pairs of a queue and a type in a bucket; the rest counts as MeterOther
)

// HistoryBucket is what all engines on the storage have counted in a period.
type HistoryBucket struct {
	Start  time.Time
	Width  time.Duration
	Meters []JobMeter // by queue and type in alphabetical order
}

// History returns what the engines on the storage that report (WithReports) have counted
// from a time on until another, in buckets of a width: 10 s, which are kept for 2 h, 1
// min, for 48 h, or 1 h, for 90 days. A width of 0 is the finest that reaches back to
// from. Buckets in which nothing was counted are left out. The last bucket may be open.
// Each engine has the 100 busiest pairs of a queue and a type of a bucket apart, the rest
// as MeterOther. An engine that is killed loses what it has counted since its last
// report.
//
// It costs a read of the buckets of each engine.
func (e *Engine[T]) History(
	ctx context.Context, from, to time.Time, width time.Duration,
) ([]HistoryBucket, error) {
	c := e.core
	i := slices.IndexFunc(historyTiers, func(t historyTier) bool {
		return t.width == width || width == 0 && c.now().Sub(from) <= t.keep
	})
	if i < 0 && width != 0 {
		return nil, invalid("width", "%v is none of 10s, 1m and 1h", width)
	} else if i < 0 {
		i = len(historyTiers) - 1
	}
	tier := historyTiers[i]
	prefix := historyPrefix + tier.name + "/"
	var buckets []HistoryBucket
	q := storage.DocumentQuery{Prefix: prefix, After: prefix + bucketKey(from.Truncate(tier.width))}
	for v, err := range document.Of(c.store).EachValue(ctx, c.now(), q) {
		if err != nil {
			return nil, err
		}
		start := bucketStart(v.Key, prefix)
		if start.IsZero() {
			continue
		}
		if !start.Before(to) {
			break
		}
		if n := len(buckets); n == 0 || !buckets[n-1].Start.Equal(start) {
			buckets = append(buckets, HistoryBucket{Start: start, Width: tier.width})
		}
		b := &buckets[len(buckets)-1]
		b.Meters = addMeters(b.Meters, decodeMeters(v.Data))
	}
	return buckets, nil
}

// bucketKey is the start of a bucket in a key: keys are in the order of their starts.
func bucketKey(start time.Time) string { return fmt.Sprintf("%010d", max(start.Unix(), 0)) }

// addMeters adds what others have counted to a sorted list.
func addMeters(list, others []JobMeter) []JobMeter {
	for i := range others {
		m := &others[i]
		at, there := slices.BinarySearchFunc(list, m, func(a JobMeter, b *JobMeter) int {
			return byQueueAndType(&a, b)
		})
		if there {
			list[at].Add(m)
		} else {
			list = slices.Insert(list, at, *m)
		}
	}
	return list
}

// history is what an engine has yet to write. Only its reporter uses it.
type history struct {
	last map[meterKey]JobMeter // what had been counted when it was collected last
	open [3]struct {           // the open bucket of each tier
		start  time.Time
		meters []JobMeter
	}
}

// collect adds what was counted since the last call to the open buckets, and returns
// those to write.
func (h *history) collect(c *core, now time.Time) (values []document.Value) {
	var news []JobMeter
	if h.last == nil {
		h.last = make(map[meterKey]JobMeter)
	}
	for _, m := range c.meter.snapshot() {
		key := meterKey{m.Queue, m.Type}
		before := h.last[key]
		h.last[key] = m
		if d := m.since(&before); d != (JobMeter{Queue: m.Queue, Type: m.Type}) {
			news = append(news, d)
		}
	}
	if len(news) == 0 {
		return nil
	}
	news = busiest(news)
	for i, tier := range historyTiers {
		b := &h.open[i]
		if start := now.Truncate(tier.width); !start.Equal(b.start) {
			b.start, b.meters = start, nil
		}
		b.meters = busiest(addMeters(b.meters, news))
		values = append(values, document.Value{
			Key:  historyPrefix + tier.name + "/" + bucketKey(b.start) + "/" + c.worker,
			Data: encodeMeters(b.meters), Expires: b.start.Add(tier.width + tier.keep),
		})
	}
	return values
}

// busiest keeps the busiest pairs apart, and adds up the rest.
func busiest(list []JobMeter) []JobMeter {
	if len(list) <= historyPairs {
		return list
	}
	load := func(m *JobMeter) uint64 { return m.Enqueued + m.Run.Count }
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b JobMeter) int { return cmp.Compare(load(&b), load(&a)) })
	other := JobMeter{Queue: MeterOther, Type: MeterOther}
	for i := historyPairs - 1; i < len(list); i++ {
		other.Add(&list[i])
	}
	return addMeters(nil, append(list[:historyPairs-1], other))
}

// since is what was counted since an earlier snapshot. Metric histograms are left out:
// the history does not keep them.
func (m *JobMeter) since(before *JobMeter) JobMeter {
	d := JobMeter{Queue: m.Queue, Type: m.Type, Wait: m.Wait, Run: m.Run}
	is, was := m.counters(), before.counters()
	for i, n := range d.counters() {
		*n = *is[i] - *was[i]
	}
	d.Wait.subtract(&before.Wait)
	d.Run.subtract(&before.Run)
	return d
}

func (h *Histogram) subtract(other *Histogram) {
	h.Count -= other.Count
	h.Sum -= other.Sum
	for i, n := range other.Buckets {
		h.Buckets[i] -= n
	}
}

// storedMeter is a meter in the storage. Its members are stored: one may be added, none
// may change its meaning.
type storedMeter struct {
	Queue string          `json:"q"`
	Type  string          `json:"t"`
	N     [10]uint64      `json:"n"`
	Wait  storedHistogram `json:"w"`
	Run   storedHistogram `json:"r"`
}

// storedHistogram is the sum in ns, and pairs of a bucket's index and its number.
type storedHistogram []int64

func encodeMeters(list []JobMeter) []byte {
	stored := make([]storedMeter, len(list))
	for i := range list {
		m := &list[i]
		stored[i] = storedMeter{Queue: m.Queue, Type: m.Type, Wait: m.Wait.store(), Run: m.Run.store()}
		for k, n := range m.counters() {
			stored[i].N[k] = *n
		}
	}
	b, _ := json.Marshal(stored) // which always encodes
	return b
}

// decodeMeters reads a bucket. Data of a later version may not decode, and the bucket is
// then empty.
func decodeMeters(b []byte) []JobMeter {
	var stored []storedMeter
	if json.Unmarshal(b, &stored) != nil {
		return nil
	}
	list := make([]JobMeter, len(stored))
	for i := range stored {
		m := &list[i]
		m.Queue, m.Type = stored[i].Queue, stored[i].Type
		for k, n := range m.counters() {
			*n = stored[i].N[k]
		}
		m.Wait.load(stored[i].Wait)
		m.Run.load(stored[i].Run)
	}
	return list
}

func (h *Histogram) store() storedHistogram {
	s := storedHistogram{int64(h.Sum)}
	for i, n := range h.Buckets {
		if n > 0 {
			s = append(s, int64(i), int64(n))
		}
	}
	return s
}

func (h *Histogram) load(s storedHistogram) {
	if len(s) == 0 {
		return
	}
	h.Sum = time.Duration(s[0])
	for i := 1; i+1 < len(s); i += 2 {
		if at, n := s[i], s[i+1]; at >= 0 && at < histogramBuckets && n > 0 {
			h.Buckets[at] += uint64(n)
			h.Count += uint64(n)
		}
	}
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
