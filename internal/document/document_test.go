package document_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage/memory"
)

// A key is 1 to 255 bytes of printable ASCII, or nothing is stored.
func TestKeys(t *testing.T) {
	s, now := document.Of(memory.New()), time.Now()
	put := func(keys ...string) error {
		var values []document.Value
		for _, key := range keys {
			values = append(values, document.Value{Key: key, Data: []byte("x")})
		}
		return s.PutValues(t.Context(), now, values)
	}
	for _, key := range []string{"", "é", "a\nb", "a\x00", "\x7f", strings.Repeat("x", 256)} {
		if err := put("good", key); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("PutValues of %q: %v", key, err)
		}
	}
	if list, err := s.Values(t.Context(), now, "", "", 0); err != nil || len(list) != 0 {
		t.Errorf("stored are %v, %v", list, err)
	}
	if err := put(strings.Repeat("~", 255), " "); err != nil {
		t.Error(err)
	}
}

// A page of values is full although others on the way have expired.
func TestPagesPassOverExpiredValues(t *testing.T) {
	s, now := document.Of(memory.New()), time.Now()
	values := []document.Value{{Key: "z", Data: []byte("x")}}
	for _, key := range []string{"a", "b", "c"} {
		values = append(values, document.Value{Key: key, Data: []byte("x"), Expires: now})
	}
	if err := s.PutValues(t.Context(), now, values); err != nil {
		t.Fatal(err)
	}
	list, err := s.Values(t.Context(), now, "", "", 1)
	if err != nil || len(list) != 1 || list[0].Key != "z" {
		t.Errorf("the first value is %v, %v", list, err)
	}
}
