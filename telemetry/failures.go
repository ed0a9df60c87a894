package telemetry

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/storage"
)

// Failed attempts are counted in groups that are alike (FailureKind). An engine that
// reports counts them as it counts jobs, and stores the counts with its reports:
//
//   - failures/group/TYPE/KEY is a group: its texts, its first failure, and the version
//     of the program then. TYPE is a hash of the job type. Each engine that counts a
//     failure of it on a day stores the value anew, so that it outlives its counts.
//   - failures/day/DAY/WORKER has what the engine of a worker has counted in a day of
//     UTC: for each group the numbers by hour, the first and the latest failure.
//
// Invariants:
//
//  1. The sum of the groups is the number of failed attempts that engines have reported.
//  2. A value of a day has one writer. A group that several engines store at the same
//     time may keep the later of their first failures. The values of the days have all of
//     them, and Failures takes the earliest.
//  3. A type has failureGroups groups, and one more for the failures of all others. An
//     engine that is about to add a group reads those of the type before.

const (
	failureGroupPrefix = "failures/group/"
	failureDayPrefix   = "failures/day/"

	failureGroups = 50  // of a job type, beside that of the others
	failureKinds  = 500 // that an engine counts apart in a day; the rest counts for the others

	day = 24 * time.Hour

	// FailureDays is how many days counts of failures are kept, that of now included.
	FailureDays = 30

	sampleText = 200 // bytes
)

// FailureKind is what failures that are alike have in common: the job type, the error
// type, the message without ids and numbers, and, after a panic, the first frame that is
// not of the standard library.
type FailureKind struct {
	Key       string
	Type      string // of the jobs
	ErrorType string
	Message   string // with # for each number and id; at most 200 bytes
	Frame     string // "": no panic
}

// otherKey begins the keys of groups of the other failures of a type.
const otherKey = "other."

// Other reports whether the group has the failures of a type that have no group of their
// own, since there are too many groups.
func (k *FailureKind) Other() bool { return strings.HasPrefix(k.Key, otherKey) }

// others is the group of the other failures of a type.
func others(jobType string) FailureKind {
	return FailureKind{Key: otherKey + hashed(jobType), Type: jobType}
}

func hashed(parts ...string) string {
	h := fnv.New64a()
	for _, part := range parts {
		_, _ = h.Write([]byte(part)) // which never fails
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// KindOf returns the kind of a failure of a job of a type.
func KindOf(jobType string, f *ojs.Failure) FailureKind {
	k := FailureKind{Type: jobType, ErrorType: f.Type, Message: plainMessage(f.Message),
		Frame: ownFrame(f.Backtrace)}
	k.Key = hashed(k.Type, k.ErrorType, k.Message, k.Frame)
	return k
}

// varying is what differs between messages of the same failure: quoted text, ids and
// numbers, alone or in words with digits.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|` + "`[^`]*`" +
	`|\S+@\S+|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|0x[0-9a-fA-F]+|\b\w*[0-9](?:[\w.:-]*\w)?`)

// plainMessage is a message without what varies in it.
func plainMessage(message string) string {
	return foreign.Clip(varying.ReplaceAllString(foreign.Clip(message, 1000), "#"), 200)
}

// ownFrame is the function of the first frame of a backtrace that is not the standard
// library's, "" if there is none. A frame is a function, a file and a line.
func ownFrame(frames []string) string {
	for _, frame := range frames {
		name, _, _ := strings.Cut(frame, " ")
		host, _, _ := strings.Cut(name, "/")
		if strings.HasPrefix(name, "main.") || strings.Contains(name, "/") && strings.Contains(host, ".") {
			return foreign.Clip(name, 200)
		}
	}
	return ""
}

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
	Text   string // its message; at most 200 bytes

	Days  [FailureDays]uint64 // by days of UTC, that of now last
	Hours [24]uint64          // by hours, that of now last
}

