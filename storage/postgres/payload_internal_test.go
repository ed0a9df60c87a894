package postgres

import (
	"reflect"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// A notice comes back from its payloads, but for which records were set aside: listeners
// look at everything then.
func TestPayloads(t *testing.T) {
	taken := storage.Taken{Held: storage.Held{ID: "a", Version: 7}, Cause: ojs.ErrCancelled}
	for name, tt := range map[string]struct{ sent, heard storage.Notice }{
		"available": {storage.Notice{Available: true}, storage.Notice{Available: true}},
		"due":       {storage.Notice{Due: time.Unix(5, 6)}, storage.Notice{Due: time.Unix(5, 6).UTC()}},
		"opens":     {storage.Notice{Opens: time.Unix(5, 6)}, storage.Notice{Opens: time.Unix(5, 6).UTC()}},
		"crons":     {storage.Notice{Crons: true}, storage.Notice{Crons: true}},
		"values":    {storage.Notice{Values: true}, storage.Notice{Values: true}},
		"taken": {storage.Notice{Taken: []storage.Taken{taken}},
			storage.Notice{Taken: []storage.Taken{taken}}},
		"ended": {storage.Notice{Ended: []string{"a", "b"}}, storage.Notice{Ended: []string{"a", "b"}}},
		"set aside": {storage.Notice{Quarantined: []storage.Quarantined{{Key: "1"}}},
			storage.Notice{Everything: true}},
	} {
		list := payloads("me", &tt.sent)
		if len(list) != 1 {
			t.Fatalf("%s: %d payloads", name, len(list))
		}
		if from, heard := parse(list[0]); from != "me" || !reflect.DeepEqual(heard, tt.heard) {
			t.Errorf("%s: heard %+v from %q", name, heard, from)
		}
	}
}

// Of several calls, other processes hear all that they may have to do, and the earliest
// times.
func TestOutbox(t *testing.T) {
	early, late := time.Unix(5, 0), time.Unix(6, 0)
	for name, list := range map[string][]storage.Notice{
		"the earlier first": {
			{Due: early, Opens: early, Available: true}, {Due: late, Opens: late, Values: true},
		},
		"the later first": {
			{Due: late, Opens: late, Crons: true}, {Due: early, Opens: early, Everything: true},
		},
		"ends": {{Ended: []string{"a"}, Due: early}, {Ended: []string{"b"}, Opens: early},
			{Taken: []storage.Taken{{Cause: ojs.ErrReplaced}}}},
	} {
		o := outbox{signal: make(chan struct{}, 1)}
		var want storage.Notice
		for i := range list {
			n := &list[i]
			o.add(n)
			want.Available, want.Everything = want.Available || n.Available, want.Everything || n.Everything
			want.Crons, want.Values = want.Crons || n.Crons, want.Values || n.Values
			want.Ended, want.Taken = append(want.Ended, n.Ended...), append(want.Taken, n.Taken...)
		}
		want.Due, want.Opens = early, early
		if got := o.take(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if got := o.take(); !got.Empty() {
			t.Errorf("%s: %+v is told twice", name, got)
		}
	}
}
