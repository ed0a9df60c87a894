package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/storage"
)

// Order is the order of a listing. A storage may know no order but OrderOldest; the
// listing then fails with ojs.ErrUnsupported.
type Order = storage.Order

// The orders of listings. Three of them leave out the jobs that have no place in them.
const (
	OrderOldest   = storage.OrderOldest   // as enqueued; dead letters by their death
	OrderNewest   = storage.OrderNewest   // the reverse
	OrderFinished = storage.OrderFinished // jobs that have ended, the latest end first
	OrderDue      = storage.OrderDue      // jobs that wait for a time, and leases, the soonest first
	OrderClaim    = storage.OrderClaim    // available jobs, the next to be claimed first; 10,000 or more
)

// Filter selects jobs; a zero field selects all.
type Filter struct {
	States       []ojs.State
	Queues       []string
	Types        []string // "email.*" selects every type that starts with "email."
	ErrorTypes   []string // of the job's latest failure; prefixes as in Types
	DeadLettered bool     // dead letters only

	// Args is text that the args' JSON contains, in which nothing is escaped that JSON
	// does not demand and no space is between tokens: part of a string, such as cust_123,
	// or a member, such as "amount":9999. It selects no job whose args are encoded. "":
	// any args.
	Args string

	CreatedFrom, CreatedBefore   time.Time // the first is in the range, the second is not
	FinishedFrom, FinishedBefore time.Time // a job that has not ended is in no such range

	Order Order // of a listing
}

func (f *Filter) query() (storage.Query, error) {
	for _, s := range f.States {
		if !s.Valid() {
			return storage.Query{}, invalid("filter.states", fmt.Sprintf("%q is no state", s))
		}
	}
	if !f.Order.Valid() {
		return storage.Query{}, invalid("filter.order",
			fmt.Sprintf("%q is none of newest, finished, due and claim", f.Order))
	}
	return storage.Query{
		Order: f.Order, DeadLetters: f.DeadLettered, States: f.States, Queues: f.Queues, Types: f.Types,
		ErrorTypes:  f.ErrorTypes,
		CreatedFrom: f.CreatedFrom, CreatedBefore: f.CreatedBefore,
		FinishedFrom: f.FinishedFrom, FinishedBefore: f.FinishedBefore,
	}, nil
}

// matchesArgs reports whether the filter selects a job by its args, of which storages
// know nothing.
func (f *Filter) matchesArgs(job *ojs.JobInfo) bool {
	if f.Args == "" {
		return true
	}
	if codec.IsEncoded(job.Args, job.Meta) {
		return false
	}
	raw := job.Args.JSON()
	if bytes.Contains(raw, []byte(f.Args)) {
		return true
	}
	if !bytes.Contains(raw, []byte(`\u`)) { // which encoding/json writes for < > &, and others for any character
		return false
	}
	v, err := jsonvalue.Decode(raw)
	if err != nil {
		return false
	}
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	return enc.Encode(v) == nil && bytes.Contains(plain.Bytes(), []byte(f.Args))
}

// only narrows the filter to the states an operation applies to. It refuses a filter that
// names another.
func (f Filter) only(states ...ojs.State) (Filter, error) {
	if len(f.States) == 0 {
		f.States = states
		return f, nil
	}
	for _, s := range f.States {
		if !slices.Contains(states, s) {
			return f, invalid("filter.states", fmt.Sprintf("%q is none of %v", s, states))
		}
	}
	return f, nil
}
