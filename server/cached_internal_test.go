package server

import (
	"testing"
	"time"
)

// While one caller reads an old value again, the others go by the old one.
func TestCachedWhileItIsRead(t *testing.T) {
	var v cached[int]
	at := time.Unix(1, 0)
	get := func(read func() (int, error)) int {
		n, err := v.get(at, false, read)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	never := func() (int, error) { t.Error("read again"); return 0, nil }
	if n := get(func() (int, error) { return 1, nil }); n != 1 {
		t.Error(n)
	}
	at = at.Add(maxAge)
	n := get(func() (int, error) {
		if n := get(never); n != 1 {
			t.Error(n)
		}
		return 2, nil
	})
	if n != 2 || get(never) != 2 {
		t.Error(n)
	}
}
