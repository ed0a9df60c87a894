package inspect_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs/inspect"
)

// Find reads pages until it has enough jobs or has looked at enough, and leads on from
// there. A page of ids looks at as many as it may have.
func TestFind(t *testing.T) {
	jobs := discarded(t, 10, func(int) (string, time.Time) { return "t", noon })
	f := inspect.Filter{IDs: []string{"a", "b", "c", "000003", "d", "000001", "000002", "000005"}}
	found := func(at string, n, look int) (ids []string, page inspect.Page) {
		t.Helper()
		page, err := jobs.Find(t.Context(), f, at, n, look)
		if err != nil {
			t.Fatal(err)
		}
		for i, job := range page.Jobs {
			if ids = append(ids, job.ID); page.Workers[i] != "w" {
				t.Errorf("%s has the worker %q", job.ID, page.Workers[i])
			}
		}
		return ids, page
	}
	ids, page := found("", 2, 100)
	if !slices.Equal(ids, []string{"000003", "000001"}) || page.Next == "" || page.Looked != 6 {
		t.Errorf("found %v: %+v", ids, page)
	}
	ids, page = found(page.Next, 2, 100)
	if !slices.Equal(ids, []string{"000002", "000005"}) || page.Next != "" {
		t.Errorf("behind that %v: %+v", ids, page)
	}
	if ids, page := found("", 2, 1); len(ids) > 0 || page.Next == "" || page.Looked != 2 {
		t.Errorf("with a look at one job %v: %+v", ids, page)
	}
}

// A number of jobs may be too small only if not all jobs of the type were looked at.
func TestLeast(t *testing.T) {
	const many = 1000
	jobs := discarded(t, many+3, func(i int) (string, time.Time) {
		if i < 3 {
			return "few", noon
		}
		return "many", noon
	})
	groups, err := jobs.Failures(t.Context(), inspect.Filter{}, 100)
	if err != nil || len(groups.Groups) != 2 || groups.Exact {
		t.Fatalf("%+v, %v", groups, err)
	}
	for _, g := range groups.Groups {
		if few := g.Type == "few"; g.Least == few || few && g.N != 3 || g.N >= many {
			t.Errorf("%s: %d, at least %v", g.Type, g.N, g.Least)
		}
	}
	facets, err := jobs.Facets(t.Context(), inspect.Filter{DeadLettered: true}, inspect.FacetType, 100)
	if err != nil || len(facets.Values) != 2 || facets.Exact {
		t.Fatalf("%+v, %v", facets, err)
	}
	for _, v := range facets.Values {
		if v.Least == (v.Value == "few") {
			t.Errorf("%+v", v)
		}
	}
}

// Ids are selected whole, by how they begin and by how they end.
func TestIDPatterns(t *testing.T) {
	jobs := discarded(t, 120, func(int) (string, time.Time) { return "t", noon })
	for _, tt := range []struct {
		ids  []string
		want int
	}{
		{[]string{"000007"}, 1}, {[]string{"00000*"}, 10}, {[]string{"*19"}, 2}, {[]string{"*"}, 120},
		{[]string{"000007", "*19"}, 3}, {[]string{"*000119"}, 1}, {[]string{"7"}, 0}, {[]string{"*0001"}, 1},
	} {
		n, err := jobs.Count(t.Context(), inspect.Filter{IDs: tt.ids}, 0)
		if err != nil || n.N != tt.want {
			t.Errorf("%v selects %+v, %v; want %d", tt.ids, n, err, tt.want)
		}
	}
	for _, id := range []string{"*a*", "**"} {
		if _, err := jobs.Count(t.Context(), inspect.Filter{IDs: []string{id}}, 0); err == nil {
			t.Errorf("%s is no error: %v", id, fmt.Sprint(err))
		}
	}
}
