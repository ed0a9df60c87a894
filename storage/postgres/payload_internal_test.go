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
