package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/telemetry"
)

// failing is an engine that counts failures.
type failing struct {
	*testing.T
	store   storage.DocumentStore
	worker  string
	version string
	meters  telemetry.Meters
	rec     telemetry.FailureRecorder
}

func newFailing(t *testing.T, store storage.DocumentStore, worker, version string) *failing {
	f := &failing{T: t, store: store, worker: worker, version: version}
	f.meters.CountFailures = true
	return f
}

// fail counts a failed attempt.
func (f *failing) fail(id, jobType, message string, at time.Time) {
	r := &storage.Record{JobInfo: ojs.JobInfo{JobHeader: ojs.JobHeader{ID: id, Type: jobType},
		State: ojs.StateDiscarded, Error: &ojs.Failure{Type: "smtp.timeout", Message: message, At: at}}}
	f.meters.Ended(1, func(int) (telemetry.Attempt, bool) { return telemetry.Attempt{Job: r}, true })
}

// values are those that a report of now stores.
func (f *failing) values(now time.Time) []document.Value {
	f.Helper()
	var values []document.Value
	err := f.rec.Record(f.Context(), &f.meters, f.store, now, f.worker, f.version, stored.Into(&values))
	if err != nil {
		f.Fatal(err)
	}
	return values
}

func (f *failing) put(now time.Time, values []document.Value) {
	f.Helper()
	if err := document.Of(f.store).PutValues(f.Context(), now, values); err != nil {
		f.Fatal(err)
	}
	f.rec.Stored()
}

func (f *failing) report(now time.Time) {
	f.Helper()
	f.put(now, f.values(now))
}

// stored are the failures that the storage has.
func (f *failing) stored(now time.Time) []telemetry.FailureCount {
	f.Helper()
	list, err := new(telemetry.KnownFailures).Read(f.Context(), f.store, now)
	if err != nil {
		f.Fatal(err)
	}
	return list
}

var noon = time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)

// Failures of several engines add up. The version is that of the first failure, even if
// its engine has reported later, and the sample that of the latest.
func TestFailuresAddUp(t *testing.T) {
	store := memory.New()
	a, b := newFailing(t, store, "a", "v1"), newFailing(t, store, "b", "v2")
	a.fail("1", "mail.send", "no answer from 10.0.0.1", noon)
	b.fail("2", "mail.send", "no answer from 10.0.0.2", noon.Add(-2*time.Hour))
	a.report(noon)
	b.report(noon)
	a.fail("3", "mail.send", "no answer from 10.0.0.3", noon.Add(time.Minute))
	a.fail("4", "mail.send", "refused", noon.Add(time.Minute))
	a.report(noon.Add(time.Minute))
	list := a.stored(noon.Add(time.Minute))
	if len(list) != 2 {
		t.Fatalf("%d groups: %+v", len(list), list)
	}
	g := list[0]
	if g.N != 3 || g.Type != "mail.send" || g.ErrorType != "smtp.timeout" || g.Message != "no answer from #" {
		t.Errorf("the first group is %+v", g)
	}
	if !g.First.Equal(noon.Add(-2*time.Hour)) || g.Version != "v2" {
		t.Errorf("first at %v in %s, want two hours before noon in v2", g.First, g.Version)
	}
	if !g.Last.Equal(noon.Add(time.Minute)) || g.Sample != "3" || g.Text != "no answer from 10.0.0.3" {
		t.Errorf("last at %v: %s %q", g.Last, g.Sample, g.Text)
	}
	if g.Days[29] != 3 || g.Hours[23] != 2 || g.Hours[21] != 1 {
		t.Errorf("days %v, hours %v", g.Days, g.Hours)
	}
	if r := list[1]; r.N != 1 || r.Version != "v1" || r.Text != "refused" {
		t.Errorf("the second group is %+v", r)
	}
}

// Two engines that store a group at the same time do not lose which failed first.
func TestFirstFailureOfTwoReports(t *testing.T) {
	store := memory.New()
	a, b := newFailing(t, store, "a", "v1"), newFailing(t, store, "b", "v2")
	a.fail("1", "t", "no", noon)
	b.fail("2", "t", "no", noon.Add(time.Second))
	now := noon.Add(time.Second)
	first, second := a.values(now), b.values(now)
	a.put(now, first)
	b.put(now, second)
	if g := a.stored(now)[0]; !g.First.Equal(noon) || g.Version != "v1" {
		t.Errorf("first at %v in %s, want noon in v1", g.First, g.Version)
	}
}

