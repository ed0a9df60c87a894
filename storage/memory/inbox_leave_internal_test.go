package memory

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/storage"
)

// ordinary is an insert that may be left in the inbox.
func ordinary(id, queue string) storage.Insert {
	var r storage.Record
	r.ID, r.Type, r.Queue, r.State, r.Lease = id, "x", queue, ojs.StateAvailable, time.Minute
	return storage.Insert{Record: r, IDIsNew: true}
}

// opened is a storage with a job of a queue that is available, so that others of it are
// left in the inbox.
func opened(t *testing.T, queue string) *Storage {
	s := New()
	if _, err := s.Insert(t.Context(), time.Time{}, []storage.Insert{ordinary("first", queue)},
		nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// left is how many jobs are in the inbox.
func (x *inbox) left() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.jobs)
}

// leaveJobs leaves jobs in the inbox, which the storage must do.
func leaveJobs(t *testing.T, s *Storage, batch ...storage.Insert) {
	t.Helper()
	before := s.inbox.left()
	if _, err := s.Insert(t.Context(), time.Time{}, batch, nil); err != nil {
		t.Fatal(err)
	}
	if n := s.inbox.left() - before; n != len(batch) {
		t.Fatalf("%d jobs of %d are in the inbox", n, len(batch))
	}
}

// An enqueue does not wait for the lock of the storage until the inbox is full.
func TestFullInbox(t *testing.T) {
	s := opened(t, "q")
	s.mu.Lock()
	for i := range fullInbox - 1 {
		if _, err := s.Insert(t.Context(), time.Time{}, []storage.Insert{ordinary(fmt.Sprint(i), "q")},
			nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.inbox.left(); n != fullInbox-1 {
		t.Fatalf("%d are left in the inbox", n)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Insert(t.Context(), time.Time{}, []storage.Insert{ordinary("last", "q")}, nil)
		ended <- err
	}()
	for s.inbox.left() < fullInbox {
		runtime.Gosched()
	}
	s.mu.Unlock()
	if err := <-ended; err != nil || s.inbox.left() != 0 || s.ready.n != 1+fullInbox {
		t.Errorf("%v; %d are in the inbox, %d available", err, s.inbox.left(), s.ready.n)
	}
}

// A new listener hears of a job whose enqueue was under way, even if the storage is
// locked.
func TestLeftInWhileOthersBegin(t *testing.T) {
	s := opened(t, "q")
	s.inbox.mu.Lock()
	ended := make(chan error, 1)
	go func() {
		_, err := s.Insert(t.Context(), time.Time{}, []storage.Insert{ordinary("second", "q")}, nil)
		ended <- err
	}()
	waitLeaving()
	heard := false
	defer s.Notify("theirs", func(n storage.Notice) { heard = n.Available })()
	s.mu.Lock()
	s.inbox.mu.Unlock()
	for s.inbox.left() == 0 {
		runtime.Gosched()
	}
	s.mu.Unlock()
	if err := <-ended; err != nil || !heard {
		t.Errorf("%v; heard of it: %t", err, heard)
	}
}

// The inbox never claims to be empty while it has jobs, even if many come and go
// meanwhile.
func TestInboxSaysThatItHasSome(t *testing.T) {
	s := opened(t, "q")
	const jobs = 20_000
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range jobs {
			if _, err := s.Insert(t.Context(), time.Time{}, []storage.Insert{ordinary(fmt.Sprint(i), "q")},
				nil); err != nil {
				t.Error(err)
			}
		}
	}()
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		default:
		}
		s.mu.Lock()
		s.takeIn()
		s.leave()
		s.inbox.mu.Lock()
		unseen := len(s.inbox.jobs) > 0 && !s.inbox.some.Load()
		s.inbox.mu.Unlock()
		if unseen {
			t.Fatal("jobs are in the inbox, and it says that there are none")
		}
	}
	if n := s.all.n; n != jobs+1 {
		t.Errorf("%d jobs have been taken in", n)
	}
}

