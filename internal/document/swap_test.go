package document_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage/memory"
)

// A swap needs the stored version. A new value takes the place of one that has expired.
func TestSwap(t *testing.T) {
	s, now := document.Of(memory.New()), time.Now()
	old := document.Value{Key: "old", Data: []byte("x"), Expires: now}
	if err := s.PutValues(t.Context(), now.Add(-time.Second), []document.Value{old}); err != nil {
		t.Fatal(err)
	}
	swap := func(data string, version uint64) uint64 {
		t.Helper()
		got, err := s.Swap(t.Context(), now, document.Value{Key: "k", Data: []byte(data)}, version)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := swap("1", 0)
	if swap("2", 0) != 0 || swap("2", first+100) != 0 {
		t.Error("another version was replaced")
	}
	if second := swap("3", first); second <= first {
		t.Errorf("version %d follows %d", second, first)
	}
	if v, there, err := s.Value(t.Context(), now, "k"); err != nil || !there || string(v.Data) != "3" {
		t.Errorf("stored is %q, %v, %v", v.Data, there, err)
	}
	if v, there, err := s.Value(t.Context(), now.Add(-time.Second), "old"); err != nil || there {
		t.Errorf("an expired value is there: %v, %v", v, err)
	}
}