// Failures returns the failed attempts that the engines on a storage that report
// (engine.WithReports) have counted in the last FailureDays days, by kind. The kinds with
// the most failures in the last day come first. A job type has 50 kinds apart, and one
// for all others (FailureKind.Other). An engine that is killed loses what it has counted
// since its last report.
//
// It costs a read of a value for each engine and day with failures, and of the groups.
func Failures(ctx context.Context, s storage.DocumentStore, now time.Time) ([]FailureCount, error) {
	counts := make(map[string]*FailureCount)
	values := document.Of(s)
	for v, err := range values.EachValue(ctx, now, storage.DocumentQuery{Prefix: failureGroupPrefix}) {
		if err != nil {
			return nil, err
		}
		var g storedGroup
		if json.Unmarshal(v.Data, &g) == nil {
			key := v.Key[strings.LastIndexByte(v.Key, '/')+1:]
			counts[key] = &FailureCount{First: g.First, Version: g.Version,
				FailureKind: FailureKind{key, g.Type, g.ErrorType, g.Message, g.Frame}}
		}
	}
	today := now.Truncate(day)
	first := today.Add(-(FailureDays - 1) * day)
	q := storage.DocumentQuery{Prefix: failureDayPrefix, After: failureDayPrefix + bucketKey(first)}
	for v, err := range values.EachValue(ctx, now, q) {
		if err != nil {
			return nil, err
		}
		start := bucketStart(v.Key, failureDayPrefix)
		var stored storedDay
		if start.IsZero() || start.After(today) || json.Unmarshal(v.Data, &stored) != nil {
			continue
		}
		for i := range stored.Groups {
			g := &stored.Groups[i]
			c := counts[g.Key]
			if c == nil { // of a later version
				c = &FailureCount{FailureKind: FailureKind{Key: g.Key, Type: MeterOther}}
				counts[g.Key] = c
			}
			c.add(g, stored.Version, start, now)
		}
	}
	var out []FailureCount
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
	return out, nil
}

// add adds what an engine has counted in a day.
func (c *FailureCount) add(g *storedFailures, version string, start, now time.Time) {
	for hour, n := range g.Hours {
		at := start.Add(time.Duration(hour) * time.Hour)
		c.N += n
		c.Days[FailureDays-1-int(now.Truncate(day).Sub(start)/day)] += n
		if ago := int(now.Truncate(time.Hour).Sub(at) / time.Hour); ago >= 0 && ago < len(c.Hours) {
			c.Hours[len(c.Hours)-1-ago] += n
		}
	}
	if c.First.IsZero() || g.First.Before(c.First) {
		c.First, c.Version = g.First, version
	}
	if !g.Last.Before(c.Last) {
		c.Last, c.Sample, c.Text = g.Last, g.Sample, g.Text
	}
}

// storedGroup and storedDay are values in the storage. Their members are stored: one may
// be added, none may change its meaning.
type storedGroup struct {
	Type      string    `json:"t"`
	ErrorType string    `json:"e,omitzero"`
	Message   string    `json:"m,omitzero"`
	Frame     string    `json:"f,omitzero"`
	First     time.Time `json:"first"`
	Version   string    `json:"v,omitzero"`
}

type storedDay struct {
	Version string           `json:"v,omitzero"` // of the program
	Groups  []storedFailures `json:"g"`
}

// storedFailures is what an engine has counted of a group: in a day, and before that
// since its latest report.
type storedFailures struct {
	Key    string         `json:"k"`
	Hours  map[int]uint64 `json:"h"` // by the hour of the day
	First  time.Time      `json:"first"`
	Last   time.Time      `json:"last"`
	Sample string         `json:"id"`
	Text   string         `json:"x,omitzero"`
}

// add adds a later count of the same group and day.
func (f *storedFailures) add(g *storedFailures) {
	for hour, n := range g.Hours {
		f.Hours[hour] += n
	}
	if g.First.Before(f.First) {
		f.First = g.First
	}
	if !g.Last.Before(f.Last) {
		f.Last, f.Sample, f.Text = g.Last, g.Sample, g.Text
	}
}

