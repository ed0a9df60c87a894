package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

// setCrons stores entries and returns their new versions.
func (c *C) setCrons(entries ...storage.Cron) []uint64 {
	versions, err := document.Of(c.S).SetCrons(c.ctx, entries)
	c.noErr("SetCrons", err)
	if len(versions) != len(entries) {
		c.failf("SetCrons returned %d versions for %d entries", len(versions), len(entries))
	}
	return versions
}

// crons returns the entries that q selects.
func (c *C) crons(q storage.DocumentQuery) []storage.Cron {
	list, err := document.Of(c.S).Crons(c.ctx, q)
	c.noErr("Crons", err)
	return list
}

func (c *C) deleteCron(name string) bool {
	ok, err := document.Of(c.S).DeleteCron(c.ctx, name)
	c.noErr("DeleteCron", err)
	return ok
}

func cronNames(list []storage.Cron) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return strings.Join(names, " ")
}

// wantCrons wants the entries of these names, in this order.
func (c *C) wantCrons(what string, got []storage.Cron, want string) {
	if names := cronNames(got); names != want {
		c.failf("%s returned %q, want %q", what, names, want)
	}
}

// dueCrons wants these entries to be due, and the run that comes next; zero: none.
func (c *C) dueCrons(now time.Time, after *storage.Cron, most int, want string,
	next time.Time) []storage.Cron {
	due, at, err := document.Of(c.S).DueCrons(c.ctx, now, after, most)
	c.noErr("DueCrons", err)
	c.wantCrons("DueCrons", due, want)
	if !at.Equal(next) {
		c.failf("DueCrons says that %v is next, not %v", at, next)
	}
	return due
}

