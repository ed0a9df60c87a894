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
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/locks"
	"github.com/ojsengine/ojs/storage"
)

// Failed attempts are counted in groups that are alike (FailureKind). An engine that
// reports counts them as it counts jobs, and stores the counts with its reports:
//
//   - failures/group/TYPE/KEY is a group: its texts, its first failure, and the version
//     of the program then. TYPE is a hash of the job type. Each engine that counts a
//     failure of it on a day stores the value anew, so that it outlives its counts.
//   - failures/hour/HOUR/WORKER has what the engine of a worker has stored with its
//     reports in an hour: for each group the numbers by the hours of the failures, the
//     first and the latest failure.
//   - failures/sum/DAY/TYPE has the sums of the values of the hours of a day of UTC. An
//     engine that reports makes them of these, and deletes these in the same step.
//
// Invariants:
//
//  1. The sum of the groups is the number of failed attempts that engines have reported.
//  2. A value of an hour has one writer, which writes it within the hour. closedAfter
//     after its end it does not change. Counts that a report could not store go to the
//     value of the next report.
//  3. The sums of a day are made once: a value is stored if there is none. A day with
//     sums has no other values that count. All engines make the same ones.
//  4. A group that several engines store at the same time may keep the later of their
//     first failures. The other values have all of them, and a read takes the earliest.
//  5. A type has failureGroups groups, and one more for the failures of all others. An
//     engine that is about to add a group reads those of the type before.

const (
	failureGroupPrefix = "failures/group/"
	failureHourPrefix  = "failures/hour/"
	failureSumPrefix   = "failures/sum/"

	failureGroups = 50  // of a job type, beside that of the others
	failureKinds  = 200 // that an engine counts apart in an hour; the rest counts for the others

	day = 24 * time.Hour

	// FailureDays is how many days counts of failures are kept, that of now included.
	FailureDays = 30

	sampleText  = 200  // bytes
	messageRead = 1000 // bytes of a message that its kind is made of
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
var varying = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|"[^"]*"|'[^']*'|` + "`[^`]*`" +
	`|\S+@\S+|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|0x[0-9a-fA-F]+|\b\w*[0-9](?:[\w.:-]*\w)?`)

// plainMessage is a message without what varies in it. A quoted text that the bound cuts
// goes, too: the name of a secret may have been before it.
func plainMessage(message string) string {
	plain := varying.ReplaceAllString(foreign.Clip(message, messageRead), "#")
	if open := strings.IndexAny(plain, "\"'`"); len(message) > messageRead && open >= 0 {
		plain = plain[:open]
	}
	return foreign.Clip(plain, sampleText)
}

