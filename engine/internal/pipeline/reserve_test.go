package pipeline_test

import (
	"testing"

	"github.com/ojsengine/ojs/engine/internal/pipeline"
)

// Slots are reserved for jobs that could all start.
func TestReserve(t *testing.T) {
	r := newRig(t, 3, 10, true)
	two, ok := r.Reserve(2)
	if _, more := r.Reserve(2); !ok || more {
		t.Errorf("2 of 3 slots are reserved: %t, 2 more: %t", ok, more)
	}
	one, ok := r.Reserve(1)
	if !ok || r.idle(0) {
		t.Errorf("the last slot is reserved: %t; idle: %t", ok, r.idle(0))
	}
	r.Available(1)
	if r.starts != 0 {
		t.Error("a claim begins for slots that are reserved")
	}
	r.runs(r.Reserved(&two, []int{1, 2}), 1)
	r.runs(r.entered(), 2)
	a := r.is(r.Reserved(&one, nil), pipeline.Step, 1)
	r.is(r.Stepped(&a, nil, true), pipeline.Leave, 0)
	if r.Busy() != 2 {
		t.Errorf("%d slots are busy, want 2", r.Busy())
	}
	if one, ok = r.Reserve(1); !ok {
		t.Error("the slot of a reservation without a job stays reserved")
	}
	r.Stop()
	if _, ok := r.Reserve(1); ok || r.Drained() {
		t.Error("a stopped pipeline reserves slots, or is drained with one that is")
	}
	if back := r.is(r.Reserved(&one, []int{3}), pipeline.Unclaim, 0); len(back.Jobs) != 1 {
		t.Errorf("%d jobs are given back after a stop, want 1", len(back.Jobs))
	}
}

// Without a local queue no slot is reserved.
func TestReserveNothing(t *testing.T) {
	if _, ok := newRig(t, 3, 0, true).Reserve(1); ok {
		t.Error("a slot is reserved though no job may be claimed ahead")
	}
}

// After an insert that has found other jobs ahead, slots are reserved again once a claim
// has found fewer jobs than it wanted.
func TestReserveBehind(t *testing.T) {
	r := newRig(t, 3, 10, true)
	one, ok := r.Reserve(1)
	if !ok {
		t.Fatal("no slot is reserved")
	}
	r.is(r.Reserved(&one, nil), pipeline.Leave, 0)
	if _, ok := r.Reserve(1); ok {
		t.Error("a slot is reserved though other jobs are ahead")
	}
	r.Available(10)
	a := r.is(r.entered(), pipeline.Step, 3)
	r.runs(r.Stepped(&a, []int{1, 2, 3}, false), 1)
	r.runs(r.entered(), 2)
	r.runs(r.entered(), 3)
	if _, ok := r.Reserve(1); ok {
		t.Error("a slot is reserved that is not free")
	}
	b := r.is(r.Dropped(), pipeline.Step, 1)
	r.is(r.Stepped(&b, nil, true), pipeline.Leave, 0)
	if _, ok := r.Reserve(1); !ok {
		t.Error("no slot is reserved though a claim was empty")
	}
}
