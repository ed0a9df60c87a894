package storagetest_test

import (
	"context"
	"flag"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// The types of what calls of a storage take and return, in short.
type (
	Context  = context.Context
	Time     = time.Time
	inserts  = []storage.Insert
	results  = []storage.Inserted
	settles  = []storage.Change
	outcomes = []storage.Settled
	records  = []storage.Record
	slots    = []*storage.Record

	limitName = storage.LimitName
)

// broken is a memory storage with a fault: a nil function is the storage's own.
type broken struct {
	*memory.Storage
	mu     sync.Mutex
	insert func(b *broken, ctx context.Context, now time.Time, batch inserts, dst results) (results, error)
	claim  func(b *broken, ctx context.Context, now time.Time, c storage.Claim, dst records) (records, error)
	settle func(b *broken, ctx Context, now Time, changes settles, dst outcomes) (outcomes, error)
	step   func(b *broken, ctx Context, now Time, to slots, dst outcomes, c storage.Claim,
		into slots) (outcomes, int, error)
	unclaim func(b *broken, ctx context.Context, now time.Time, held []storage.Held) (int, error)
	extend  func(b *broken, ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error)
	due     func(b *broken, ctx context.Context, now time.Time, max int, buf records) (storage.Due, error)
	get     func(b *broken, ctx context.Context, id string) (storage.Record, error)
	list    func(b *broken, ctx context.Context, q storage.Query) (storage.Page, error)
	counts  func(b *broken, ctx context.Context) ([]storage.Count, error)

	claimedBy func(b *broken, ctx context.Context, worker string) ([]storage.Record, error)

	remove func(b *broken, ctx context.Context, ids []string) (int, error)
	prune  func(b *broken, ctx context.Context, p storage.Prune) (storage.Pruned, error)
	state  func(b *broken, ctx context.Context, queue string, to ojs.QueueState) (ojs.QueueState, error)
	states func(b *broken, ctx context.Context) (map[string]ojs.QueueState, error)
	cron   func(b *broken, ctx context.Context, entries []storage.Cron) ([]uint64, error)
	crons  func(b *broken, ctx context.Context, q storage.DocumentQuery) ([]storage.Cron, error)
	runs   func(b *broken, ctx Context, now Time, after *storage.Cron,
		max int) ([]storage.Cron, Time, error)
	limit     func(b *broken, ctx Context, now Time, name limitName, bounds ojs.RateLimit, until Time) error
	block     func(b *broken, ctx Context, now Time, name storage.LimitName, until Time) error
	cancelAll func(b *broken, ctx Context, now Time, ids []string) (cancelled, moved records, err error)
	revive    func(b *broken, ctx Context, now Time, batch inserts) (records, error)
	put       func(b *broken, ctx Context, values []storage.Document) ([]uint64, error)
	values    func(b *broken, ctx Context, q storage.DocumentQuery) ([]storage.Document, error)
	expired   func(b *broken) ([]storage.Document, Time, error)
	logs      func(b *broken, ctx Context, id string) ([]storage.Log, error)
	notify    func(b *broken, self any, f func(storage.Notice)) func()
	close     func(b *broken) error
	caps      func(b *broken, c *storage.Capabilities)
	own       func(b *broken, self any, asked storage.Storage) storage.Storage
	reopen    func(b *broken) storage.Storage // for a durable one, which it is in these tests

	kept map[string]storage.Record // for faults that remember
}

func (b *broken) Insert(ctx context.Context, now time.Time, batch inserts, dst results) (results, error) {
	if b.insert != nil {
		return b.insert(b, ctx, now, batch, dst)
	}
	return b.Storage.Insert(ctx, now, batch, dst)
}
func (b *broken) Claim(ctx context.Context, now time.Time, c storage.Claim, dst records) (records, error) {
	if b.claim != nil {
		return b.claim(b, ctx, now, c, dst)
	}
	return b.Storage.Claim(ctx, now, c, dst)
}
func (b *broken) Settle(ctx context.Context, now time.Time, changes settles, dst outcomes) (outcomes, error) {
	if b.settle != nil {
		return b.settle(b, ctx, now, changes, dst)
	}
	return b.Storage.Settle(ctx, now, changes, dst)
}
func (b *broken) SettleAndClaim(ctx context.Context, now time.Time, to slots, dst outcomes,
	c storage.Claim, into slots) (outcomes, int, error) {
	if b.step != nil {
		return b.step(b, ctx, now, to, dst, c, into)
	}
	return b.Storage.SettleAndClaim(ctx, now, to, dst, c, into)
}
func (b *broken) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	if b.unclaim != nil {
		return b.unclaim(b, ctx, now, held)
	}
	return b.Storage.Unclaim(ctx, now, held)
}
func (b *broken) Extend(ctx context.Context, now time.Time, xs []storage.Extension) ([]string, error) {
	if b.extend != nil {
		return b.extend(b, ctx, now, xs)
	}
	return b.Storage.Extend(ctx, now, xs)
}
func (b *broken) Due(ctx context.Context, now time.Time, max int, buf records) (storage.Due, error) {
	if b.due != nil {
		return b.due(b, ctx, now, max, buf)
	}
	return b.Storage.Due(ctx, now, max, buf)
}
func (b *broken) Get(ctx context.Context, id string) (storage.Record, error) {
	if b.get != nil {
		return b.get(b, ctx, id)
	}
	return b.Storage.Get(ctx, id)
}
func (b *broken) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	if b.list != nil {
		return b.list(b, ctx, q)
	}
	return b.Storage.List(ctx, q)
}
func (b *broken) ClaimedBy(ctx context.Context, worker string) ([]storage.Record, error) {
	if b.claimedBy != nil {
		return b.claimedBy(b, ctx, worker)
	}
	return b.Storage.ClaimedBy(ctx, worker)
}
func (b *broken) Counts(ctx context.Context) ([]storage.Count, error) {
	if b.counts != nil {
		return b.counts(b, ctx)
	}
	return b.Storage.Counts(ctx)
}
func (b *broken) Delete(ctx context.Context, ids []string) (int, error) {
	if b.remove != nil {
		return b.remove(b, ctx, ids)
	}
	return b.Storage.Delete(ctx, ids)
}
func (b *broken) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	if b.prune != nil {
		return b.prune(b, ctx, p)
	}
	return b.Storage.Prune(ctx, p)
}
func (b *broken) SetQueueState(ctx context.Context, q string, to ojs.QueueState) (ojs.QueueState, error) {
	if b.state != nil {
		return b.state(b, ctx, q, to)
	}
	return b.Storage.SetQueueState(ctx, q, to)
}
func (b *broken) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	if b.states != nil {
		return b.states(b, ctx)
	}
	return b.Storage.QueueStates(ctx)
}
func (b *broken) PutDocuments(ctx context.Context, kind storage.Kind,
	list []storage.Document) ([]uint64, error) {
	deletes := len(list) == 1 && len(list[0].Data) == 0
	switch {
	case kind == storage.KindCron && b.cron != nil && !deletes:
		entries, err := cronsOf(list)
		if err != nil {
			return nil, err
		}
		return b.cron(b, ctx, entries)
	case kind == storage.KindValue && b.put != nil:
		return b.put(b, ctx, list)
	}
	return b.Storage.PutDocuments(ctx, kind, list)
}
func (b *broken) Documents(ctx context.Context, kind storage.Kind,
	q storage.DocumentQuery) ([]storage.Document, error) {
	switch {
	case kind == storage.KindCron && b.crons != nil:
		list, err := b.crons(b, ctx, q)
		return documentsOf(list), err
	case kind == storage.KindValue && b.values != nil:
		return b.values(b, ctx, q)
	}
	return b.Storage.Documents(ctx, kind, q)
}
func (b *broken) DueDocuments(ctx context.Context, kind storage.Kind, now time.Time,
	after *storage.Document, max int) ([]storage.Document, time.Time, error) {
	if kind == storage.KindCron && b.runs != nil {
		var from *storage.Cron
		if after != nil {
			from = &storage.Cron{Name: after.Name, NextRun: after.Due}
		}
		due, next, err := b.runs(b, ctx, now, from, max)
		return documentsOf(due), next, err
	}
	if kind == storage.KindValue && b.expired != nil {
		return b.expired(b)
	}
	return b.Storage.DueDocuments(ctx, kind, now, after, max)
}

