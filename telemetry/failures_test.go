package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
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
	values, err := f.rec.Record(f.Context(), &f.meters, f.store, now, f.worker, f.version)
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
}

func (f *failing) report(now time.Time) {
	f.Helper()
	f.put(now, f.values(now))
}

// stored are the failures that the storage has.
func (f *failing) stored(now time.Time) []telemetry.FailureCount {
	f.Helper()
	list, err := telemetry.Failures(f.Context(), f.store, now)
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
}

func (s *failingStore) Documents(
	ctx context.Context, kind storage.Kind, q storage.DocumentQuery,
) ([]storage.Document, error) {
	s.calls++
	if s.fails {
		return nil, errors.New("no answer")
	}
	return s.DocumentStore.Documents(ctx, kind, q)
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
		if _, err := a.rec.Record(t.Context(), &a.meters, store, noon, "a", "v1"); err == nil {
			t.Error("no error of the storage")
		}
	}
	store.fails = false
	a.report(noon)
	if list := a.stored(noon); len(list) != 1 || list[0].N != 2 {
		t.Errorf("the failures are %+v", list)
	}
}