var cronCases = []Case{
	{"cron-1", "Cron/Versions", "storage.DocumentStore", "An entry is stored if it has the version of the stored one, 0 for none, and its version then rises.", needsNothing, func(c *C) {
		e := storage.Cron{Name: "e", Schedule: "@daily", Type: "x", NextRun: epoch.Add(time.Hour),
			Options: ojs.DefaultOptions()}
		e.Options.Meta = map[string]any{"k": "v"}
		v := c.setCrons(e)[0]
		if v == 0 {
			c.failf("a new entry was not stored")
		}
		if again := c.setCrons(e)[0]; again != 0 {
			c.failf("an entry that is there was stored as a new one")
		}
		e.Version, e.Runs = v+1, 3
		if c.setCrons(e)[0] != 0 {
			c.failf("an entry of another version was stored")
		}
		e.Version, e.Runs = v, 7
		if e.Version = c.setCrons(e)[0]; e.Version <= v {
			c.failf("SetCrons returned version %d after %d", e.Version, v)
		}
		list := c.crons(storage.DocumentQuery{})
		if len(list) != 1 || list[0].Runs != 7 || list[0].Version != e.Version ||
			!list[0].NextRun.Equal(e.NextRun) || list[0].Options.Meta["k"] != "v" ||
			list[0].Options.Timeout != e.Options.Timeout {
			c.failf("stored is %+v", list)
		}
		none := storage.Cron{Name: "none", Version: 5}
		if c.setCrons(none)[0] != 0 {
			c.failf("an entry of version 5 was stored where there is none")
		}
	}},
	{"cron-2", "Cron/ListAndDelete", "storage.DocumentStore", "Entries are listed by name, page by page or those that are named, and a deleted one is gone.", needsNothing, func(c *C) {
		c.setCrons(storage.Cron{Name: "b"}, storage.Cron{Name: "c"}, storage.Cron{Name: "a-1"},
			storage.Cron{Name: "a.0"}, storage.Cron{Name: "d"})
		deleted, again := c.deleteCron("b"), c.deleteCron("b")
		if !deleted || again {
			c.failf("deleted %v, and again %v", deleted, again)
		}
		c.wantCrons("Crons", c.crons(storage.DocumentQuery{}), "a-1 a.0 c d")
		c.wantCrons("Crons of two", c.crons(storage.DocumentQuery{Limit: 2}), "a-1 a.0")
		c.wantCrons("Crons after a name", c.crons(storage.DocumentQuery{After: "a.0", Limit: 1}), "c")
		c.wantCrons("Crons after a name that is not there", c.crons(storage.DocumentQuery{After: "b"}), "c d")
		c.wantCrons("Crons after the last", c.crons(storage.DocumentQuery{After: "d"}), "")
		c.wantCrons("Crons of names", c.crons(storage.DocumentQuery{Names: []string{"d", "b", "a-1", "d"}}),
			"a-1 d")
		c.wantCrons("Crons of names, the first of them",
			c.crons(storage.DocumentQuery{Names: []string{"d", "c"}, Limit: 1}), "c")
		c.wantCrons("Crons of names after one",
			c.crons(storage.DocumentQuery{Names: []string{"a-1", "c"}, After: "a-1"}), "c")
		c.wantCrons("Crons of no name", c.crons(storage.DocumentQuery{Names: []string{}}), "")
	}},
	{"cron-3", "Cron/VersionsNeverRepeat", "storage.DocumentStore.PutDocuments", "An entry that is deleted and made anew meets no version that a caller still holds.", needsNothing, func(c *C) {
		var highest uint64
		held := storage.Cron{Name: "e"}
		for range 3 {
			held.Version = 0
			for range 2 {
				if held.Version = c.setCrons(held)[0]; held.Version <= highest {
					c.failf("version %d comes after %d", held.Version, highest)
				}
				highest = held.Version
			}
			c.deleteCron("e")
			if c.setCrons(held)[0] != 0 {
				c.failf("an entry of version %d was stored after its deletion", held.Version)
			}
		}
		c.setCrons(storage.Cron{Name: "e"})
		if c.setCrons(held)[0] != 0 {
			c.failf("an entry of a deleted one's version replaced the new one")
		}
	}},
	{"cron-4", "Cron/EachByItself", "storage.DocumentStore.PutDocuments", "Entries of one call are stored each by itself.", needsNothing, func(c *C) {
		v := c.setCrons(storage.Cron{Name: "b"})[0]
		got := c.setCrons(storage.Cron{Name: "c"}, storage.Cron{Name: "b", Version: v + 7},
			storage.Cron{Name: "a"}, storage.Cron{Name: "d", Version: 1})
		if got[0] == 0 || got[1] != 0 || got[2] == 0 || got[3] != 0 {
			c.failf("SetCrons returned %v", got)
		}
		list := c.crons(storage.DocumentQuery{})
		c.wantCrons("Crons", list, "a b c")
		if list[0].Version != got[2] || list[1].Version != v || list[2].Version != got[0] {
			c.failf("stored are %+v", list)
		}
		c.setCrons() // no entries are no error
	}},
	{"cron-5", "Cron/Due", "storage.DocumentStore.DueDocuments", "Entries that are due come in the order of their runs and names, as many as asked for, and with the run that comes next.", needsNothing, func(c *C) {
		at := func(name string, after time.Duration) storage.Cron {
			return storage.Cron{Name: name, NextRun: c.now.Add(after)}
		}
		v := c.setCrons(at("late", time.Minute), at("z", 0), at("a", 0), at("first", -time.Hour),
			storage.Cron{Name: "never"}, at("soon", time.Microsecond))
		c.dueCrons(c.now.Add(-time.Hour-time.Microsecond), nil, 10, "", c.now.Add(-time.Hour))
		c.dueCrons(c.now, nil, 10, "first a z", c.now.Add(time.Microsecond))
		due := c.dueCrons(c.now, nil, 2, "first a", c.now)
		c.dueCrons(c.now, &storage.Cron{Name: due[1].Name, NextRun: due[1].NextRun}, 2, "z",
			c.now.Add(time.Microsecond))
		c.dueCrons(c.now, &storage.Cron{Name: "m", NextRun: c.now}, 2, "z", c.now.Add(time.Microsecond))
		c.dueCrons(c.now, &storage.Cron{Name: "zz", NextRun: c.now}, 2, "", c.now.Add(time.Microsecond))
		c.dueCrons(c.now.Add(time.Hour), nil, 10, "first a z soon late", time.Time{})
		moved := at("first", 2*time.Minute)
		moved.Version = v[3]
		stopped := storage.Cron{Name: "z", Version: v[1]}
		c.setCrons(moved, stopped)
		c.deleteCron("a")
		c.dueCrons(c.now, nil, 10, "", c.now.Add(time.Microsecond))
		c.dueCrons(c.now.Add(time.Hour), nil, 10, "soon late first", time.Time{})
		far := storage.Cron{Name: "far", NextRun: time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)}
		c.setCrons(far)
		if list := c.crons(storage.DocumentQuery{Names: []string{"far"}}); len(list) != 1 ||
			!list[0].NextRun.Equal(far.NextRun) {
			c.failf("a run in the year 9999 is stored as %+v", list)
		}
		_, next, err := document.Of(c.S).DueCrons(c.ctx, c.now.Add(time.Hour), nil, 10)
		if c.noErr("DueCrons", err); !next.After(c.now.Add(24 * time.Hour)) {
			c.failf("a run in the year 9999 comes at %v", next)
		}
	}},
	{"cron-7", "Cron/Many", "DocumentQuery.Limit", "Crons returns at most 1000 entries, with any limit.", needsNothing, func(c *C) {
		var entries []storage.Cron
		for i := range 1010 {
			entries = append(entries, storage.Cron{Name: fmt.Sprintf("e%04d", i)})
		}
		c.setCrons(entries...)
		for _, limit := range []int{0, 5000} {
			list := c.crons(storage.DocumentQuery{Limit: limit})
			if len(list) != 1000 || list[999].Name != "e0999" {
				c.failf("Crons with limit %d returned %d entries", limit, len(list))
			}
			rest := c.crons(storage.DocumentQuery{After: list[999].Name, Limit: limit})
			if len(rest) != 10 || rest[0].Name != "e1000" {
				c.failf("Crons after the 1000th returned %d entries", len(rest))
			}
		}
	}},
	{"cron-6", "Cron/Random", "storage.DocumentStore", "Random calls do what they do to the reference.", needsNothing, func(c *C) {
		ref := NewReference()
		real, model := c.S, ref
		rnd := rand.New(rand.NewPCG(15, 1))
		versions := make(map[string][2]uint64) // of the storage and of the reference
		for step := range 600 {
			now := c.now.Add(time.Duration(rnd.IntN(40)-20) * time.Second)
			name := func() string { return fmt.Sprintf("e%d", rnd.IntN(12)) }
			switch rnd.IntN(6) {
			case 0, 1, 2:
				var a, b []storage.Cron
				names := []string{name(), name(), name()}
				slices.Sort(names)
				for _, n := range slices.Compact(names) {
					e := storage.Cron{Name: n, Runs: step}
					if rnd.IntN(4) > 0 {
						e.NextRun = now.Add(time.Duration(rnd.IntN(20)-10) * time.Second)
					}
					v := versions[n]
					if rnd.IntN(8) == 0 {
						v = [2]uint64{}
					}
					e.Version = v[0]
					a = append(a, e)
					e.Version = v[1]
					b = append(b, e)
				}
				got := c.setCrons(a...)
				want, _ := document.Of(model).SetCrons(c.ctx, b)
				for i := range want {
					if (want[i] == 0) != (got[i] == 0) {
						c.failf("step %d: SetCrons of %q returned %v, want %v", step, cronNames(a), got, want)
					}
					if want[i] != 0 {
						versions[a[i].Name] = [2]uint64{got[i], want[i]}
					}
				}
			case 3:
				n := name()
				got, err := document.Of(real).DeleteCron(c.ctx, n)
				c.noErr("DeleteCron", err)
				if want, _ := document.Of(model).DeleteCron(c.ctx, n); got != want {
					c.failf("step %d: DeleteCron(%s) returned %v", step, n, got)
				}
				if rnd.IntN(2) == 0 {
					delete(versions, n)
				}
			case 4:
				var after *storage.Cron
				if rnd.IntN(2) == 0 {
					after = &storage.Cron{Name: name(),
						NextRun: now.Add(time.Duration(rnd.IntN(20)-15) * time.Second)}
				}
				most := 1 + rnd.IntN(5)
				want, next, _ := document.Of(model).DueCrons(c.ctx, now, after, most)
				got := c.dueCrons(now, after, most, cronNames(want), next)
				c.sameCrons(step, got, want)
			case 5:
				q := storage.DocumentQuery{Limit: rnd.IntN(6)}
				if rnd.IntN(2) == 0 {
					q.After = name()
				}
				if rnd.IntN(2) == 0 {
					q.Names = []string{name(), name(), name()}
				}
				want, _ := document.Of(model).Crons(c.ctx, q)
				got := c.crons(q)
				c.wantCrons("Crons", got, cronNames(want))
				c.sameCrons(step, got, want)
			}
		}
	}},
}

// sameCrons compares what the random calls change.
func (c *C) sameCrons(step int, got, want []storage.Cron) {
	changed := func(list []storage.Cron) (out []storage.Cron) {
		for _, e := range list {
			out = append(out, storage.Cron{Name: e.Name, Runs: e.Runs, NextRun: e.NextRun})
		}
		return out
	}
	if d := fields.Diff(changed(got), changed(want)); len(d) > 0 {
		c.failf("step %d: the entries differ:\n%s", step, strings.Join(d, "\n"))
	}
}