// cronsOf are the entries of documents.
func cronsOf(list []storage.Document) (entries []storage.Cron, err error) {
	entries = make([]storage.Cron, len(list))
	for i, d := range list {
		version := d.Version
		d.Version = 1
		if entries[i], err = rows.DecodeCron(&d); err != nil {
			return nil, err
		}
		entries[i].Version = version
	}
	return entries, nil
}

// documentsOf are the documents of entries.
func documentsOf(entries []storage.Cron) []storage.Document {
	list := make([]storage.Document, len(entries))
	for i := range entries {
		c := &entries[i]
		data, err := rows.EncodeCron(c)
		if err != nil {
			panic(err)
		}
		list[i] = storage.Document{Name: c.Name, Version: c.Version, Due: c.NextRun, Data: data}
	}
	return list
}
func (b *broken) CancelAll(ctx Context, now Time, ids []string) (cancelled, moved records, err error) {
	if b.cancelAll != nil {
		return b.cancelAll(b, ctx, now, ids)
	}
	return b.Storage.CancelAll(ctx, now, ids)
}
func (b *broken) Revive(ctx Context, now Time, batch inserts) (records, error) {
	if b.revive != nil {
		return b.revive(b, ctx, now, batch)
	}
	return b.Storage.Revive(ctx, now, batch)
}
func (b *broken) Logs(ctx context.Context, id string) ([]storage.Log, error) {
	if b.logs != nil {
		return b.logs(b, ctx, id)
	}
	return b.Storage.Logs(ctx, id)
}
func (b *broken) SetLimit(ctx Context, now Time, name limitName, bounds ojs.RateLimit, until Time) error {
	if b.limit != nil {
		return b.limit(b, ctx, now, name, bounds, until)
	}
	return b.Storage.SetLimit(ctx, now, name, bounds, until)
}
func (b *broken) BlockLimit(ctx Context, now Time, name storage.LimitName, until Time) error {
	if b.block != nil {
		return b.block(b, ctx, now, name, until)
	}
	return b.Storage.BlockLimit(ctx, now, name, until)
}
func (b *broken) Notify(self any, f func(storage.Notice)) func() {
	if b.notify != nil {
		return b.notify(b, self, f)
	}
	return b.Storage.Notify(self, f)
}
func (b *broken) Close() error {
	if b.close != nil {
		return b.close(b)
	}
	return b.Storage.Close()
}

