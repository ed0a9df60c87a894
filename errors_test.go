package ojs_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

func TestErrors(t *testing.T) {
	sentinels := []error{
		ojs.ErrInvalid, ojs.ErrDuplicate, ojs.ErrTransition, ojs.ErrNotFound, ojs.ErrPruned, ojs.ErrClosed,
		ojs.ErrUnsupported,
		ojs.ErrCancelled, ojs.ErrTimeout, ojs.ErrLeaseLost, ojs.ErrShutdown,
	}
	for _, a := range sentinels {
		if !strings.HasPrefix(a.Error(), "ojs: ") {
			t.Errorf("message %q", a)
		}
		for _, b := range sentinels {
			if errors.Is(fmt.Errorf("x: %w", a), b) != (a == b) {
				t.Errorf("%q is %q: %v", a, b, a != b)
			}
		}
	}
	last := &ojs.Failure{Type: "a.b", Message: "broke"}
	for _, tt := range []struct {
		name string
		err  error
		is   error
		as   func(error) bool
		want string
	}{
		{"InvalidError", &ojs.InvalidError{Code: "c", Field: "queue", Reason: "is odd"}, ojs.ErrInvalid,
			as[*ojs.InvalidError],
			"ojs: invalid queue: is odd"},
		{"DuplicateError", &ojs.DuplicateError{ID: "7", State: "active"}, ojs.ErrDuplicate,
			as[*ojs.DuplicateError],
			"ojs: duplicate: job 7 is active"},
		{"TransitionError", &ojs.TransitionError{ID: "7", From: "completed", To: "active"}, ojs.ErrTransition,
			as[*ojs.TransitionError],
			"ojs: not in this state: job 7 is completed and cannot become active"},
		{"TransitionError of a deletion", &ojs.TransitionError{ID: "7", From: "active", To: "deleted"},
			ojs.ErrTransition, as[*ojs.TransitionError],
			"ojs: not in this state: job 7 is active and cannot be deleted"},
		{"TransitionError of a call", &ojs.TransitionError{ID: "7", From: "available", To: "available",
			Allowed: "only a dead letter can be replayed"},
			ojs.ErrTransition, as[*ojs.TransitionError],
			"ojs: not in this state: job 7 is available; only a dead letter can be replayed"},
		{"QueueError of a full queue", &ojs.QueueError{Queue: "q", MaxDepth: 1, Err: ojs.ErrQueueFull},
			ojs.ErrQueueFull, as[*ojs.QueueError],
			`ojs: queue full: "q" is at its maximum depth of 1`},
		{"EndedError", &ojs.EndedError{ID: "7", State: "cancelled"}, nil, as[*ojs.EndedError],
			"ojs: job 7 ended: cancelled"},
		{"EndedError of a dead letter", &ojs.EndedError{ID: "7", State: "discarded", DeadLettered: true,
			Last: last}, nil, as[*ojs.EndedError],
			"ojs: job 7 ended: discarded, dead-lettered: a.b: broke"},
		{"RetryAfterError", ojs.RetryAfter(1, io.EOF), io.EOF, as[*ojs.RetryAfterError], "EOF"},
		{"SnoozeError", ojs.Snooze(1e9), nil, as[*ojs.SnoozeError], "ojs: snoozed for 1s"},
		{"Error", ojs.Errorf("a.b", "x: %w", io.EOF), io.EOF, as[*ojs.Error], "x: EOF"},
	} {
		t.Run("P0.10 "+tt.name, func(t *testing.T) {
			wrapped := fmt.Errorf("x: %w", errors.Join(errors.New("y"), tt.err))
			for _, s := range append(sentinels, io.EOF) {
				if errors.Is(wrapped, s) != (s == tt.is) {
					t.Errorf("is %q: %v", s, s != tt.is)
				}
			}
			if !tt.as(wrapped) || tt.as(io.EOF) {
				t.Error("errors.As does not find it, or everywhere")
			}
			if tt.err.Error() != tt.want {
				t.Errorf("message %q, want %q", tt.err, tt.want)
			}
		})
	}
}

func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}
