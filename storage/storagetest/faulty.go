package storagetest

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// ErrFault is an error for hooks of a Faulty to fail calls with.
var ErrFault = errors.New("storagetest: injected fault")

// Faulty is a storage around another one. It counts the calls of each method, and a hook
// sees each call: it may delay the call, fail it before or after its work, and look at
// the arguments and the result. It is for testing what lies above a storage.
//
//	s := &storagetest.Faulty{Storage: memory.New()}
//	s.OnCall(func(c *storagetest.Call) {
//		if c.Method == "Settle" {
//			c.Do()                       // the work is done,
//			c.Err = storagetest.ErrFault // and the caller gets an error
//		}
//	})
//
// storage.As finds the optional abilities of the storage inside. The calls of Quarantiner
// pass the hook, too. The abilities that a storage itself must have, SettleClaimer and
// Binder, are hidden, so that an engine calls Settle and Claim. Stepping shows them.
//
// A Faulty must not be copied. Its methods may be called by many goroutines at once.
type Faulty struct {
	storage.Storage
	hook   atomic.Pointer[func(*Call)]
	calls  sync.Map // of methods to their *atomic.Int64
	shared *Faulty  // whose hook and calls count; nil: its own
}

// Call is one call of a method, as a hook sees it. The hook has it until it returns.
type Call struct {
	Context context.Context
	Method  string // such as "Claim"; of documents with their kind: "PutDocuments cron"

	// In is the argument beside the context and the time. Insert has a []storage.Insert,
	// Claim a storage.Claim, Settle a []storage.Change, Extend a []storage.Extension, Due
	// and CountQuarantined nil, Get and ClaimedBy a string, List a storage.Query, Delete
	// a []string, Prune a storage.Prune, PutDocuments a []storage.Document, Documents a
	// storage.DocumentQuery, DueDocuments nil, SettleAndClaim a Step, Unclaim a
	// []storage.Held, CancelAll a []string, Revive a []storage.Insert. The other methods
	// have the name or key that they are called with.
	In any
	// Out is the result once Do has been called: what the storage has added to it, if it
	// is appended. SettleAndClaim has the number of jobs that were claimed.
	Out any
	// Err is the error that the caller gets. A hook that sets it without having called Do
	// keeps the call from its work. The caller then gets no result.
	Err error

	do   func() (any, error)
	done bool
}

// Step is the argument of SettleAndClaim.
type Step struct {
	To    []*storage.Record
	Claim storage.Claim // its Max is how many jobs are claimed at most
}

// Do does the work of the call, and sets Out and Err. A hook may call it at any time. A
// second call does nothing. If the hook returns without it and Err is nil, Faulty does
// the work then.
func (c *Call) Do() {
	if !c.done {
		c.done = true
		c.Out, c.Err = c.do()
	}
}

// OnCall sets the hook; nil: none. Calls under way keep theirs.
func (f *Faulty) OnCall(hook func(*Call)) {
	if hook == nil {
		f.hook.Store(nil)
		return
	}
	f.hook.Store(&hook)
}

// Calls returns how many calls of the methods there were; without methods, of all.
func (f *Faulty) Calls(methods ...string) int {
	n := 0
	if len(methods) == 0 {
		f.calls.Range(func(_, calls any) bool {
			n += int(calls.(*atomic.Int64).Load())
			return true
		})
	}
	for _, m := range methods {
		if calls, ok := f.calls.Load(m); ok {
			n += int(calls.(*atomic.Int64).Load())
		}
	}
	return n
}

// Unwrap returns the storage inside, with abilities whose calls pass the hook.
func (f *Faulty) Unwrap() storage.Storage {
	s := f.Storage
	if inner, ok := storage.As[storage.Quarantiner](s); ok {
		s = &faultyQuarantine{s, inner, f}
	}
	return s
}

// Stepping returns f with SettleClaimer, and with Binder if the storage inside is a
// Binder. It returns f if the storage inside is no SettleClaimer.
func (f *Faulty) Stepping() storage.Storage {
	inner, ok := f.Storage.(storage.SettleClaimer)
	if !ok {
		return f
	}
	s := stepping{f, inner}
	if b, ok := f.Storage.(storage.Binder); ok {
		return &boundStepping{s, b}
	}
	return &s
}

// stepping is a Faulty that is a SettleClaimer.
type stepping struct {
	*Faulty
	steps storage.SettleClaimer
}

// boundStepping is a stepping that is a Binder.
type boundStepping struct {
	stepping
	storage.Binder
}

// Bind implements storage.Binder. The storage that it returns has the hook and the counts
// of f.
func (s *boundStepping) Bind(caller any, asked storage.Storage) storage.Storage {
	if asked != storage.Storage(s) {
		return nil
	}
	inner := s.Binder.Bind(caller, s.Faulty.Storage)
	if inner == nil {
		return nil
	}
	return (&Faulty{Storage: inner, shared: cmp.Or(s.shared, s.Faulty)}).Stepping()
}