// Capabilities says that it is durable: it is never closed, and opened again by going on.
func (b *broken) Capabilities() storage.Capabilities {
	c := b.Storage.Capabilities()
	if c.Durable = true; b.caps != nil {
		b.caps(b, &c)
	}
	return c
}

// Bind implements storage.Binder.
func (b *broken) Bind(caller any, asked storage.Storage) storage.Storage {
	if b.own != nil {
		return b.own(b, caller, asked)
	}
	if asked != storage.Storage(b) {
		return nil
	}
	return &owned{b, caller}
}

// owned is a broken storage as its user has it.
type owned struct {
	*broken
	self any
}

func (o *owned) Insert(ctx context.Context, now time.Time, batch inserts, dst results) (results, error) {
	return o.broken.Insert(storage.WithCaller(ctx, o.self), now, batch, dst)
}

func (o *owned) Claim(ctx context.Context, now time.Time, c storage.Claim, dst records) (records, error) {
	return o.broken.Claim(storage.WithCaller(ctx, o.self), now, c, dst)
}

func (o *owned) Settle(ctx context.Context, now time.Time, changes settles, dst outcomes) (outcomes, error) {
	return o.broken.Settle(storage.WithCaller(ctx, o.self), now, changes, dst)
}

// fault makes a storage wrong in one way.
type fault struct {
	name   string
	caught string // the case whose rule it breaks, and after it the cases that it breaks too
	fault  func(b *broken)
}

// faults are all that the files of this package register, each those of one class.
var faults []fault

func register(of []fault) struct{} {
	faults = append(faults, of...)
	return struct{}{}
}

// brokenConfig is that of a storage with a fault.
func brokenConfig(fault func(*broken)) storagetest.Config {
	return storagetest.Config{
		Notices: true, SettleClaims: true,

		Open: func(testing.TB) storage.Storage {
			b := &broken{Storage: memory.New(), kept: make(map[string]storage.Record)}
			fault(b)
			return b
		},
		Reopen: func(_ testing.TB, s storage.Storage) storage.Storage {
			if b := s.(*broken); b.reopen != nil {
				return b.reopen(b)
			}
			return s
		},
	}
}