// A type has 50 groups, over all engines, and one for all others. No failure is lost.
func TestFailureGroupsAreBounded(t *testing.T) {
	store := memory.New()
	a, b := newFailing(t, store, "a", "v1"), newFailing(t, store, "b", "v1")
	word := func(i int) string { return fmt.Sprintf("%c%c", 'a'+i/26, 'a'+i%26) }
	for i := range 40 {
		a.fail("1", "t", word(i), noon)
	}
	a.report(noon)
	for i := 40; i < 100; i++ {
		b.fail("1", "t", word(i), noon)
	}
	b.fail("1", "another", "no", noon)
	b.report(noon)
	a.fail("1", "t", "late", noon)
	a.fail("1", "t", word(0), noon)
	a.report(noon)
	sum, others := uint64(0), uint64(0)
	list := a.stored(noon)
	for _, g := range list {
		sum += g.N
		if g.Other() {
			others += g.N
		}
	}
	if len(list) != 52 || sum != 103 || others != 51 {
		t.Errorf("%d groups with %d failures, %d of these others; want 52, 103, 51", len(list), sum, others)
	}
}

// The memory of an engine and its values are bounded even between two reports.
func TestFailuresOfAStorm(t *testing.T) {
	store := memory.New()
	a := newFailing(t, store, "a", "v1")
	const n = 5000
	for i := range n {
		message := fmt.Sprintf("%c%c%c", 'a'+i/676, 'a'+i/26%26, 'a'+i%26)
		a.fail("1", fmt.Sprint("type.", i%100), message, noon)
	}
	values := a.values(noon)
	a.put(noon, values)
	sum := uint64(0)
	for _, g := range a.stored(noon) {
		sum += g.N
	}
	if sum != n || len(values) > 700 {
		t.Errorf("%d failures in %d values, want %d in 700 at most", sum, len(values), n)
	}
	for _, v := range values {
		if len(v.Data) > 300<<10 {
			t.Errorf("%s has %d bytes", v.Key, len(v.Data))
		}
	}
}

// A group keeps its first failure for as long as it fails, and its days go one by one.
func TestFailuresOfManyDays(t *testing.T) {
	store := memory.New()
	for i := range 40 { // a process each day
		a, now := newFailing(t, store, fmt.Sprint("w", i), fmt.Sprint("v", i)), noon.AddDate(0, 0, i)
		a.fail("1", "t", "no", now)
		a.fail("2", "t", "no", now.Add(-13*time.Hour)) // of the day before
		a.report(now)
	}
	a, now := newFailing(t, store, "w", "v40"), noon.AddDate(0, 0, 39)
	list := a.stored(now)
	if len(list) != 1 || list[0].N != 59 || list[0].Days[0] != 2 || list[0].Days[29] != 1 {
		t.Fatalf("the failures are %+v, want 59", list)
	}
	if !list[0].First.Equal(noon.Add(-13*time.Hour)) || list[0].Version != "v0" {
		t.Errorf("first at %v in %s", list[0].First, list[0].Version)
	}
	if list = a.stored(now.AddDate(0, 0, 40)); len(list) != 0 {
		t.Errorf("after 40 quiet days there are %+v", list)
	}
}

// failingStore fails its reads while it is told to.
type failingStore struct {
	storage.DocumentStore
	fails bool
	calls int
	read  int // documents
}

func (s *failingStore) Documents(
	ctx context.Context, kind storage.Kind, q storage.DocumentQuery,
) ([]storage.Document, error) {
	s.calls++
	if s.fails {
		return nil, errors.New("no answer")
	}
	list, err := s.DocumentStore.Documents(ctx, kind, q)
	s.read += len(list)
	return list, err
}

// A storage that does not answer loses no failure. An attempt that succeeds costs
// nothing.
func TestFailuresOfAnOutage(t *testing.T) {
	store := &failingStore{DocumentStore: memory.New()}
	a := newFailing(t, store, "a", "v1")
	done := &storage.Record{JobInfo: ojs.JobInfo{JobHeader: ojs.JobHeader{Type: "t"}}}
	of := func(int) (telemetry.Attempt, bool) { return telemetry.Attempt{Job: done, Completed: true}, true }
	a.meters.Ended(1, of)
	if n := testing.AllocsPerRun(10, func() { a.meters.Ended(1, of) }); n > 0 {
		t.Errorf("an attempt that completes allocates %v times", n)
	}
	if a.report(noon); store.calls > 0 {
		t.Errorf("a report without a failure reads %d times", store.calls)
	}
	store.fails = true
	for range 2 {
		a.fail("1", "t", "no", noon)
		if err := a.rec.Record(t.Context(), &a.meters, store, noon, "a", "v1", nil); err == nil {
			t.Error("no error of the storage")
		}
	}
	store.fails = false
	a.report(noon)
	if list := a.stored(noon); len(list) != 1 || list[0].N != 2 {
		t.Errorf("the failures are %+v", list)
	}
}

