package operate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// An operator without the codec of the engine does not store in clear what is encoded.
func TestEditKeepsSecrets(t *testing.T) {
	s := memory.New()
	eng, err := engine.New[any](s, engine.WithCodec(codec.Gzip()))
	must(t, err)
	ctx := t.Context()
	ticket, err := eng.Enqueue(ctx, "x", strings.Repeat("secret", 1000), ojs.WithDelay(time.Hour))
	must(t, err)
	jobs := operate.Open(s, clock.New(), nil).Jobs()
	if err := jobs.Edit(ctx, ticket.ID, operate.Edit{Args: "other"}); !errors.Is(err, ojs.ErrUnsupported) {
		t.Errorf("plain args: %v", err)
	}
	rec, err := s.Get(ctx, ticket.ID)
	must(t, err)
	if !codec.IsEncoded(rec.Args, rec.Meta) {
		t.Errorf("stored in clear: %s", rec.Args)
	}
	must(t, jobs.Edit(ctx, ticket.ID, operate.Edit{Meta: map[string]any{"k": "v"}}))
}

// A copy that a hook drops is an error, which stops no operation on many.
func TestCopyThatIsDropped(t *testing.T) {
	s := memory.New()
	drops := false
	eng, err := engine.New[any](s, engine.WithEnqueueHook(
		func(context.Context, *ojs.Job[any]) error {
			if drops {
				return ojs.ErrDropped
			}
			return nil
		}))
	must(t, err)
	ctx := t.Context()
	ticket, err := eng.Enqueue(ctx, "x", 1)
	must(t, err)
	must(t, eng.Cancel(ctx, ticket.ID))
	drops = true
	if copied, err := eng.Jobs().Copy(ctx, ticket.ID, nil); !errors.Is(err, ojs.ErrDropped) {
		t.Errorf("copied %+v, %v", copied, err)
	}
	for p, err := range eng.Jobs().Apply(ctx, operate.Bulk{Do: operate.CopyJobs(),
		On: inspect.Filter{IDs: []string{ticket.ID}}}) {
		must(t, err)
		if p.Done != 0 || p.Refused != 1 || !errors.Is(p.Err, ojs.ErrDropped) {
			t.Errorf("%+v", p)
		}
	}
}

// clocked is a storage that leads the clocks of its engines.
type clocked struct{ *memory.Storage }

func (clocked) ClockOffset() time.Duration { return time.Hour }

// An operator on the wall clock goes by the clock of the storage, as engines do.
func TestOperatorFollowsTheClockOfTheStorage(t *testing.T) {
	s := clocked{memory.New()}
	eng, err := engine.New[any](s)
	must(t, err)
	ctx := t.Context()
	ticket, err := eng.Enqueue(ctx, "x", 1)
	must(t, err)
	must(t, operate.Open(s, clock.New(), nil).Jobs().SetPriority(ctx, ticket.ID, 3))
	var rec storage.Record
	rec, err = s.Get(ctx, ticket.ID)
	must(t, err)
	if at := rec.History[len(rec.History)-1].At; at.Before(time.Now().Add(59 * time.Minute)) {
		t.Errorf("noted at %v, want an hour from now", at)
	}
}
