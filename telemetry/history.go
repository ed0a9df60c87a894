package telemetry

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
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/storage"
)

// The history of a storage is values that each engine on it writes for itself, so that no
// two of them write the same one: history/TIER/START/WORKER has what the engine of a
// worker has counted in the bucket of the tier that starts then, in seconds since 1970. A
// bucket is written again while it is open. The storage deletes it when its time is over.

// Tier is how finely the history is kept, and for how long.
type Tier struct {
	Width time.Duration // of a bucket
	Keep  time.Duration
	name  string
}

// Tiers returns the tiers of the history, the finest first.
func Tiers() []Tier { return slices.Clone(historyTiers) }

var historyTiers = []Tier{
	{10 * time.Second, 2 * time.Hour, "10s"},
	{time.Minute, 48 * time.Hour, "1m"},
	{time.Hour, 90 * day, "1h"},
}

const (
	historyPrefix = "history/"
	historyPairs  = 100 // pairs of a queue and a type in a bucket; the rest counts as MeterOther
)

// Bucket is what all engines on a storage have counted in a period.
type Bucket struct {
	Start  time.Time
	Width  time.Duration
	Meters []Meter // by queue and type in alphabetical order
}

// History returns what the engines on a storage that report (engine.WithReports) have
// counted from a time on until another, in buckets of the width of one of Tiers: 10 s,
// which are kept for 2 h, 1 min, for 48 h, or 1 h, for 90 days. A width of 0 is the
// finest that reaches back to from. Buckets in which nothing was counted are left out.
// The last bucket may be open. Each engine has the 100 busiest pairs of a queue and a
// type of a bucket apart, the rest as MeterOther. An engine that is killed loses what it
// has counted since its last report.
//
// It costs a read of the buckets of each engine.
func History(
	ctx context.Context, s storage.DocumentStore, now, from, to time.Time, width time.Duration,
) ([]Bucket, error) {
	i := slices.IndexFunc(historyTiers, func(t Tier) bool {
		return t.Width == width || width == 0 && now.Sub(from) <= t.Keep
	})
	if i < 0 && width != 0 {
		return nil, draft.Invalid("width", "%v is none of 10s, 1m and 1h", width)
	} else if i < 0 {
		i = len(historyTiers) - 1
	}
	tier := historyTiers[i]
	prefix := historyPrefix + tier.name + "/"
	var buckets []Bucket
	q := storage.DocumentQuery{Prefix: prefix, After: prefix + bucketKey(from.Truncate(tier.Width))}
	for v, err := range document.Of(s).EachValue(ctx, now, q) {
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
			buckets = append(buckets, Bucket{Start: start, Width: tier.Width})
		}
		b := &buckets[len(buckets)-1]
		b.Meters = addMeters(b.Meters, decodeMeters(v.Data))
	}
	return buckets, nil
}

// bucketKey is the start of a bucket in a key: keys are in the order of their starts.
func bucketKey(start time.Time) string { return fmt.Sprintf("%010d", max(start.Unix(), 0)) }

// bucketStart is the start of the bucket of a key; zero if the key has none.
func bucketStart(key, prefix string) time.Time {
	seconds, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(unix, 0).UTC()
}

// addMeters adds what others have counted to a sorted list.
func addMeters(list, others []Meter) []Meter {
	for i := range others {
		m := &others[i]
		at, there := slices.BinarySearchFunc(list, m, func(a Meter, b *Meter) int {
			return byQueueAndType(&a, b)
		})
		if there {
			list[at].Add(m)
		} else {
			list = slices.Insert(list, at, m.clone())
		}
	}
	return list
}

// Put takes a value that is to be stored by a key until it expires.
type Put func(key string, data []byte, expires time.Time)

// Recorder makes the history of an engine. The zero Recorder has recorded nothing.
type Recorder struct {
	last map[pair]Meter // what had been counted when it was recorded last
	open [3]struct {    // the open bucket of each tier
		start  time.Time
		meters []Meter
	}
}

