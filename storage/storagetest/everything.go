package storagetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

// everything is all that can be read of a storage, by what it is: each job with its
// errors and logs, each list and its order, the counts, the next due time, the states of
// queues, recurring entries, values, limits and the quarantine. A durable storage that
// was opened again reads the same: what a call returns or an ability keeps is looked at
// here, and not by one case for each.
//
// now decides which values, settings and blocks have expired.
func (cfg *Config) everything(ctx context.Context, s storage.Storage, now time.Time) map[string]any {
	all := make(map[string]any)
	add := func(v any, err error, format string, args ...any) {
		what := fmt.Sprintf(format, args...)
		if err != nil {
			v = "an error: " + err.Error()
		}
		all[what] = v
	}
	list := func(q storage.Query) (recs []storage.Record, err error) {
		for {
			page, err := s.List(ctx, q)
			recs = append(recs, page.Records...)
			if q.Cursor = page.Next; err != nil || q.Cursor == "" {
				return inOrder(q, recs), err
			}
		}
	}
	jobs, err := list(storage.Query{})
	add(ids(jobs), err, "the jobs")
	for _, r := range jobs {
		got, err := s.Get(ctx, r.ID)
		add(cfg.normal(got), err, "%s", nameOf(r.ID))
		add(cfg.normal(r), nil, "%s in a list", nameOf(r.ID))
	}
	for _, o := range allOrders {
		for _, dead := range []bool{false, true} {
			recs, err := list(storage.Query{Order: o, DeadLetters: dead})
			add(ids(recs), err, "the jobs in the order %q, of dead letters %v", o, dead)
		}
	}
	counts, err := s.Counts(ctx)
	slices.SortFunc(counts, func(a, b storage.Count) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.State, b.State))
	})
	add(counts, err, "the counts")
	due, err := s.Due(ctx, now, 0, nil)
	add(cfg.rounded(due.Next), err, "the next due time")
	cfg.readRest(ctx, s, now, jobs, add)
	return all
}

// readRest reads what a storage keeps beside its jobs.
func (cfg *Config) readRest(ctx context.Context, s storage.Storage, now time.Time,
	jobs []storage.Record, add func(v any, err error, format string, args ...any)) {
	states, err := s.QueueStates(ctx)
	add(states, err, "the states of queues")
	entries, err := document.Of(s).Crons(ctx, storage.DocumentQuery{})
	add(entries, err, "the recurring entries")
	for _, at := range []time.Time{now, now.AddDate(100, 0, 0)} {
		due, next, err := document.Of(s).DueCrons(ctx, at, nil, storage.MaxDocuments)
		add(due, err, "the entries due at %v", at)
		add(next, nil, "the next entry after %v", at)
	}
	values, err := document.Of(s).Values(ctx, now, "", "", 0)
	add(values, err, "the values")
	for _, r := range jobs {
		logs, err := s.Logs(ctx, r.ID)
		add(logs, err, "the logs of %s", nameOf(r.ID))
	}
	names := make(map[storage.LimitName]bool)
	for i := range jobs {
		for _, name := range limitsOf(&jobs[i]) {
			names[name] = true
		}
	}
	for _, kind := range limitKinds {
		limits, err := s.ListLimits(ctx, now, kind, "", 1000)
		add(limits, err, "the limits of kind %s", kind)
	}
	for name := range names {
		limit, err := s.GetLimit(ctx, now, name)
		add(limit, err, "the limit of %s %s", name.Kind, name.Name)
	}
	if q, ok := quarantiner(s); ok {
		aside, err := q.Quarantined(ctx, "", 0)
		add(aside, err, "the quarantine")
		n, err := q.CountQuarantined(ctx)
		add(n, err, "the number of records in the quarantine")
		for _, r := range aside {
			if r.Kind == storage.KindJob {
				got, err := s.Get(ctx, r.Name)
				add(cfg.normal(got), err, "%s of the quarantine", nameOf(r.Name))
			}
		}
	}
}

// reopenedAs opens a storage again and says what it reads otherwise than before.
func (cfg *Config) reopenedAs(
	ctx context.Context, s storage.Storage, now time.Time, reopen func() storage.Storage,
) (storage.Storage, string) {
	before := cfg.everything(ctx, s, now)
	s = reopen()
	after := cfg.everything(ctx, s, now)
	var diff []string
	for _, what := range slices.Sorted(maps.Keys(before)) {
		got, want := after[what], before[what]
		switch {
		case got == nil && want != nil:
			diff = append(diff, what+": is not there")
		case reflect.TypeOf(got) != reflect.TypeOf(want):
			diff = append(diff, fmt.Sprintf("%s: %s, want %s", what, fields.Text(got), fields.Text(want)))
		case want != nil:
			for _, d := range fields.Diff(got, want) {
				diff = append(diff, what+": "+d)
			}
		}
	}
	if len(diff) == 0 {
		return s, ""
	}
	return s, "after the storage was opened again, it does not read the same:\n" +
		strings.Join(diff[:min(len(diff), 10)], "\n")
}
