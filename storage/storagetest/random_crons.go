package storagetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

var entryNames = []string{"daily", "Hourly", "é", "d"}

// cron does something to recurring entries, or looks at them.
func (w *world) cron(t *rapid.T) randomOp {
	switch dice(t, 8) {
	case 0, 1, 2:
		return w.setCrons(t)
	case 3:
		name := pick(t, entryNames...)
		return randomOp{
			"delete cron",
			func() string { return fmt.Sprintf("delete the entry %q", name) },
			func() {
				want, _ := document.Of(w.ref).DeleteCron(w.ctx, name)
				got, err := document.Of(w.s).DeleteCron(w.ctx, name)
				w.same("the error of delete cron", err, nil)
				w.same("deleted an entry", got, want)
				if want {
					w.expectCrons()
				}
			},
		}
	case 4:
		q := storage.DocumentQuery{
			After: pick(t, append([]string{""}, entryNames...)...),
			Limit: pick(t, 0, 1, 2, 1001),
		}
		if chance(t, 2) {
			q.Names = some(t, append(slices.Clone(entryNames), "none"), 0, 3)
		}
		return randomOp{
			"look",
			func() string {
				return fmt.Sprintf("look at entries %q after %q, up to %d", q.Names, q.After, q.Limit)
			},
			func() { w.cronEntries(q) },
		}
	}
	var after *storage.Cron
	if chance(t, 2) {
		after = &storage.Cron{Name: pick(t, entryNames...), NextRun: w.in(t, -3)}
		list, _ := document.Of(w.ref).Crons(w.ctx, storage.DocumentQuery{})
		if len(list) > 0 && chance(t, 2) {
			after = &list[dice(t, len(list))]
		}
	}
	most, now := dice(t, 4), w.now.Add(pick(t, 0, time.Second, -time.Second, time.Hour))
	return randomOp{"look", func() string {
		s := fmt.Sprintf("look at up to %d entries due by %s", most, clockText(now))
		if after != nil {
			s += fmt.Sprintf(" after %q of %s", after.Name, clockText(after.NextRun))
		}
		return s
	}, func() {
		want, wantNext, _ := document.Of(w.ref).DueCrons(w.ctx, now, after, most)
		got, next, err := document.Of(w.s).DueCrons(w.ctx, now, after, most)
		w.same("the error of due crons", err, nil)
		w.sameCrons("due entries", got, want)
		w.same("the next entry is due", w.cfg.rounded(next), w.cfg.rounded(wantNext))
	}}
}

// setCrons stores entries by the version that is stored, an older one, or none.
func (w *world) setCrons(t *rapid.T) randomOp {
	var entries []storage.Cron
	var tokens []tokenOfBoth
	for _, name := range some(t, entryNames, 1, 3) {
		seed := dice(t, 1<<16)
		e := rapid.Custom(func(t *rapid.T) (e storage.Cron) {
			fields.Filler{Precision: w.cfg.TimePrecision}.Fill(t, &e)
			return e
		}).Example(seed + 1)
		if e.Options.Unique != nil {
			e.Options.Unique.PeriodMonths = max(e.Options.Unique.PeriodMonths, 0) % 1200
		}
		e.Name, e.NextRun = name, pick(
			t,
			w.now,
			w.now.Add(time.Second),
			w.now.Add(-time.Second),
			w.now.Add(time.Hour),
			time.Time{},
		)
		var v tokenOfBoth
		stored, _ := document.Of(w.ref).Crons(w.ctx, storage.DocumentQuery{Names: []string{name}})
		known := w.crons[name]
		switch {
		case len(known) > 0 && chance(t, 4):
			v = pick(t, known...)
		case len(stored) > 0 && !chance(t, 6):
			v = known[len(known)-1]
		}
		e.Version = v.ref
		entries, tokens = append(entries, e), append(tokens, v)
	}
	return randomOp{"set crons", func() string {
		var list []string
		for i, e := range entries {
			list = append(
				list,
				fmt.Sprintf(
					"%q at version %d, next %s (random other fields)",
					e.Name,
					tokens[i].ref,
					clockText(e.NextRun),
				),
			)
		}
		return "set entries" + lines(list)
	}, func() {
		theirs := make([]storage.Cron, len(entries))
		for i, e := range entries {
			theirs[i] = e.Copy()
			theirs[i].Version = tokens[i].got
		}
		want, _ := document.Of(w.ref).SetCrons(w.ctx, entries)
		got, err := document.Of(w.s).SetCrons(w.ctx, theirs)
		w.same("the error of set crons", err, nil)
		w.same("the number of results of set crons", len(got), len(want))
		for i, v := range want {
			name := entries[i].Name
			if (v > 0) != (got[i] > 0) {
				w.failf(
					"set crons: entry %q: version %d; stored: %v, want %v",
					name,
					got[i],
					got[i] > 0,
					v > 0,
				)
			}
			if v == 0 {
				continue
			}
			if known := w.crons[name]; len(known) > 0 && got[i] <= known[len(known)-1].got {
				w.failf(
					"set crons: entry %q: version %d, and it has had %d",
					name,
					got[i],
					known[len(known)-1].got,
				)
			}
			w.crons[name] = append(w.crons[name], tokenOfBoth{v, got[i]})
			w.expectCrons()
		}
	}}
}

// cronEntries looks at recurring entries.
func (w *world) cronEntries(q storage.DocumentQuery) {
	want, _ := document.Of(w.ref).Crons(w.ctx, q)
	got, err := document.Of(w.s).Crons(w.ctx, q)
	w.same("the error of crons", err, nil)
	w.sameCrons("entries", got, want)
}

func (w *world) sameCrons(what string, got, want []storage.Cron) {
	w.rt.Helper()
	names := func(list []storage.Cron) string {
		var out []string
		for _, e := range list {
			out = append(out, fmt.Sprintf("%q", e.Name))
		}
		return strings.Join(out, ", ")
	}
	if g, e := names(got), names(want); g != e {
		w.failf("%s: [%s], want [%s]", what, g, e)
	}
	for i := range got {
		for _, v := range w.crons[got[i].Name] {
			if v.got == got[i].Version {
				got[i].Version = v.ref
				break
			}
		}
		w.same(fmt.Sprintf("%s: %q", what, got[i].Name), got[i], want[i])
	}
}
