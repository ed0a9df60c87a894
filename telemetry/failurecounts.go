package telemetry

import (
	"cmp"
	"context"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/times"
	"github.com/ojsengine/ojs/storage"
)

// FailureCount is the failed attempts of a kind that the engines of a storage have
// counted.
type FailureCount struct {
	FailureKind
	N           uint64 // in Days
	First, Last time.Time

	// Version is the program of the engine whose attempt failed first
	// (engine.Reports.Version).
	Version string

	Sample string // the id of the job that failed last
	Text   string // the beginning of its message; at most 200 bytes

	Days  [FailureDays]uint64 // by days of UTC, that of now last
	Hours [24]uint64          // by hours, that of now last
}

// closedAfter is how long after the end of an hour its values do not change.
const closedAfter = time.Hour

// KnownFailures has what a read of counted failures need not read again. The zero
// KnownFailures knows nothing. It is safe for concurrent use.
type KnownFailures struct {
	mu     sync.Mutex // held during a read; guards the fields below
	today  time.Time  // of the latest read
	groups map[string]FailureCount
	days   map[int64]failureSums // of the days with sums, by their starts in s since 1970
	hours  map[int64]failureSums // of the hours before until that were read
	until  time.Time
}

// Read returns the failed attempts that the engines on a storage that report
// (engine.WithReports) have counted in the last FailureDays days, by kind. The kinds with
// the most failures in the last day come first. A job type has 50 kinds apart, and one
// for all others (FailureKind.Other). An engine that is killed loses what it has counted
// since its last report.
//
// The first read costs a read of the groups, of a value for each job type and day, and of
// one for each engine and hour since yesterday. The next ones cost that of two hours.
func (k *KnownFailures) Read(
	ctx context.Context, s storage.DocumentStore, now time.Time,
) ([]FailureCount, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if today := now.UTC().Truncate(day); !today.Equal(k.today) {
		k.today, k.groups = today, nil
	}
	if k.days == nil {
		k.days, k.hours = make(map[int64]failureSums), make(map[int64]failureSums)
	}
	open, err := k.read(ctx, s, now)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]*FailureCount)
	for _, list := range []map[int64]failureSums{k.days, k.hours, open} {
		for _, sums := range list {
			for key, g := range sums {
				if _, known := k.groups[key]; !known {
					if err := k.readGroups(ctx, s, now, key); err != nil {
						return nil, err
					}
				}
				c := counts[key]
				if c == nil {
					group := k.groups[key]
					c = &group
					counts[key] = c
				}
				c.add(g, now)
			}
		}
	}
	return sortedCounts(counts), nil
}

// read reads the sums that are not known, and returns the hours that may yet change.
func (k *KnownFailures) read(
	ctx context.Context, s storage.DocumentStore, now time.Time,
) (open map[int64]failureSums, err error) {
	first := k.today.Add(-(FailureDays - 1) * day)
	// The hours come first: if they are merged after that, the sums of the day count.
	closed := now.Truncate(time.Hour).Add(-closedAfter)
	hours, err := readSums(ctx, s, now, failureHourPrefix, times.Latest(first, k.until))
	if err != nil {
		return nil, err
	}
	latest := first
	for start := range k.days {
		if from := time.Unix(start, 0).Add(day); time.Unix(start, 0).Before(first) {
			delete(k.days, start)
		} else {
			latest = times.Latest(latest, from)
		}
	}
	days, err := readSums(ctx, s, now, failureSumPrefix, latest)
	if err != nil {
		return nil, err
	}
	for start, sums := range days {
		k.days[start] = sums
	}
	open = make(map[int64]failureSums)
	for start, sums := range hours {
		if time.Unix(start, 0).Before(closed) {
			k.hours[start] = sums
		} else {
			open[start] = sums
		}
	}
	k.until = times.Latest(k.until, closed)
	for start := range k.hours {
		at := time.Unix(start, 0).UTC().Truncate(day)
		if k.days[at.Unix()] != nil || at.Before(first) {
			delete(k.hours, start)
		}
	}
	return open, nil
}

// readSums reads the sums of a prefix that start at a time or later, by their starts.
func readSums(
	ctx context.Context, s storage.DocumentStore, now time.Time, prefix string, from time.Time,
) (map[int64]failureSums, error) {
	out := make(map[int64]failureSums)
	q := storage.DocumentQuery{Prefix: prefix, After: prefix + bucketKey(from)}
	for v, err := range document.Of(s).EachValue(ctx, now, q) {
		if err != nil {
			return nil, err
		}
		start := bucketStart(v.Key, prefix).Unix()
		sums := out[start]
		sums.load(v.Data)
		out[start] = sums
	}
	return out, nil
}