// failures are the failed attempts that were counted since the engine's latest report.
type failures struct {
	mu    sync.Mutex // guards the fields below
	kinds map[failureText]FailureKind
	news  map[newsKey]*newFailures
}

// failureText is all that the kind of a failure is made of. The kinds of the latest texts
// are kept, because it takes longer to make one than to count.
type failureText struct{ jobType, errorType, message, frame string }

type newsKey struct {
	day time.Time // its start
	key string
}

type newFailures struct {
	kind FailureKind
	storedFailures
}

const (
	keptTexts = 1000
	// maxNews is how many groups are counted apart between two reports.
	maxNews = 1000
)

// count counts a failed attempt of a job.
func (f *failures) count(r *storage.Record) {
	e := r.Error
	if e == nil {
		return
	}
	text := failureText{r.Type, e.Type, foreign.Clip(e.Message, 1000), ownFrame(e.Backtrace)}
	at := e.At.UTC()
	f.mu.Lock()
	defer f.mu.Unlock()
	kind, ok := f.kinds[text]
	if !ok {
		kind = KindOf(r.Type, e)
		if f.kinds == nil || len(f.kinds) == keptTexts {
			f.kinds = make(map[failureText]FailureKind)
		}
		f.kinds[text] = kind
	}
	key := newsKey{at.Truncate(day), kind.Key}
	n := f.news[key]
	if n == nil && len(f.news) >= maxNews {
		kind = others(r.Type)
		key.key = kind.Key
		n = f.news[key]
	}
	if n == nil {
		n = &newFailures{kind, storedFailures{Key: kind.Key, Hours: make(map[int]uint64), First: at}}
		if f.news == nil {
			f.news = make(map[newsKey]*newFailures)
		}
		f.news[key] = n
	}
	n.Hours[at.Hour()]++
	n.Last, n.Sample, n.Text = at, r.ID, foreign.Clip(e.Message, sampleText)
}

// take returns what was counted since the last call.
func (f *failures) take() map[newsKey]*newFailures {
	f.mu.Lock()
	defer f.mu.Unlock()
	news := f.news
	f.news = nil
	return news
}

// FailureRecorder stores the failures that the engine of a worker counts. The zero
// FailureRecorder has recorded nothing. It belongs to one goroutine.
type FailureRecorder struct {
	news  map[newsKey]*newFailures // that are in no value yet: a read of the storage has failed
	today time.Time
	days  map[time.Time]map[string]*storedFailures // of today and of the day before
	types map[string]map[string]*knownGroup        // by type and key, as read today
}

// knownGroup is a group that is stored until a time.
type knownGroup struct {
	storedGroup
	until time.Time
}

