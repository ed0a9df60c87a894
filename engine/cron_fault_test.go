package engine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// once is a hook for the next call of SetCrons.
func once(s *storagetest.Faulty, f func(c *storagetest.Call)) {
	s.OnCall(func(c *storagetest.Call) {
		if c.Method == "PutDocuments cron" {
			s.OnCall(nil)
			f(c)
		}
	})
}

// cronEvents are the events of recurring jobs that a subscription has.
func cronEvents(sub *engine.Subscription) (told []string) {
	for _, ev := range received(sub) {
		told = append(told, string(ev.Type)+" "+ev.Reason+" "+ev.Due.UTC().Format(time.TimeOnly))
	}
	return told
}

func TestCronStorageFails(t *testing.T) {
	hourly := cron.Entry{Name: "e", Schedule: "@hourly", Job: ojs.NewDraft("x", nil)}
	for name, fault := range map[string]func(*rig, *storagetest.Call){
		"before it moves the entry on": func(_ *rig, c *storagetest.Call) { c.Err = errStorage },
		"after it": func(_ *rig, c *storagetest.Call) {
			c.Do()
			c.Err = errors.Join(c.Err, errStorage)
		},
		"after it, and the entry has been edited since": func(b *rig, c *storagetest.Call) {
			c.Do()
			changed := hourly
			changed.Description = "new"
			c.Err = errors.Join(c.Err, b.Cron().Set(b.ctx, changed), errStorage)
		},
	} {
		t.Run("P1.1 each run takes place once though the storage fails "+name, func(t *testing.T) {
			s := &storagetest.Faulty{Storage: memory.New()}
			inBubbleOn(t, s, func(b *rig) {
				b.handle("x", nothing)
				b.run()
				sub := b.Subscribe(engine.EventFilter{Types: []event.Type{"cron.*"}})
				defer sub.Close()
				b.cron(hourly)
				once(s, func(c *storagetest.Call) { fault(b, c) })
				b.advance(150 * time.Minute)
				told := cronEvents(sub)
				if want := []string{"cron.triggered  01:00:00", "cron.triggered  02:00:00"}; !slices.Equal(
					told, want) || len(b.times()) != 2 {
					t.Errorf("told %q, ran at %v", told, b.times())
				}
				if e := b.entry("e"); e.Runs != 2 || !e.NextRun.Equal(b.start.Add(3*time.Hour)) ||
					b.job(e.LastJobID).State != ojs.StateCompleted {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

func TestCronChangedWhileItsRunIsRefused(t *testing.T) {
	t.Run("P1.1 a run that is taken back leaves what an edit has changed meanwhile", func(t *testing.T) {
		s := &storagetest.Faulty{Storage: memory.New()}
		inBubbleOn(t, s, func(b *rig) {
			b.run()
			job := ojs.NewDraft("x", nil, ojs.WithUnique(ojs.UniquePolicy{}))
			e := cron.Entry{Name: "e", Schedule: "@hourly", Overlap: cron.OverlapAllow, Job: job}
			b.cron(e)
			b.advance(90 * time.Minute)
			first := b.entry("e").LastJobID
			once(s, func(c *storagetest.Call) {
				c.Do() // the entry moves on
				once(s, func(c *storagetest.Call) {
					e.Description = "new"
					must(t, b.Cron().Set(b.ctx, e))
					c.Do() // it is to move back
				})
			})
			b.advance(time.Hour)
			if e := b.entry("e"); e.Description != "new" || e.Runs != 1 || e.LastJobID != first ||
				!e.NextRun.Equal(b.start.Add(3*time.Hour)) {
				t.Errorf("%+v, want run %s", e, first)
			}
		})
	})
}
