package keyed_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
)

// A key is forgotten once no limit needs what it has counted, so that keys that come and
// go do not add up, in any order of their names. A start that still counts is needed, and
// so is a setting.
func TestIdleKeysAreForgotten(t *testing.T) {
	for order, name := range map[string]func(n int) string{
		"ascending":  func(n int) string { return fmt.Sprintf("k%06d", n) },
		"descending": func(n int) string { return fmt.Sprintf("k%06d", 1000-n) },
		"scattered":  func(n int) string { return fmt.Sprintf("k%06d", n*7919%1000) },
	} {
		t.Run(order, func(t *testing.T) { comeAndGo(t, name) })
	}
}

func comeAndGo(t *testing.T, name func(n int) string) {
	db := drivertest.NewMemory(false, driver.Limits{})
	s := open(t, db)
	defer s.Close()
	at, n := now, 0
	insert := func(l ojs.RateLimit) {
		n++
		in := job(fmt.Sprint("j", n))
		in.Record.RateLimit = &l
		if _, err := s.Insert(background, at, []storage.Insert{in}, nil); err != nil {
			t.Fatal(err)
		}
	}
	runs := func() int { // claims a job, ends and deletes it
		recs, err := s.Claim(background, at, storage.Claim{Max: 9, Worker: "w"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			r.State, r.FinishedAt, r.LeaseUntil = ojs.StateCompleted, at, time.Time{}
			out, err := s.Settle(background, at, []storage.Change{{Record: r}}, nil)
			if err != nil || out[0].Err != nil {
				t.Fatal(out, err)
			}
			if _, err := s.Delete(background, []string{r.ID}); err != nil {
				t.Fatal(err)
			}
		}
		return len(recs)
	}
	pairs := func() int {
		tx, err := db.Begin(background, false)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Discard()
		list, err := tx.Scan([]byte{0}, []byte{255}, 1<<20, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	day := ojs.RateLimit{Key: "a day", Rate: ojs.Rate{Limit: 1, Per: 24 * time.Hour}}
	insert(day)
	runs()
	set := storage.LimitName{Kind: storage.LimitKey, Name: "a setting"}
	if err := s.SetLimit(background, at, set, ojs.RateLimit{Concurrency: 3}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	keysOf := func(hours int) {
		for range 4 * hours {
			at = at.Add(15 * time.Minute)
			insert(ojs.RateLimit{Key: name(n), Concurrency: 2,
				Rate: ojs.Rate{Limit: 5, Per: time.Minute}})
			if got := runs(); got != 1 {
				t.Fatalf("%d jobs run, not the one of a new key", got)
			}
		}
	}
	keysOf(20)
	insert(day)
	if got := runs(); got != 0 {
		t.Error("a second job of a key that starts one a day started on the same day")
	}
	before := pairs()
	keysOf(3)
	if after := pairs(); after > before+5 {
		t.Errorf("the store has grown from %d to %d pairs by the keys of 3 hours", before, after)
	}
	at = now.Add(24*time.Hour + time.Second)
	if got := runs(); got != 1 {
		t.Errorf("%d jobs started on the next day, not the one of the key", got)
	}
	if l, err := s.GetLimit(background, at, set); err != nil || l.Setting == nil {
		t.Errorf("a key that was set: %+v, %v", l, err)
	}
}