// Record adds what the engine of a worker has counted since the last call to the open
// buckets, and hands put the buckets to store.
func (r *Recorder) Record(counted []Meter, now time.Time, worker string, put Put) {
	var news []Meter
	if r.last == nil {
		r.last = make(map[pair]Meter)
	}
	for i := range counted {
		m := &counted[i]
		before := r.last[pair{m.Queue, m.Type}]
		r.last[pair{m.Queue, m.Type}] = *m
		if d := m.since(&before); !d.IsZero() {
			news = append(news, d)
		}
	}
	if len(news) == 0 {
		return
	}
	news = busiest(news)
	for i, tier := range historyTiers {
		b := &r.open[i]
		if start := now.Truncate(tier.Width); !start.Equal(b.start) {
			b.start, b.meters = start, nil
		}
		b.meters = busiest(addMeters(b.meters, news))
		put(historyPrefix+tier.name+"/"+bucketKey(b.start)+"/"+worker, encodeMeters(b.meters),
			b.start.Add(tier.Width+tier.Keep))
	}
}

// busiest keeps the busiest pairs apart, and adds up the rest.
func busiest(list []Meter) []Meter {
	if len(list) <= historyPairs {
		return list
	}
	load := func(m *Meter) uint64 { return m.Enqueued + m.Run.Count }
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Meter) int { return cmp.Compare(load(&b), load(&a)) })
	other := Meter{Queue: MeterOther, Type: MeterOther}
	for i := historyPairs - 1; i < len(list); i++ {
		other.Add(&list[i])
	}
	return addMeters(nil, append(list[:historyPairs-1], other))
}

// since is what was counted since an earlier snapshot, as far as the history keeps it.
func (m *Meter) since(before *Meter) Meter {
	d := Meter{Queue: m.Queue, Type: m.Type, Wait: m.Wait.since(&before.Wait), Run: m.Run.since(&before.Run)}
	is, was := m.counters(), before.counters()
	for i, n := range d.counters() {
		*n = *is[i] - *was[i]
	}
	return d
}

// storedMeter is a meter in the storage. Its members are stored: one may be added, none
// may change its meaning.
//
// A histogram is its sum in ns, and pairs of a bucket's index and its number.
type storedMeter struct {
	Queue string   `json:"q"`
	Type  string   `json:"t"`
	N     []uint64 `json:"n"`
	Wait  []int64  `json:"wait"`
	Run   []int64  `json:"run"`
}

func encodeMeters(list []Meter) []byte {
	stored := make([]storedMeter, len(list))
	for i := range list {
		m := &list[i]
		stored[i] = storedMeter{Queue: m.Queue, Type: m.Type, Wait: m.Wait.store(), Run: m.Run.store()}
		for _, n := range m.counters() {
			stored[i].N = append(stored[i].N, *n)
		}
	}
	b, _ := json.Marshal(stored) // which always encodes
	return b
}

// decodeMeters reads a bucket. Data of a later version may not decode, and the bucket is
// then empty.
func decodeMeters(b []byte) []Meter {
	var stored []storedMeter
	if json.Unmarshal(b, &stored) != nil {
		return nil
	}
	list := make([]Meter, len(stored))
	for i := range stored {
		m, s := &list[i], &stored[i]
		m.Queue, m.Type = s.Queue, s.Type
		for k, n := range m.counters() {
			if k < len(s.N) {
				*n = s.N[k]
			}
		}
		m.Wait.load(s.Wait)
		m.Run.load(s.Run)
	}
	return list
}

func (h *Histogram) store() []int64 {
	s := []int64{int64(h.Sum)}
	for i, n := range h.buckets {
		if n > 0 {
			s = append(s, int64(i), int64(n))
		}
	}
	return s
}

// load adds what was stored.
func (h *Histogram) load(s []int64) {
	if len(s) == 0 {
		return
	}
	h.Sum += time.Duration(s[0])
	for i := 1; i+1 < len(s); i += 2 {
		if at, n := s[i], s[i+1]; at >= 0 && at <= int64(bucketOf(1<<63-1)) && n > 0 {
			h.put(int(at), uint64(n))
			h.Count += uint64(n)
		}
	}
}