// sample is the beginning of a message, of which a page can hide the secrets: without the
// word or the number that the end cuts, and nothing of JSON that it cuts.
func sample(message string) string {
	text := foreign.Clip(message, sampleText)
	if len(message) <= sampleText {
		return text
	}
	if begin := strings.TrimLeft(text, " \t\r\n"); begin == "" || begin[0] == '{' || begin[0] == '[' {
		return ""
	}
	text = text[:strings.LastIndexAny(text, " \t\r\n,;")+1]
	return strings.TrimRight(text, "0123456789- \t\r\n,;")
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

// storedGroup and storedFailures are values in the storage. Their members are stored: one
// may be added, none may change its meaning.
type storedGroup struct {
	Type      string    `json:"t"`
	ErrorType string    `json:"e,omitzero"`
	Message   string    `json:"m,omitzero"`
	Frame     string    `json:"f,omitzero"`
	First     time.Time `json:"first"`
	Version   string    `json:"v,omitzero"`
}

// storedFailures is what was counted of a group.
type storedFailures struct {
	Key     string           `json:"k"`
	Type    string           `json:"t"` // its hash
	Hours   map[int64]uint64 `json:"h"` // by the hours of the failures, since 1970
	First   time.Time        `json:"first"`
	Version string           `json:"v,omitzero"` // of the program of the first
	Last    time.Time        `json:"last"`
	Sample  string           `json:"id"`
	Text    string           `json:"x,omitzero"`

	kind FailureKind // of failures that this process has counted
}

// add adds another count of the same group.
func (f *storedFailures) add(g *storedFailures) {
	for hour, n := range g.Hours {
		f.Hours[hour] += n
	}
	if g.First.Before(f.First) {
		f.First, f.Version = g.First, g.Version
	}
	if !g.Last.Before(f.Last) {
		f.Last, f.Sample, f.Text = g.Last, g.Sample, g.Text
	}
}

// failureSums are counts by the keys of their groups.
type failureSums map[string]*storedFailures

// add adds a count, of which it keeps a copy.
func (s *failureSums) add(g *storedFailures) {
	if old := (*s)[g.Key]; old != nil {
		old.add(g)
		return
	}
	if *s == nil {
		*s = make(failureSums)
	}
	sum := *g
	sum.Hours = maps.Clone(g.Hours)
	(*s)[g.Key] = &sum
}

// encode is the counts as they are stored.
func (s failureSums) encode() []byte {
	var list []*storedFailures
	for _, key := range slices.Sorted(maps.Keys(s)) {
		list = append(list, s[key])
	}
	data, _ := json.Marshal(list) // which always encodes
	return data
}

// load adds stored counts. Counts of a later version may not decode, and are left out.
func (s *failureSums) load(data []byte) {
	var list []storedFailures
	if json.Unmarshal(data, &list) != nil {
		return
	}
	for i := range list {
		if list[i].Hours != nil {
			s.add(&list[i])
		}
	}
}

// failures are the failed attempts that were counted since the engine's latest report.
type failures struct {
	mu    locks.Mutex // guards the fields below
	kinds map[failureText]FailureKind
	news  failureSums
}

// failureText is all that the kind of a failure is made of. The kinds of the latest texts
// are kept, because it takes longer to make one than to count.
type failureText struct{ jobType, errorType, message, frame string }

const (
	keptTexts = 1000
	// maxNews is how many groups are counted apart between two reports.
	maxNews = 1000
)

// kind is the kind of a failure of a job of a type. It is made without the lock.
func (f *failures) kind(jobType string, e *ojs.Failure) FailureKind {
	// One byte more than a kind is made of: it matters whether a message is longer.
	text := failureText{jobType, e.Type, foreign.Clip(e.Message, messageRead+1), ownFrame(e.Backtrace)}
	f.mu.Lock()
	kind, ok := f.kinds[text]
	f.mu.Unlock()
	if ok {
		return kind
	}
	kind = KindOf(jobType, e)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds == nil || len(f.kinds) >= keptTexts {
		f.kinds = make(map[failureText]FailureKind)
	}
	f.kinds[text] = kind
	return kind
}

// count counts a failed attempt of a job.
func (f *failures) count(r *storage.Record) {
	e := r.Error
	if e == nil {
		return
	}
	kind := f.kind(r.Type, e)
	at := e.At.UTC()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.news[kind.Key] == nil && len(f.news) >= maxNews {
		kind = others(r.Type)
	}
	f.news.add(&storedFailures{Key: kind.Key, kind: kind, Hours: map[int64]uint64{hourOf(at): 1},
		First: at, Last: at, Sample: r.ID, Text: sample(e.Message)})
}

// hourOf is the number of hours from 1970 to a time.
func hourOf(at time.Time) int64 { return at.Unix() / int64(time.Hour/time.Second) }

// take returns what was counted since the last call.
func (f *failures) take() failureSums {
	f.mu.Lock()
	defer f.mu.Unlock()
	news := f.news
	f.news = nil
	return news
}

// FailureRecorder stores the failures that the engine of a worker counts. The zero
// FailureRecorder has recorded nothing. It belongs to one goroutine.
type FailureRecorder struct {
	news     failureSums // whose groups are unknown: a read of the storage has failed
	unstored failureSums // that the storage may not have
	hour     time.Time
	sums     failureSums // of the value of the hour, the unstored ones included
	today    time.Time
	groups   map[string]map[string]*knownGroup // by the hash of the type and by key, as read today
	merge    time.Time                         // when Merge looks again
}

// knownGroup is a group that is stored until a time, zero if it may not be as it is here.
type knownGroup struct {
	storedGroup
	until time.Time
}

// failuresKept is how long counts are kept from the start of their day on.
const failuresKept = (FailureDays + 1) * day

// Record hands put the values to store: of failures that were counted since the last
// call, and of earlier ones until Stored is called. Without failures it does nothing. It
// reads the groups of a job type that may have a new one. If that fails, the next call
// has the failures.
func (r *FailureRecorder) Record(
	ctx context.Context, m *Meters, s storage.DocumentStore, now time.Time, worker, version string, put Put,
) error {
	for _, n := range m.failures.take() {
		n.Version = version
		r.news.add(n)
	}
	if len(r.news)+len(r.unstored) == 0 {
		return nil
	}
	if today := now.Truncate(day); !today.Equal(r.today) {
		r.today, r.groups = today, make(map[string]map[string]*knownGroup)
	}
	if hour := now.Truncate(time.Hour); !hour.Equal(r.hour) {
		r.hour, r.sums = hour, nil
		for _, n := range r.unstored {
			r.sums.add(n)
		}
	}
	err := r.placeNews(ctx, s, now)
	if len(r.unstored) == 0 {
		return err
	}
	until := r.today.Add(failuresKept)
	for _, key := range slices.Sorted(maps.Keys(r.unstored)) {
		n := r.unstored[key]
		g := r.group(n)
		if n.First.Before(g.First) {
			g.First, g.Version, g.until = n.First, n.Version, time.Time{}
		}
		if g.until.Before(until) {
			data, _ := json.Marshal(&g.storedGroup) // which always encodes
			put(failureGroupPrefix+n.Type+"/"+key, data, until)
		}
	}
	put(failureHourPrefix+bucketKey(r.hour)+"/"+worker, r.sums.encode(), r.hour.Add(failuresKept))
	return err
}

// Stored says that the values of the last call of Record are stored.
func (r *FailureRecorder) Stored() {
	for _, n := range r.unstored {
		r.group(n).until = r.today.Add(failuresKept)
	}
	r.unstored = nil
}

// placeNews moves the news to the groups that they count in.
func (r *FailureRecorder) placeNews(ctx context.Context, s storage.DocumentStore, now time.Time) error {
	read := make(map[string]bool)
	for _, n := range r.news {
		n.Type = hashed(n.kind.Type)
		if !n.kind.Other() && r.groups[n.Type][n.Key] == nil && !read[n.Type] {
			if err := r.read(ctx, s, now, n.Type); err != nil {
				return err
			}
			read[n.Type] = true
		}
	}
	news := slices.SortedFunc(maps.Values(r.news), func(a, b *storedFailures) int {
		return cmp.Or(a.First.Compare(b.First), strings.Compare(a.Key, b.Key))
	})
	r.news = nil
	for _, n := range news {
		if r.full(n) {
			n.kind = others(n.kind.Type)
			n.Key = n.kind.Key
		}
		r.group(n)
		r.unstored.add(n)
		r.sums.add(n)
	}
	return nil
}

// read reads the groups of a job type by its hash.
func (r *FailureRecorder) read(
	ctx context.Context, s storage.DocumentStore, now time.Time, jobType string,
) error {
	known, prefix := make(map[string]*knownGroup), failureGroupPrefix+jobType+"/"
	for v, err := range document.Of(s).EachValue(ctx, now, storage.DocumentQuery{Prefix: prefix}) {
		if err != nil {
			return err
		}
		g := &knownGroup{until: v.Expires}
		if json.Unmarshal(v.Data, &g.storedGroup) == nil {
			known[strings.TrimPrefix(v.Key, prefix)] = g
		}
	}
	r.groups[jobType] = known
	return nil
}

// full reports whether failures have no group of their own, since the type or the value
// of the hour has no room for one.
func (r *FailureRecorder) full(n *storedFailures) bool {
	if r.sums[n.Key] == nil && len(r.sums) >= failureKinds {
		return true
	}
	known, groups := r.groups[n.Type], 0
	if known[n.Key] != nil {
		return false
	}
	for key := range known {
		if !strings.HasPrefix(key, otherKey) {
			groups++
		}
	}
	return groups >= failureGroups
}

// group is the group of failures. It may be new.
func (r *FailureRecorder) group(n *storedFailures) *knownGroup {
	known := r.groups[n.Type]
	if known == nil { // of the others, or of yesterday: nothing has read it
		known = make(map[string]*knownGroup)
		r.groups[n.Type] = known
	}
	g, k := known[n.Key], &n.kind
	if g == nil {
		g = &knownGroup{storedGroup: storedGroup{k.Type, k.ErrorType, k.Message, k.Frame, n.First, n.Version}}
		known[n.Key] = g
	}
	return g
}