// A new listener hears of a job that a call of its own has drained from the inbox.
func TestTakenInByWhoBegins(t *testing.T) {
	s := opened(t, "q")
	s.inbox.mu.Lock()
	ended := make(chan error, 1)
	go func() {
		_, err := s.Bind("mine", s).Insert(t.Context(), time.Time{},
			[]storage.Insert{ordinary("second", "q")}, nil)
		ended <- err
	}()
	waitLeaving()
	heard := false
	defer s.Notify("theirs", func(n storage.Notice) { heard = n.Available })()
	if err := s.Bind("theirs", s).(personal).enterAhead(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.inbox.mu.Unlock()
	for s.inbox.left() == 0 {
		runtime.Gosched()
	}
	s.takeIn()
	s.leave()
	if err := <-ended; err != nil || !heard {
		t.Errorf("%v; heard of it: %t", err, heard)
	}
}

// waitLeaving waits until an enqueue blocks on the lock of the inbox.
func waitLeaving() {
	buf := make([]byte, 1<<20)
	for {
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "[sync.Mutex.Lock") && strings.Contains(g, "leaveIn") {
				return
			}
		}
	}
}

// An enqueue into a long backlog yields the processor to other goroutines.
func TestBacklogYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := opened(t, "q")
	ids := 0
	batch := func() []storage.Insert {
		list := make([]storage.Insert, inboxSize)
		for i := range list {
			ids++
			list[i] = ordinary(fmt.Sprint(ids), "q")
		}
		return list
	}
	insert := func(batch []storage.Insert) {
		if _, err := s.Insert(t.Context(), time.Time{}, batch, nil); err != nil {
			t.Fatal(err)
		}
	}
	for ids <= backlog {
		insert(batch())
	}
	// The scheduler may also preempt an enqueue. A goroutine that yields may, now and
	// then, run again before the other.
	const tries = 200
	yielded := 0
	for range tries {
		next := batch()
		var ran atomic.Bool
		over := make(chan struct{})
		go func() { ran.Store(true); close(over) }()
		insert(next)
		if ran.Load() {
			yielded++
		}
		<-over
	}
	if yielded < tries*3/4 {
		t.Errorf("others ran in %d of %d enqueues", yielded, tries)
	}
}

// A listener that registers while jobs are on their way into the inbox hears of them. The
// caller that enqueues them does not.
func TestInboxTellsWhoBeganToListen(t *testing.T) {
	s := opened(t, "q")
	var mine, theirs atomic.Int32
	count := func(n *atomic.Int32) func(storage.Notice) {
		return func(notice storage.Notice) {
			if notice.Available {
				n.Add(1)
			}
		}
	}
	defer s.Notify("mine", count(&mine))()
	// the latest call that was not mine
	if _, err := s.Bind("theirs", s).Get(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	s.inbox.mu.Lock()
	done := make(chan error, 1)
	go func() {
		_, err := s.Bind("mine", s).Insert(t.Context(), time.Time{},
			[]storage.Insert{ordinary("second", "q")}, nil)
		done <- err
	}()
	pace.Until(t, "the call waits for the inbox", func() (waits bool) {
		all := make([]byte, 1<<20)
		for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
			waits = waits || strings.Contains(stack, "leaveIn(") && strings.Contains(stack, "lockSlow(")
		}
		return waits
	})
	defer s.Notify("theirs", count(&theirs))()
	s.inbox.mu.Unlock()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if theirs.Load() != 1 || mine.Load() != 0 {
		t.Errorf("the others heard of %d jobs, and who enqueued them of %d", theirs.Load(), mine.Load())
	}
}

// A job that is not ordinary does not go through the inbox, nor does one whose enqueue
// must fail.
func TestNotForTheInbox(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	priority, low, scheduled, old := ordinary("1", "q"), ordinary("1", "q"), ordinary("1", "q"),
		ordinary("1", "q")
	priority.Record.Priority, low.Record.Priority, old.IDIsNew = 1, -1, false
	scheduled.Record.State, scheduled.Record.ScheduledAt = ojs.StateScheduled, time.Unix(1, 0)
	for name, c := range map[string]struct {
		ctx context.Context
		job storage.Insert
	}{
		"context that has ended": {ended, ordinary("1", "q")},
		"high priority":          {t.Context(), priority},
		"low priority":           {t.Context(), low},
		"scheduled":              {t.Context(), scheduled},
		"id to look for":         {t.Context(), old},
		"unknown kind":           {t.Context(), ordinary("1", "other")},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, "q")
			_, err := s.Insert(c.ctx, time.Time{}, []storage.Insert{c.job}, nil)
			if !errors.Is(err, c.ctx.Err()) || s.inbox.left() != 0 {
				t.Errorf("%v; in the inbox: %d", err, s.inbox.left())
			}
			if recs, err := s.List(t.Context(), storage.Query{}); err != nil ||
				(len(recs.Records) == 2) != (c.ctx.Err() == nil) {
				t.Errorf("%d stored, %v", len(recs.Records), err)
			}
		})
	}
}