// Record adds the failures that were counted since the last call to the values of their
// days, and returns the values to write. Without failures it does nothing. It reads the
// groups of a job type that may have a new one. If that fails, the next call has the
// failures.
func (r *FailureRecorder) Record(
	ctx context.Context, m *Meters, s storage.DocumentStore, now time.Time, worker, version string,
) ([]document.Value, error) {
	for key, n := range m.failures.take() {
		if r.news == nil {
			r.news = make(map[newsKey]*newFailures)
		}
		if old := r.news[key]; old == nil {
			r.news[key] = n
		} else {
			old.add(&n.storedFailures)
		}
	}
	if len(r.news) == 0 {
		return nil, nil
	}
	if today := now.Truncate(day); !today.Equal(r.today) {
		r.today, r.types = today, make(map[string]map[string]*knownGroup)
		days := map[time.Time]map[string]*storedFailures{}
		for _, start := range []time.Time{today.Add(-day), today} {
			if days[start] = r.days[start]; days[start] == nil {
				days[start] = make(map[string]*storedFailures)
			}
		}
		r.days = days
	}
	read := make(map[string]bool)
	for _, n := range r.news {
		if k := &n.kind; !k.Other() && r.types[k.Type][k.Key] == nil && !read[k.Type] {
			if err := r.read(ctx, s, now, k.Type); err != nil {
				return nil, err
			}
			read[k.Type] = true
		}
	}
	news := slices.SortedFunc(maps.Values(r.news), func(a, b *newFailures) int {
		return cmp.Or(a.First.Compare(b.First), strings.Compare(a.Key, b.Key))
	})
	r.news = nil
	var values []document.Value
	changed := make(map[time.Time]bool)
	for _, n := range news {
		start := n.First.Truncate(day)
		if r.days[start] == nil { // a failure that was stored late
			start = r.today
		}
		kind := r.place(&n.kind, r.days[start])
		if v := r.keep(&kind, n, start, version); v.Key != "" {
			values = append(values, v)
		}
		if old := r.days[start][kind.Key]; old != nil {
			old.add(&n.storedFailures)
		} else {
			n.Key = kind.Key
			r.days[start][kind.Key] = &n.storedFailures
		}
		changed[start] = true
	}
	for start := range changed {
		stored := storedDay{Version: version}
		for _, key := range slices.Sorted(maps.Keys(r.days[start])) {
			stored.Groups = append(stored.Groups, *r.days[start][key])
		}
		data, _ := json.Marshal(&stored) // which always encodes
		values = append(values, document.Value{Key: failureDayPrefix + bucketKey(start) + "/" + worker,
			Data: data, Expires: start.Add(failuresKept)})
	}
	return values, nil
}

// failuresKept is how long counts are kept from the start of their day on.
const failuresKept = (FailureDays + 1) * day

func groupPrefix(jobType string) string { return failureGroupPrefix + hashed(jobType) + "/" }

// read reads the groups of a job type.
func (r *FailureRecorder) read(
	ctx context.Context, s storage.DocumentStore, now time.Time, jobType string,
) error {
	known, prefix := make(map[string]*knownGroup), groupPrefix(jobType)
	for v, err := range document.Of(s).EachValue(ctx, now, storage.DocumentQuery{Prefix: prefix}) {
		if err != nil {
			return err
		}
		g := &knownGroup{until: v.Expires}
		if json.Unmarshal(v.Data, &g.storedGroup) == nil {
			known[strings.TrimPrefix(v.Key, prefix)] = g
		}
	}
	r.types[jobType] = known
	return nil
}

// place is the group in which failures of a kind count: that of the others, if the type
// or the day has no room.
func (r *FailureRecorder) place(k *FailureKind, day map[string]*storedFailures) FailureKind {
	known := r.types[k.Type]
	full := day[k.Key] == nil && len(day) >= failureKinds
	if known[k.Key] == nil {
		n := 0
		for key := range known {
			if !strings.HasPrefix(key, otherKey) {
				n++
			}
		}
		full = full || n >= failureGroups
	}
	if full {
		return others(k.Type)
	}
	return *k
}

// keep is the value of a group that has failures of a day, without a key if the storage
// has the value for long enough.
func (r *FailureRecorder) keep(
	k *FailureKind, n *newFailures, start time.Time, version string,
) (v document.Value) {
	known := r.types[k.Type]
	if known == nil { // of the others: nothing has read it
		known = make(map[string]*knownGroup)
		r.types[k.Type] = known
	}
	g := known[k.Key]
	if g == nil {
		g = &knownGroup{storedGroup: storedGroup{k.Type, k.ErrorType, k.Message, k.Frame, n.First, version}}
		known[k.Key] = g
	}
	until := start.Add(failuresKept)
	if !g.until.Before(until) && !n.First.Before(g.First) {
		return document.Value{}
	}
	if n.First.Before(g.First) {
		g.First, g.Version = n.First, version
	}
	g.until = until
	data, _ := json.Marshal(&g.storedGroup) // which always encodes
	return document.Value{Key: groupPrefix(k.Type) + k.Key, Data: data, Expires: until}
}
