package pgtest

import (
	"errors"
	"testing"
	"time"
)

// A server that does not start any more can be closed.
func TestCloseAfterFailure(t *testing.T) {
	s, err := Start()
	if errors.Is(err, ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Down(); err != nil {
		t.Fatal(err)
	}
	s.settings = []string{"no_such=setting"}
	if err := s.Up(); err == nil {
		t.Error("it has started with a setting that does not exist")
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Close does not return")
	}
}