var (
	rounds = flag.Int("rounds", 1,
		"how often each broken storage has to be caught, each time with a seed of its own")
	whole = flag.Bool("whole", false,
		"run every case on each broken storage, and want no other than those it names to notice")
)

// wantCaught wants one of the cases to notice a fault, with any seed.
func wantCaught(t *testing.T, cases string, fault func(*broken)) {
	t.Helper()
	cfg := brokenConfig(fault)
	for range *rounds {
		noticed := slices.ContainsFunc(strings.Fields(cases), func(id string) bool {
			return len(storagetest.Prove(cfg, find(id))) > 0
		})
		if !noticed {
			t.Fatal("not noticed")
		}
	}
}

// find returns the case with the ID.
func find(id string) storagetest.Case {
	i := slices.IndexFunc(storagetest.Cases(), func(c storagetest.Case) bool { return c.ID == id })
	if i < 0 {
		panic("no case " + id)
	}
	return storagetest.Cases()[i]
}

// ownTests reports whether other tests of this package have the broken storages for a
// case.
func ownTests(c storagetest.Case) bool {
	return strings.HasPrefix(c.ID, "fields-") || strings.HasPrefix(c.ID, "quarantine-")
}

// Every fault is noticed by the case whose rule it breaks. Every case notices a fault.
func TestFaultsAreCaught(t *testing.T) {
	storagetest.SkipWatched(t)
	storagetest.SetPatience(50 * time.Millisecond) // the memory storage tells at once
	var mu sync.Mutex
	caught := make(map[string]bool)
	t.Run("Fault", func(t *testing.T) {
		for _, f := range faults {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				by := noticedBy(t, f)
				mu.Lock()
				defer mu.Unlock()
				for _, id := range by {
					caught[id] = true
				}
			})
		}
	})
	sound := brokenConfig(func(*broken) {})
	for _, c := range storagetest.Cases() {
		if !storagetest.CanRun(sound, c) {
			continue
		}
		if !caught[c.ID] && !ownTests(c) {
			t.Errorf("%s notices no fault", c.ID)
		}
		if failures := storagetest.Prove(sound, c); len(failures) > 0 {
			t.Errorf("%s fails a sound storage: %v", c.ID, failures)
		}
	}
}

// unreadable matches pointers, zero and monotonic times, and bad verbs in failures.
var unreadable = regexp.MustCompile(`0xc[0-9a-f]{6,}|%!|0001-01-01 00:00|m=[+-]\d|storage\.[A-Z]\w+\{`)

// noticedBy runs the cases that a fault names, or all, and returns those that notice it.
func noticedBy(t *testing.T, f fault) (by []string) {
	cfg := brokenConfig(f.fault)
	related := strings.Fields(f.caught)
	cases := storagetest.Cases()
	if !*whole {
		cases = nil
		for _, id := range related {
			if id != "*" {
				cases = append(cases, find(id))
			}
		}
	}
	for _, c := range cases {
		if !storagetest.CanRun(cfg, c) || ownTests(c) {
			continue
		}
		if failures := storagetest.Prove(cfg, c); len(failures) > 0 {
			by = append(by, c.ID)
			if !strings.HasPrefix(failures[0], c.Rule) {
				t.Errorf("%s: the failure does not begin with the rule: %s", c.ID, failures[0])
			}
			if bad := unreadable.FindString(strings.Join(failures, "\n")); bad != "" {
				t.Errorf("%s: the failure shows %s: %s", c.ID, bad, failures[0])
			}
			if !slices.Contains(related, c.ID) && !slices.Contains(related, "*") {
				t.Errorf("noticed by %s, whose rule it does not break", c.ID)
			}
		}
	}
	if !slices.Contains(by, related[0]) {
		t.Errorf("not noticed by %s, but by %v", related[0], by)
	}
	for range *rounds - 1 {
		if len(storagetest.Prove(cfg, find(related[0]))) == 0 {
			t.Errorf("not noticed by %s each time", related[0])
		}
	}
	return by
}