// call makes a call under the hook. Its result is none if the hook fails it.
func call[R any](f *Faulty, ctx context.Context, method string, in any, none R,
	do func() (R, any, error)) (R, error) {
	if f.shared != nil {
		f = f.shared
	}
	calls, ok := f.calls.Load(method)
	if !ok {
		calls, _ = f.calls.LoadOrStore(method, new(atomic.Int64))
	}
	calls.(*atomic.Int64).Add(1)
	hook := f.hook.Load()
	if hook == nil {
		r, _, err := do()
		return r, err
	}
	var result R
	var failed error
	c := &Call{Context: ctx, Method: method, In: in}
	c.do = func() (any, error) {
		var out any
		result, out, failed = do()
		return out, failed
	}
	if (*hook)(c); c.Err == nil {
		c.Do()
	}
	if c.Err != nil && (!c.done || c.Err != failed) {
		return none, c.Err
	}
	return result, c.Err
}

// same makes the function of a call whose result a hook sees as it is.
func same[R any](do func() (R, error)) func() (R, any, error) {
	return func() (R, any, error) {
		r, err := do()
		return r, r, err
	}
}

// added makes the function of a call that appends its result to n others.
func added[R any](n int, do func() ([]R, error)) func() ([]R, any, error) {
	return func() ([]R, any, error) {
		r, err := do()
		return r, r[min(n, len(r)):], err
	}
}

// none makes the function of a call without a result.
func none(do func() error) func() (struct{}, any, error) {
	return func() (struct{}, any, error) { return struct{}{}, nil, do() }
}

// Insert implements storage.Storage.
func (f *Faulty) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	return call(f, ctx, "Insert", batch, dst, added(len(dst), func() ([]storage.Inserted, error) {
		return f.Storage.Insert(ctx, now, batch, dst)
	}))
}

// Claim implements storage.Storage.
func (f *Faulty) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	return call(f, ctx, "Claim", c, dst, added(len(dst), func() ([]storage.Record, error) {
		return f.Storage.Claim(ctx, now, c, dst)
	}))
}

// Settle implements storage.Storage.
func (f *Faulty) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	return call(f, ctx, "Settle", changes, dst, added(len(dst), func() ([]storage.Settled, error) {
		return f.Storage.Settle(ctx, now, changes, dst)
	}))
}

// SettleAndClaim implements storage.SettleClaimer.
func (s *stepping) SettleAndClaim(ctx context.Context, now time.Time, to []*storage.Record,
	dst []storage.Settled, c storage.Claim, into []*storage.Record) ([]storage.Settled, int, error) {
	type result struct {
		settled []storage.Settled
		claimed int
	}
	in := Step{to, c}
	in.Claim.Max = len(into)
	r, err := call(s.Faulty, ctx, "SettleAndClaim", in, result{dst, 0}, func() (result, any, error) {
		settled, n, err := s.steps.SettleAndClaim(ctx, now, to, dst, c, into)
		return result{settled, n}, n, err
	})
	return r.settled, r.claimed, err
}

// Unclaim implements storage.SettleClaimer.
func (s *stepping) Unclaim(ctx context.Context, now time.Time, held []storage.Held) (int, error) {
	return call(s.Faulty, ctx, "Unclaim", held, 0, same(func() (int, error) {
		return s.steps.Unclaim(ctx, now, held)
	}))
}

// Extend implements storage.Storage.
func (f *Faulty) Extend(ctx context.Context, now time.Time,
	extensions []storage.Extension) ([]string, error) {
	return call(f, ctx, "Extend", extensions, nil, same(func() ([]string, error) {
		return f.Storage.Extend(ctx, now, extensions)
	}))
}

// Due implements storage.Storage.
func (f *Faulty) Due(ctx context.Context, now time.Time, max int, buf []storage.Record) (storage.Due, error) {
	return call(f, ctx, "Due", nil, storage.Due{}, same(func() (storage.Due, error) {
		return f.Storage.Due(ctx, now, max, buf)
	}))
}

// Get implements storage.Storage.
func (f *Faulty) Get(ctx context.Context, id string) (storage.Record, error) {
	return call(f, ctx, "Get", id, storage.Record{}, same(func() (storage.Record, error) {
		return f.Storage.Get(ctx, id)
	}))
}

// List implements storage.Storage.
func (f *Faulty) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	return call(f, ctx, "List", q, storage.Page{}, same(func() (storage.Page, error) {
		return f.Storage.List(ctx, q)
	}))
}

// ClaimedBy implements storage.Storage.
func (f *Faulty) ClaimedBy(ctx context.Context, worker string) ([]storage.Record, error) {
	return call(f, ctx, "ClaimedBy", worker, nil, same(func() ([]storage.Record, error) {
		return f.Storage.ClaimedBy(ctx, worker)
	}))
}

// Counts implements storage.Storage.
func (f *Faulty) Counts(ctx context.Context) ([]storage.Count, error) {
	return call(f, ctx, "Counts", nil, nil, same(func() ([]storage.Count, error) {
		return f.Storage.Counts(ctx)
	}))
}

// Delete implements storage.Storage.
func (f *Faulty) Delete(ctx context.Context, ids []string) (int, error) {
	return call(f, ctx, "Delete", ids, 0, same(func() (int, error) { return f.Storage.Delete(ctx, ids) }))
}