// merge has an engine look for hours to merge.
func (f *failing) merge(now time.Time) {
	f.Helper()
	for i := range 3 { // the first call only chooses the time
		at := now.Add(time.Duration(i) * time.Hour)
		if err := f.rec.Merge(f.Context(), f.store, at, f.worker); err != nil {
			f.Fatal(err)
		}
	}
}

// keys are the keys of values of a prefix.
func (f *failing) keys(prefix string, now time.Time) (keys []string) {
	f.Helper()
	q := storage.DocumentQuery{Prefix: prefix}
	for v, err := range document.Of(f.store).EachValue(f.Context(), now, q) {
		if err != nil {
			f.Fatal(err)
		}
		keys = append(keys, v.Key)
	}
	return keys
}

// between runs a step before the next documents are stored.
type between struct {
	storage.DocumentStore
	step func()
}

func (s *between) PutDocuments(
	ctx context.Context, kind storage.Kind, documents []storage.Document,
) ([]uint64, error) {
	if step := s.step; step != nil {
		s.step = nil
		step()
	}
	return s.DocumentStore.PutDocuments(ctx, kind, documents)
}

// The values of a day that is over are merged into one for each type, once even if two
// engines merge at the same time. The counts stay, also for a program that has read them
// before.
func TestMergedFailures(t *testing.T) {
	store := &between{DocumentStore: memory.New()}
	midnight := noon.Truncate(24 * time.Hour)
	for i := range 30 { // a process each hour
		at := midnight.Add(time.Duration(i) * time.Hour)
		a := newFailing(t, store, fmt.Sprint("w", i), "v1")
		a.fail("1", fmt.Sprint("t.", i%2), "no", at)
		a.report(at)
	}
	a, b := newFailing(t, store, "a", "v1"), newFailing(t, store, "b", "v1")
	now := midnight.Add(30 * time.Hour)
	var known telemetry.KnownFailures
	check := func(when string, now time.Time) {
		t.Helper()
		cached, err := known.Read(t.Context(), store, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range [][]telemetry.FailureCount{cached, a.stored(now)} {
			if len(list) != 2 || list[0].N != 15 || list[1].N != 15 ||
				list[0].Days[28]+list[1].Days[28] != 24 {
				t.Errorf("%s: %+v", when, list)
			}
		}
	}
	check("before", now)
	if n := len(a.keys("failures/hour/", now)); n != 30 {
		t.Fatalf("%d values of hours", n)
	}
	store.step = func() { b.merge(now) }
	a.merge(now)
	if store.step != nil {
		t.Fatal("nothing was merged")
	}
	if sums, hours := a.keys("failures/sum/", now), a.keys("failures/hour/", now); len(sums) != 2 ||
		len(hours) != 6 {
		t.Errorf("%d sums and %d hours, want 2 and 6", len(sums), len(hours))
	}
	check("after", now)
	counted := &failingStore{DocumentStore: store}
	if _, err := known.Read(t.Context(), counted, now); err != nil || counted.calls != 2 || counted.read > 3 {
		t.Errorf("the next read costs %d calls and %d documents, %v", counted.calls, counted.read, err)
	}
	for range 2 { // a day that is not over is not merged
		a.merge(now)
	}
	if n := len(a.keys("failures/hour/", now)); n != 6 {
		t.Errorf("%d values of hours of today", n)
	}
}

// The beginning of a long message has no part of a word, of a number or of JSON.
func TestCutMessages(t *testing.T) {
	store, long := memory.New(), strings.Repeat("x", 185)
	for name, tt := range map[string]struct{ message, text string }{
		"card":          {long + " 4111 1111 1111 1111", long},
		"card at once":  {long + ", 4111111111111111, and more", long},
		"card at a gap": {long + " 4111-1111-1111-1111", long},
		"object":        {` {"password":["` + long[:90] + `","` + long + `"]}`, ""},
		"list":          {`["` + long + long + `"]`, ""},
		"short":         {`{"a":1}`, `{"a":1}`},
		"words":         {strings.Repeat("no ", 100), strings.TrimSpace(strings.Repeat("no ", 66))},
	} {
		a := newFailing(t, store, "a", "v1")
		a.fail("1", strings.ReplaceAll(name, " ", "."), tt.message, noon)
		a.report(noon)
		if g := a.stored(noon)[0]; g.Text != tt.text {
			t.Errorf("%s: %q, want %q", name, g.Text, tt.text)
		}
		store = memory.New()
	}
	secret := `{"note":"` + strings.Repeat("a", 960) + `","password":"` + strings.Repeat("hunter ", 20) + `"}`
	k := telemetry.KindOf("t", &ojs.Failure{Message: secret})
	if strings.Contains(k.Message, "hunter") {
		t.Errorf("the message of the kind is %q", k.Message)
	}
	k = telemetry.KindOf("t", &ojs.Failure{Message: `{"password":"a\"hunter b"}`})
	if k.Message != "{#:#}" {
		t.Errorf("the message of the kind is %q", k.Message)
	}
}

// A failure that is counted late counts in its own hour. The first and the latest go by
// their times.
func TestLateFailures(t *testing.T) {
	a := newFailing(t, memory.New(), "a", "v1")
	a.fail("2", "t", "no", noon)
	a.fail("1", "t", "no", noon.AddDate(0, 0, -3))
	a.report(noon)
	g := a.stored(noon)[0]
	if g.Days[26] != 1 || g.Days[29] != 1 || g.Sample != "2" || !g.Last.Equal(noon) ||
		!g.First.Equal(noon.AddDate(0, 0, -3)) {
		t.Errorf("%+v", g)
	}
}

// A report that was not stored is made again by the next one, in another hour, too, with
// the texts of its groups.
func TestFailuresOfALostReport(t *testing.T) {
	a := newFailing(t, memory.New(), "a", "v1")
	a.fail("1", "t", "no", noon)
	a.report(noon)
	a.fail("2", "t", "yes", noon)
	a.values(noon)
	for _, now := range []time.Time{noon.Add(time.Hour), noon.Add(14 * time.Hour)} {
		a.report(now)
		list := a.stored(now)
		if len(list) != 2 || list[0].N != 1 || list[1].N != 1 || list[0].Type != "t" || list[1].Type != "t" {
			t.Errorf("%+v", list)
		}
	}
}

// The values of a day of many failures with long texts are small, each report's and the
// sums.
func TestSizesOfFailures(t *testing.T) {
	a := newFailing(t, memory.New(), "a", "v1")
	start := noon.Truncate(24 * time.Hour)
	sizes := func(values []document.Value) {
		for _, v := range values {
			if len(v.Data) > 300<<10 {
				t.Errorf("%s has %d bytes", v.Key, len(v.Data))
			}
		}
	}
	for i := range 24 {
		at := start.Add(time.Duration(i) * time.Hour)
		for k := range 500 {
			message := fmt.Sprintf("%c%c %s", 'a'+k/26%26, 'a'+k%26, strings.Repeat("<> ", 400))
			a.fail("1", fmt.Sprint("type.", k%10), message, at)
		}
		values := a.values(at)
		sizes(values)
		a.put(at, values)
	}
	now := start.Add(26 * time.Hour)
	a.merge(now)
	values, err := document.Of(a.store).Values(t.Context(), now, "failures/sum/", "", 0)
	if sizes(values); err != nil || len(values) != 10 {
		t.Errorf("%d sums, %v", len(values), err)
	}
	sum := uint64(0)
	for _, g := range a.stored(now) {
		sum += g.N
	}
	if sum != 24*500 {
		t.Errorf("%d failures", sum)
	}
}

// A kind that fails again and again in an hour counts once towards the kinds that have a
// place in the hour, and each report writes one value for it.
func TestKindsThatFailAgain(t *testing.T) {
	store := memory.New()
	a := newFailing(t, store, "a", "v1")
	const types, kinds, reports = 4, 45, 6 // 180 kinds of the 200 of an hour
	for i := range reports {
		now := noon.Add(time.Duration(i) * 10 * time.Minute)
		for k := range types * kinds {
			word := fmt.Sprintf("%c%c", 'a'+k%kinds/26, 'a'+k%kinds%26)
			a.fail("1", fmt.Sprint("type.", k/kinds), word, now)
		}
		a.fail("2", "another", fmt.Sprintf("report %c", 'a'+i), now.Add(time.Second))
		values := a.values(now)
		// the value of the hour, the new group, and in the first report all groups
		if want := 2; i > 0 && len(values) != want || i == 0 && len(values) != want+types*kinds {
			t.Errorf("report %d writes %d values", i, len(values))
		}
		a.put(now, values)
	}
	list := a.stored(noon.Add(time.Hour))
	if want := types*kinds + reports; len(list) != want {
		t.Errorf("%d kinds, want %d", len(list), want)
	}
	for _, g := range list {
		if want := uint64(reports); g.Type != "another" && g.N != want || g.Other() {
			t.Errorf("%d failures of %s %q, others: %t; want %d", g.N, g.Type, g.Message, g.Other(), want)
		}
	}
}
