package memory

import (
	"context"
	"fmt"
	"sort"
	"strconv"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// index lists jobs in the order in which they were added. Its numbers only grow, so a listing can go on after the last
// one it saw whatever has been added and removed since.
type index struct {
	entries []entry // by ord; a removed one has no job
	first   int     // no entry before it has a job
	holes   int
	last    uint64
}

type entry struct {
	ord uint64
	job *job
}

func (x *index) add(j *job) uint64 { return x.addAs(j, x.last+1) }

// addAs is add under a number greater than the last.
func (x *index) addAs(j *job, ord uint64) uint64 {
	x.last = ord
	x.entries = append(x.entries, entry{x.last, j})
	return x.last
}

func (x *index) remove(ord uint64) {
	x.entries[x.after(ord-1)].job = nil
	x.holes++
	if x.holes > len(x.entries)/2 && x.holes > 64 {
		live := make([]entry, 0, len(x.entries)-x.holes)
		for _, e := range x.entries {
			if e.job != nil {
				live = append(live, e)
			}
		}
		x.entries, x.holes, x.first = live, 0, 0
	}
}

// oldest returns the job that was added first of those that are left, nil if none is.
func (x *index) oldest() *job {
	for ; x.first < len(x.entries); x.first++ {
		if j := x.entries[x.first].job; j != nil {
			return j
		}
	}
	return nil
}

func (x *index) len() int { return len(x.entries) - x.holes }

// after returns the position of the first entry whose number is greater than ord.
func (x *index) after(ord uint64) int {
	return sort.Search(len(x.entries), func(i int) bool { return x.entries[i].ord > ord })
}

const (
	maxPage = 1000
	// A page ends after looking at this many jobs even if it is not full, so that a listing which matches few of very many
	// does not hold up the others.
	maxLook = 4096
)

// List implements storage.Storage.
func (s *Storage) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	var after uint64
	if q.Cursor != "" {
		n, err := strconv.ParseUint(q.Cursor, 10, 64)
		if err != nil {
			return storage.Page{}, &ojs.InvalidError{Code: ojs.CodeOptionInvalid, Field: "cursor", Reason: fmt.Sprintf("%q is none of this storage's", q.Cursor)}
		}
		after = n
	}
	if err := s.enter(ctx); err != nil {
		return storage.Page{}, err
	}
	defer s.leave()
	limit := q.Limit
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	x := &s.all
	if q.DeadLetters {
		x = &s.ended[deadLetter]
	}
	var page storage.Page
	for i, looked := x.after(after), 0; i < len(x.entries); i++ {
		if len(page.Records) == limit || looked == maxLook {
			page.Next = strconv.FormatUint(after, 10)
			return page, nil
		}
		looked++
		after = x.entries[i].ord
		j := x.entries[i].job
		if j == nil {
			continue
		}
		if r := j.record(); q.Matches(&r.JobInfo) {
			page.Records = append(page.Records, r)
		}
	}
	return page, nil
}