// A batch of which the jobs are of different kinds, since others enqueue meanwhile, comes
// out of the inbox as it is.
func TestInboxOfKinds(t *testing.T) {
	s := opened(t, "a")
	kinds := map[string]*kind{"a": s.lastKind.Load()}
	if _, err := s.Insert(t.Context(), time.Time{}, []storage.Insert{ordinary("second", "b")},
		nil); err != nil {
		t.Fatal(err)
	}
	kinds["b"] = s.lastKind.Load()
	var batch []storage.Insert
	var jobs []*job
	for i, queue := range []string{"a", "b", "a", "b"} {
		batch = append(batch, ordinary(fmt.Sprint(i), queue))
		s.lastKind.Store(kinds[queue])
		jobs = append(jobs, s.prepare(&batch[i].Record))
		if i > 0 {
			jobs[i-1].next = jobs[i]
		}
	}
	if !s.leaveIn(t.Context(), nil, batch, jobs[0]) {
		t.Fatal("refused")
	}
	for queue, want := range map[string]string{"a": "[first 0 2]", "b": "[second 1 3]"} {
		var got []string
		for range 4 { // one by one: what has been claimed is taken out
			recs, err := s.Claim(t.Context(), time.Time{},
				storage.Claim{Max: 1, Queues: []string{queue}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range recs {
				got = append(got, r.ID)
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("queue %s had %v, want %v", queue, got, want)
		}
	}
}

// The inbox keeps nothing alive that has left it, nor memory for many more jobs than wait
// there as a rule.
func TestInboxKeepsNothing(t *testing.T) {
	s := opened(t, "q")
	leaveJobs(t, s, ordinary("1", "q"), ordinary("2", "q"))
	if _, err := s.Get(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	for _, j := range s.inbox.spare[:cap(s.inbox.spare)] {
		if j != nil {
			t.Errorf("keeps job %s", j.id)
		}
	}
	many := make([]storage.Insert, maxInbox+1)
	for i := range many {
		many[i] = ordinary(fmt.Sprint("of many ", i), "q")
	}
	if _, err := s.Insert(t.Context(), time.Time{}, many, nil); err != nil {
		t.Fatal(err)
	}
	if n := cap(s.inbox.spare); n > maxInbox {
		t.Errorf("keeps memory for %d jobs", n)
	}
	leaveJobs(t, s, ordinary("last", "q"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(s.inbox.jobs); n != 0 {
		t.Errorf("closed, and has %d jobs", n)
	}
}

// A deleted job leaves nothing of its data to the job that reuses its memory.
func TestSparesAreBlank(t *testing.T) {
	s := opened(t, "q")
	special := ordinary("2", "q")
	special.Record.Meta = map[string]any{"not": "ordinary"}
	special.Record.Args, _ = ojs.NewArgs("args")
	if _, err := s.Insert(t.Context(), time.Time{}, []storage.Insert{special, ordinary("3", "q")},
		nil); err != nil {
		t.Fatal(err)
	}
	recs, err := s.Claim(t.Context(), time.Time{}, storage.Claim{Max: 3, Worker: "w"}, nil)
	if err != nil || len(recs) != 3 {
		t.Fatal(recs, err)
	}
	var jobs []*job
	for i := range recs {
		recs[i].State, recs[i].LeaseUntil, recs[i].FinishedAt = ojs.StateCompleted, time.Time{},
			time.Unix(1, 0)
		if settled, err := s.Settle(t.Context(), time.Time{}, []storage.Change{{Record: recs[i]}},
			nil); err != nil || settled[0].Err != nil {
			t.Fatal(settled, err)
		}
		jobs = append(jobs, s.find(recs[i].ID))
	}
	s.mu.Lock()
	for _, j := range jobs[:2] {
		s.delete(j)
	}
	s.leave()
	for i, j := range jobs[:2] {
		if j.id != "" || !reflect.ValueOf(j.args).IsZero() || j.kind != nil || j.rest != nil ||
			j.worker != nil || j.end != open || j.level != nil {
			t.Errorf("job %d is %+v", i, j)
		}
	}
}
