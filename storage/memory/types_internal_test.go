package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// A claim that names a thousand types looks at those that have jobs, and at few of them.
func TestClaimLooksAtFewTypes(t *testing.T) {
	const n = 1000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("type.", i)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		used   int // types with jobs
		claims []string
		queues []string
		most   int // looks for each job
	}{
		{"one type of a thousand has jobs", 1, names, nil, 4},
		{"one type of a thousand has jobs, in a queue", 1, names, []string{"q"}, 4},
		{"all types have jobs", n, names, nil, 4},
		{"the claim names a quarter of the types", n, names[:n/4], nil, n/4 + 4},
		{"the claim names all types but four", n, names[4:], nil, 10},
		{"a claim of one type among a thousand", n, names[:1], nil, 4},
		{"a claim of all types", n, nil, nil, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New()
			defer s.Close()
			var batch []storage.Insert
			for i := range 2 * n {
				r := storage.Record{JobInfo: ojs.JobInfo{JobHeader: ojs.JobHeader{ID: fmt.Sprint(i),
					Type: names[i%tt.used], Queue: "q", CreatedAt: now}, State: ojs.StateAvailable}}
				batch = append(batch, storage.Insert{Record: r})
			}
			if _, err := s.Insert(t.Context(), now, batch, nil); err != nil {
				t.Fatal(err)
			}
			claim := storage.Claim{Types: tt.claims, Queues: tt.queues, Max: 1}
			jobs, last := 0, -1
			for i := 0; ; i++ {
				if i == 2 { // from then on it is known what an engine claims
					s.ready.looked = 0
				}
				list, err := s.Claim(t.Context(), now, claim, nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(list) == 0 {
					break
				}
				at, err := strconv.Atoi(list[0].ID)
				if err != nil || at <= last {
					t.Errorf("job %d comes after %d", at, last)
				}
				jobs, last = jobs+1, at
			}
			want := 0
			for _, in := range batch {
				if tt.claims == nil || slices.Contains(tt.claims, in.Record.Type) {
					want++
				}
			}
			if jobs != want {
				t.Errorf("%d jobs, want %d", jobs, want)
			}
			if got := s.ready.looked / jobs; got > tt.most {
				t.Errorf("%d looks for each job, more than %d", got, tt.most)
			}
		})
	}
}

// Claims that name many types, some by ranges of versions, get the job that came first of
// those that they take, also if the lists of two claims are one array.
func TestClaimsOfManyVersionedTypes(t *testing.T) {
	var patterns []string
	for i := range 40 { // more than there are versions of all types
		patterns = append(patterns, fmt.Sprint("without.jobs.", i))
	}
	patterns = append(patterns, "a", "b@>=2.0", "b@1.0", "c@2.0", "d@", "e@1.0", "f", "g@<2.0", "h@3.0",
		"i", "i@1.0", "a@2.0", "e", "d")
	last := len(patterns) - 1
	lists := [][]string{patterns, patterns[:46], patterns[:51], patterns[1:], patterns[:last],
		slices.Clone(patterns[:50])}
	for _, queues := range [][]string{nil, {"q"}} {
		t.Run(fmt.Sprint(queues), func(t *testing.T) {
			s, now, rnd := New(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), rand.New(rand.NewPCG(1, 2))
			defer s.Close()
			var batch []storage.Insert
			for i := range 2000 {
				var r storage.Record
				r.ID, r.Type, r.Queue, r.CreatedAt = fmt.Sprint(i), string(rune('a'+rnd.IntN(10))), "q", now
				r.State = ojs.StateAvailable
				r.TypeVersion = []string{"", "1.0", "2.0", "3.0"}[rnd.IntN(4)]
				batch = append(batch, storage.Insert{Record: r})
			}
			if _, err := s.Insert(t.Context(), now, batch, nil); err != nil {
				t.Fatal(err)
			}
			for claims := 0; len(batch) > 0 && claims < 5000; claims++ {
				types := lists[claims/4%len(lists)]
				takes := func(in storage.Insert) bool {
					return slices.ContainsFunc(types, func(pattern string) bool {
						return versions.Takes(pattern, in.Record.Type, in.Record.TypeVersion)
					})
				}
				want := "none"
				if i := slices.IndexFunc(batch, takes); i >= 0 {
					want = batch[i].Record.ID
					batch = slices.Delete(batch, i, i+1)
				}
				claim := storage.Claim{Types: types, Queues: queues, Max: 1}
				list, err := s.Claim(t.Context(), now, claim, nil)
				if err != nil {
					t.Fatal(err)
				}
				got := "none"
				if len(list) > 0 {
					got = list[0].ID
				}
				if got != want {
					t.Fatalf("claim %d of %v: job %s, want %s", claims, types, got, want)
				}
			}
		})
	}
}
