package journal_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/engine/internal/eventlog"
	"github.com/ojsengine/ojs/engine/internal/journal"
	"github.com/ojsengine/ojs/event"
	"github.com/ojsengine/ojs/storage"
)

// The steps of a call, in their order.
func TestDo(t *testing.T) {
	down := errors.New("down")
	for name, test := range map[string]struct {
		begun, moves bool
		err          error
		want         string
	}{
		"success":            {begun: true, want: "call answered tell told event follow"},
		"moved":              {begun: true, moves: true, want: "call answered tell told event follow woken"},
		"moved, no listener": {moves: true, want: "call answered tell told event follow woken"},
		"no listener":        {want: "call answered follow"},
		"failure":            {begun: true, err: down, want: "call uncertain"},
	} {
		t.Run(name, func(t *testing.T) {
			var did []string
			note := func(s string) { did = append(did, s) }
			log := eventlog.New([]eventlog.Observer{observer(note)}, nil, nil)
			j := journal.Journal{Log: log,
				Uncertain: func(error) { note("uncertain") },
				Answered:  func() { note("answered") },
				Tell:      func(*eventlog.Op, []storage.Record) { note("told") },
				Follow: func(moved []storage.Record) {
					if len(moved) > 0 {
						note("woken")
					}
				},
			}
			var op *eventlog.Op
			if test.begun {
				op = log.Begin(eventlog.None, "job")
			}
			err := j.Do(op, func() (moved []storage.Record, err error) {
				note("call")
				if test.moves {
					moved = make([]storage.Record, 1)
				}
				return moved, test.err
			}, func(op *eventlog.Op) {
				note("tell")
				op.Add("job", 1, eventlog.None, event.Event{Type: event.Enqueued})
			}, func() { note("follow") })
			if err != test.err || strings.Join(did, " ") != test.want {
				t.Errorf("did %q, want %q; error %v", did, test.want, err)
			}
			log.Begin(eventlog.None, "job").End() // the operation has ended, or this would wait
		})
	}
}

type observer func(string)

func (o observer) Observe(*event.Event) { o("event") }
