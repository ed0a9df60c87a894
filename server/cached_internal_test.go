package server

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/internal/test/pace"
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

// A value is never older than twice its age: a caller waits for the one who reads it.
func TestCachedIsNeverMuchTooOld(t *testing.T) {
	v := cached[int]{age: 3 * time.Second} // F184
	at := time.Unix(1, 0)
	if n, err := v.get(at, false, func() (int, error) { return 1, nil }); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	at = at.Add(2 * v.age)
	got := make(chan int, 1)
	n, err := v.get(at, false, func() (int, error) {
		go func() {
			n, _ := v.get(at, false, func() (int, error) { return 3, nil })
			got <- n
		}()
		pace.Until(t, "another caller has a value, or waits for it", func() bool {
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			return len(got) > 0 || strings.Contains(string(stacks), "[sync.Mutex.Lock")
		})
		return 2, nil
	})
	if other := <-got; n != 2 || err != nil || other != 2 {
		t.Errorf("read %d, %v; another caller has got %d", n, err, other)
	}
}