// readGroups reads the groups. A wanted one that is not stored is a later version's.
func (k *KnownFailures) readGroups(
	ctx context.Context, s storage.DocumentStore, now time.Time, wanted string,
) error {
	groups := map[string]FailureCount{wanted: {FailureKind: FailureKind{Key: wanted, Type: MeterOther}}}
	for key, known := range k.groups {
		groups[key] = known
	}
	q := storage.DocumentQuery{Prefix: failureGroupPrefix}
	for v, err := range document.Of(s).EachValue(ctx, now, q) {
		if err != nil {
			return err
		}
		var g storedGroup
		if json.Unmarshal(v.Data, &g) == nil {
			key := v.Key[strings.LastIndexByte(v.Key, '/')+1:]
			groups[key] = FailureCount{First: g.First, Version: g.Version,
				FailureKind: FailureKind{key, g.Type, g.ErrorType, g.Message, g.Frame}}
		}
	}
	k.groups = groups
	return nil
}

// add adds what was counted of the kind.
func (c *FailureCount) add(g *storedFailures, now time.Time) {
	lately := false
	for number, n := range g.Hours {
		ago := max(0, hourOf(now)-number)
		days := max(0, hourOf(now)/24-number/24)
		if days >= FailureDays {
			continue
		}
		lately = true
		c.N += n
		c.Days[FailureDays-1-days] += n
		if ago < int64(len(c.Hours)) {
			c.Hours[int64(len(c.Hours))-1-ago] += n
		}
	}
	if !lately {
		return
	}
	if c.First.IsZero() || g.First.Before(c.First) {
		c.First, c.Version = g.First, g.Version
	}
	if !g.Last.Before(c.Last) {
		c.Last, c.Sample, c.Text = g.Last, g.Sample, g.Text
	}
}

// sortedCounts are those with failures, the kinds with the most of the last day first.
func sortedCounts(counts map[string]*FailureCount) (out []FailureCount) {
	for _, c := range counts {
		if c.N > 0 {
			out = append(out, *c)
		}
	}
	lately := func(c *FailureCount) (n uint64) {
		for _, hour := range c.Hours {
			n += hour
		}
		return n
	}
	slices.SortFunc(out, func(a, b FailureCount) int {
		return cmp.Or(cmp.Compare(lately(&b), lately(&a)), cmp.Compare(b.N, a.N),
			strings.Compare(a.Type, b.Type), strings.Compare(a.Key, b.Key))
	})
	return out
}

// FailureCounted reports whether engines have counted failures of the kind with a key.
func FailureCounted(
	ctx context.Context, s storage.DocumentStore, now time.Time, jobType, key string,
) (bool, error) {
	_, ok, err := document.Of(s).Value(ctx, now, failureGroupPrefix+hashed(jobType)+"/"+key)
	return ok, err
}

// mergeEvery is how often an engine looks for values of hours to merge.
const mergeEvery = 10 * time.Minute

// Merge makes the sums of the oldest day that is over of the values of its hours, if it
// has not looked for some within mergeEvery. The engines look at different times.
func (r *FailureRecorder) Merge(
	ctx context.Context, s storage.DocumentStore, now time.Time, worker string,
) error {
	if now.Before(r.merge) {
		return nil
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(worker)) // which never fails
	first := r.merge.IsZero()
	spread := time.Duration(h.Sum32()) * time.Second % mergeEvery
	r.merge = now.Truncate(mergeEvery).Add(mergeEvery + spread)
	if first {
		return nil
	}
	return mergeFailures(ctx, s, now)
}

func mergeFailures(ctx context.Context, s storage.DocumentStore, now time.Time) error {
	values := document.Of(s)
	oldest, err := values.Values(ctx, now, failureHourPrefix, "", 1)
	if err != nil || len(oldest) == 0 {
		return err
	}
	start := bucketStart(oldest[0].Key, failureHourPrefix).Truncate(day)
	if now.Sub(start) < day+closedAfter {
		return nil
	}
	types := make(map[string]failureSums)
	var merged []document.Value
	q := storage.DocumentQuery{Prefix: failureHourPrefix}
	for v, err := range values.EachValue(ctx, now, q) {
		if err != nil {
			return err
		}
		if !bucketStart(v.Key, failureHourPrefix).Before(start.Add(day)) {
			break
		}
		merged = append(merged, v)
		var sums failureSums
		sums.load(v.Data)
		for _, g := range sums {
			ofType := types[g.Type]
			ofType.add(g)
			types[g.Type] = ofType
		}
	}
	var made []document.Value
	for jobType, sums := range types {
		made = append(made, document.Value{Key: failureSumPrefix + bucketKey(start) + "/" + jobType,
			Data: sums.encode(), Expires: start.Add(failuresKept)})
	}
	return values.Merge(ctx, made, merged)
}