// Prune implements storage.Storage.
func (f *Faulty) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	return call(f, ctx, "Prune", p, storage.Pruned{}, same(func() (storage.Pruned, error) {
		return f.Storage.Prune(ctx, p)
	}))
}

// PutDocuments implements storage.Storage.
func (f *Faulty) PutDocuments(ctx context.Context, kind storage.Kind,
	list []storage.Document) ([]uint64, error) {
	return call(f, ctx, "PutDocuments "+string(kind), list, nil, same(func() ([]uint64, error) {
		return f.Storage.PutDocuments(ctx, kind, list)
	}))
}

// Documents implements storage.Storage.
func (f *Faulty) Documents(ctx context.Context, kind storage.Kind,
	q storage.DocumentQuery) ([]storage.Document, error) {
	return call(f, ctx, "Documents "+string(kind), q, nil, same(func() ([]storage.Document, error) {
		return f.Storage.Documents(ctx, kind, q)
	}))
}

// DueDocuments implements storage.Storage.
func (f *Faulty) DueDocuments(ctx context.Context, kind storage.Kind, now time.Time,
	after *storage.Document, max int) ([]storage.Document, time.Time, error) {
	type result struct {
		due  []storage.Document
		next time.Time
	}
	r, err := call(f, ctx, "DueDocuments "+string(kind), nil, result{}, func() (result, any, error) {
		due, next, err := f.Storage.DueDocuments(ctx, kind, now, after, max)
		return result{due, next}, due, err
	})
	return r.due, r.next, err
}

// SetQueueState implements storage.Storage.
func (f *Faulty) SetQueueState(ctx context.Context, queue string,
	to ojs.QueueState) (ojs.QueueState, error) {
	return call(f, ctx, "SetQueueState", queue, "", same(func() (ojs.QueueState, error) {
		return f.Storage.SetQueueState(ctx, queue, to)
	}))
}

// QueueStates implements storage.Storage.
func (f *Faulty) QueueStates(ctx context.Context) (map[string]ojs.QueueState, error) {
	return call(f, ctx, "QueueStates", nil, nil, same(func() (map[string]ojs.QueueState, error) {
		return f.Storage.QueueStates(ctx)
	}))
}

// CancelAll implements storage.Storage.
func (f *Faulty) CancelAll(ctx context.Context, now time.Time, ids []string) (
	cancelled, moved []storage.Record, err error) {
	_, err = call(f, ctx, "CancelAll", ids, nil, same(func() ([]storage.Record, error) {
		cancelled, moved, err = f.Storage.CancelAll(ctx, now, ids)
		return cancelled, err
	}))
	if err != nil {
		return nil, nil, err
	}
	return cancelled, moved, nil
}

// Revive implements storage.Storage.
func (f *Faulty) Revive(ctx context.Context, now time.Time, batch []storage.Insert) (
	[]storage.Record, error) {
	return call(f, ctx, "Revive", batch, nil, same(func() ([]storage.Record, error) {
		return f.Storage.Revive(ctx, now, batch)
	}))
}

// faultyQuarantine has the quarantine of a storage under the hook of a Faulty.
type faultyQuarantine struct {
	storage.Storage
	inner storage.Quarantiner
	f     *Faulty
}

// Unwrap lets storage.As look through.
func (s *faultyQuarantine) Unwrap() storage.Storage { return s.Storage }

// Quarantined implements storage.Quarantiner.
func (s *faultyQuarantine) Quarantined(ctx context.Context, after string,
	limit int) ([]storage.Quarantined, error) {
	return call(s.f, ctx, "Quarantined", after, nil, same(func() ([]storage.Quarantined, error) {
		return s.inner.Quarantined(ctx, after, limit)
	}))
}

// CountQuarantined implements storage.Quarantiner.
func (s *faultyQuarantine) CountQuarantined(ctx context.Context) (int, error) {
	return call(s.f, ctx, "CountQuarantined", nil, 0, same(func() (int, error) {
		return s.inner.CountQuarantined(ctx)
	}))
}

// ReleaseQuarantined implements storage.Quarantiner.
func (s *faultyQuarantine) ReleaseQuarantined(ctx context.Context, key string) error {
	_, err := call(s.f, ctx, "ReleaseQuarantined", key, struct{}{}, none(func() error {
		return s.inner.ReleaseQuarantined(ctx, key)
	}))
	return err
}

// DeleteQuarantined implements storage.Quarantiner.
func (s *faultyQuarantine) DeleteQuarantined(ctx context.Context, key string) error {
	_, err := call(s.f, ctx, "DeleteQuarantined", key, struct{}{}, none(func() error {
		return s.inner.DeleteQuarantined(ctx, key)
	}))
	return err
}

// Logs implements storage.Storage.
func (f *Faulty) Logs(ctx context.Context, id string) ([]storage.Log, error) {
	return call(f, ctx, "Logs", id, nil, same(func() ([]storage.Log, error) {
		return f.Storage.Logs(ctx, id)
	}))
}
