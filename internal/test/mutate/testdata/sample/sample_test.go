package sample

import (
	"testing"
	"time"
)

func TestSample(t *testing.T) {
	at := time.Unix(7, 0)
	l := New(2)
	if l.Add("", at) == nil {
		t.Error("an event without a kind")
	}
	for i := range 3 {
		if err := l.Add("a", at); (err != nil) != (i == 2) {
			t.Errorf("event %d: %v", i, err)
		}
	}
	if l.Add("debug", at) != nil || l.Add("b", at.Add(1)) != nil {
		t.Error("not noted")
	}
	if n := l.Sum(1, "a", "debug", "b"); n != 2 {
		t.Errorf("1 and 1 are %d", n)
	}
	if n := l.Sum(5, "a", "b"); n != 3 {
		t.Errorf("2 and 1 are %d", n)
	}
	if k, ok := l.Since(at.Add(1)); k != "b" || !ok {
		t.Errorf("the last is %q, %v", k, ok)
	}
	if k, ok := l.Since(at.Add(2)); k != "" || ok {
		t.Errorf("then the last is %q, %v", k, ok)
	}
	if Abs(3) != 3 || Abs(-3) != 3 || Abs(0) != 0 {
		t.Error("not absolute")
	}
}

func TestLocks(t *testing.T) {
	l := New(1)
	calls := 0
	l.added = func() {
		if calls++; l.mu.TryLock() {
			t.Error("added without the lock")
			l.mu.Unlock()
		}
	}
	if err := l.Add("a", time.Time{}); err != nil || calls != 1 {
		t.Error(err, calls)
	}
}

func TestInside(t *testing.T) {
	if l := New(1); l.Add("secret", time.Unix(1, 0)) != nil || len(l.kinds) != 0 {
		t.Error("a secret was noted")
	}
}
