package storagetest

import (
	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

func version(v string) func(*storage.Record) {
	return func(r *storage.Record) { r.TypeVersion = v }
}

// Claim.Types with versions.
var versionCases = []Case{
	{"version-1", "Claim/Versions", "Claim.Types",
		"A type takes jobs of any version and of none; with an @ behind it, those of none.",
		needsNothing, func(c *C) {
			got := c.insert(c.job(jobType("a"))) // and none with a version
			c.order(storage.Claim{Types: []string{"a@"}}, got[0])

			got = c.insert(c.job(jobType("a"), version("2.1")), c.job(jobType("a")),
				c.job(jobType("b"), version("1.0"), priority(9)), c.job(jobType("a"), version("1.0")),
				c.job(jobType("a")))
			c.order(storage.Claim{Types: []string{"a@"}}, got[1], got[4])
			c.order(storage.Claim{Types: []string{"a"}}, got[0], got[3])
			c.order(storage.Claim{}, got[2])

			// An available job may be given another version.
			got = c.insert(c.job(jobType("a"), version("1.0")), c.job(jobType("a"), version("1.0")))
			r := c.get(got[0])
			r.TypeVersion = "3.0"
			if s := c.settle(r); s.Err != nil {
				c.failf("Settle to another version: %v", s.Err)
			}
			c.order(storage.Claim{Types: []string{"a@<2.0"}}, got[1])
			c.order(storage.Claim{Types: []string{"a@3.0"}}, got[0])

			// The last job of one version leaves those of the others.
			got = c.insert(c.job(jobType("left"), version("1.0")), c.job(jobType("left"), version("2.0")),
				c.job(jobType("left"), version("3.0")))
			for i := range got {
				c.claims(storage.Claim{Types: []string{"left"}, Max: 1}, got[i])
				c.settled(c.get(got[i]), c.to(ojs.StateCompleted))
				_, err := c.S.Delete(c.ctx, got[i:i+1])
				c.noErr("Delete", err)
			}
		}},
	{"version-2", "Claim/VersionRanges", "Claim.Types",
		"A range takes the versions in it, by their numbers, and skips the other jobs of the type.",
		needsNothing, func(c *C) {
			var ids []string
			for _, v := range []string{"1.9", "", "2", "1.10", "2.0", "3.0", "10.0", "2.9"} {
				ids = append(ids, c.insert(c.job(jobType("a"), version(v), queue("q"+v)))...)
			}
			c.order(storage.Claim{Types: []string{"a@>=4.0"}}, ids[6])
			c.order(storage.Claim{Types: []string{"a@<1.10"}}, ids[0])
			c.order(storage.Claim{Types: []string{"b", "a@2.0"}}, ids[2], ids[4])
			c.order(storage.Claim{Types: []string{"a@2.1,<9"}})
			c.order(storage.Claim{Types: []string{"a@>=2.0 <3.0"}}, ids[7])
			c.order(storage.Claim{Types: []string{"a@", "a@>=3.0"}}, ids[1], ids[5])
			c.order(storage.Claim{Types: []string{"a@*"}}, ids[3])
			c.order(storage.Claim{})
		}},
	{"version-3", "Claim/VersionsAmongOthers", "Claim.Types",
		"A job whose version a claim does not take holds up none: not of its queue, nor of its key.",
		needsNothing, func(c *C) {
			key := limited("k")
			var held, taken []string
			for range 70 {
				held = append(held, c.insert(c.job(jobType("a"), version("2.0"), priority(5)))...)
			}
			held = append(held, c.insert(c.job(jobType("a"), version("2.0"), key, priority(9)))...)
			taken = c.insert(c.job(jobType("a"), version("1.5"), key, priority(1)),
				c.job(jobType("a"), version("1.0")), c.job(jobType("a"), version("1.0"), key))
			c.shut("k")
			old := storage.Claim{Types: []string{"a@<2.0"}}
			c.order(old, taken[1])
			c.unshut("k")
			c.order(old, taken[0], taken[2])
			c.order(old)
			c.order(storage.Claim{Types: []string{"a@>=2.0"}},
				append(held[70:], held[:70]...)...)
			for i, id := range append(held, taken...) {
				if rec := c.get(id); rec.Type != "a" || (rec.TypeVersion == "2.0") != (i < len(held)) {
					c.failf("job %d is of type %q, version %q", i, rec.Type, rec.TypeVersion)
				}
			}
			c.wantList(storage.Query{Types: []string{"a"}}, append(held, taken...))
		}},
}
