package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// cronFaulty is a storage whose SetCrons of one entry can be interfered with, once.
type cronFaulty struct {
	storage.Storage
	storage.CronStore
	next atomic.Pointer[func(set func() (uint64, error)) (uint64, error)]
}

func newCronFaulty() *cronFaulty {
	m := memory.New()
	return &cronFaulty{Storage: m, CronStore: m}
}

// once has f make the next call, or leave it.
func (c *cronFaulty) once(f func(set func() (uint64, error)) (uint64, error)) { c.next.Store(&f) }

func (c *cronFaulty) SetCrons(ctx context.Context, entries []storage.Cron) ([]uint64, error) {
	set := func() (uint64, error) {
		versions, err := c.CronStore.SetCrons(ctx, entries)
		if err != nil {
			return 0, err
		}
		return versions[0], nil
	}
	call := set
	if f := c.next.Swap(nil); f != nil {
		call = func() (uint64, error) { return (*f)(set) }
	}
	version, err := call()
	return []uint64{version}, err
}

// cronEvents are the events of recurring jobs that a subscription has.
func cronEvents(sub *engine.Subscription) (told []string) {
	for _, ev := range received(sub) {
		told = append(told, string(ev.Type)+" "+ev.Reason+" "+ev.Due.UTC().Format(time.TimeOnly))
	}
	return told
}

func TestCronStorageFails(t *testing.T) {
	hourly := engine.CronEntry{Name: "e", Schedule: "@hourly", Job: ojs.NewDraft("x", nil)}
	for name, fault := range map[string]func(b *rig, set func() (uint64, error)) (uint64, error){
		"before it moves the entry on": func(*rig, func() (uint64, error)) (uint64, error) { return 0, errStorage },
		"after it": func(_ *rig, set func() (uint64, error)) (uint64, error) {
			_, err := set()
			return 0, errors.Join(err, errStorage)
		},
		"after it, and somebody has changed the entry since": func(b *rig, set func() (uint64, error)) (uint64, error) {
			_, err := set()
			changed := hourly
			changed.Description = "new"
			return 0, errors.Join(err, b.Cron().Set(b.ctx, changed), errStorage)
		},
	} {
		t.Run("P1.1 each run takes place once though the storage fails "+name, func(t *testing.T) {
			s := newCronFaulty()
			inBubbleOn(t, s, func(b *rig) {
				b.handle("x", nothing)
				b.run()
				sub := b.Subscribe(engine.EventFilter{Types: []ojs.EventType{"cron.*"}})
				defer sub.Close()
				b.cron(hourly)
				s.once(func(set func() (uint64, error)) (uint64, error) { return fault(b, set) })
				b.advance(150 * time.Minute)
				told := cronEvents(sub)
				if want := []string{"cron.triggered  01:00:00", "cron.triggered  02:00:00"}; !slices.Equal(told, want) || len(b.times()) != 2 {
					t.Errorf("told %q, ran at %v", told, b.times())
				}
				if e := b.entry("e"); e.Runs != 2 || !e.NextRun.Equal(b.start.Add(3*time.Hour)) || b.job(e.LastJobID).State != ojs.StateCompleted {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

func TestCronChangedWhileItsRunIsRefused(t *testing.T) {
	t.Run("P1.1 a run that is taken back leaves what somebody has changed meanwhile", func(t *testing.T) {
		s := newCronFaulty()
		inBubbleOn(t, s, func(b *rig) {
			b.run()
			job := ojs.NewDraft("x", nil, ojs.WithUnique(ojs.UniquePolicy{}))
			e := engine.CronEntry{Name: "e", Schedule: "@hourly", Overlap: engine.OverlapAllow, Job: job}
			b.cron(e)
			b.advance(90 * time.Minute)
			first := b.entry("e").LastJobID
			s.once(func(set func() (uint64, error)) (uint64, error) {
				v, err := set() // the entry moves on
				s.once(func(set func() (uint64, error)) (uint64, error) {
					e.Description = "new"
					err := b.Cron().Set(b.ctx, e)
					v, fenced := set() // it is to move back
					return v, errors.Join(err, fenced)
				})
				return v, err
			})
			b.advance(time.Hour)
			if e := b.entry("e"); e.Description != "new" || e.Runs != 1 || e.LastJobID != first || !e.NextRun.Equal(b.start.Add(3*time.Hour)) {
				t.Errorf("%+v, want run %s", e, first)
			}
		})
	})
}
