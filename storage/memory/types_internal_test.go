package memory

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
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
