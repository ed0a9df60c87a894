package main

// helpers is the file that is added to a target: its package's name and the environment
// variable are left out.
const helpers = `package %s

import (
	mutantcmp "cmp"
	mutantos "os"
	mutantstrconv "strconv"
	mutantatomic "sync/atomic"
	mutanttime "time"
)

// mutantActive is the mutant that is on; 0: none, but those that are reached are noted;
// -1: none.
var mutantActive = func() int {
	if n, err := mutantstrconv.Atoi(mutantos.Getenv(%[2]q)); err == nil {
		return n
	}
	return -1
}()

var (
	mutantSeen [1 << 16]mutantatomic.Bool
	mutantFile = func() *mutantos.File {
		f, _ := mutantos.OpenFile(mutantos.Getenv("%[2]s_REACHED"), mutantos.O_CREATE|mutantos.O_APPEND|mutantos.O_WRONLY, 0o600)
		return f
	}()
)

func mutantOn(id int) bool {
	if mutantActive == 0 && id > 0 && mutantSeen[id].CompareAndSwap(false, true) && mutantFile != nil {
		_, _ = mutantFile.WriteString(mutantstrconv.Itoa(id) + "\n")
	}
	return mutantActive == id
}

// mutantPanics ends the process if a function panics that locks a mutex.
func mutantPanics() {
	if r := recover(); r != nil {
		println("panic: a locked section")
		mutantos.Exit(2)
	}
}

func mutantCond[B ~bool](t, f int, b B) B {
	if mutantOn(t) {
		return true
	}
	return b && !B(mutantOn(f))
}

func mutantZero[T any](id int, v T) (zero T) {
	if mutantOn(id) {
		return zero
	}
	return v
}

func mutantPart[T any](id int, old, v T) T {
	if mutantOn(id) {
		return old
	}
	return v
}

func mutantOther[S ~string](id int, s S) S {
	if mutantOn(id) {
		return "none of them"
	}
	return s
}

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float64
}

func mutantMore[N mutantNumber](id int, n N) N {
	if mutantOn(id) {
		return n + 1
	}
	return n
}

func mutantAdd[N mutantNumber](id int, a, b N) N {
	if mutantOn(id) {
		return a - b
	}
	return a + b
}

func mutantSub[N mutantNumber](id int, a, b N) N {
	if mutantOn(id) {
		return a + b
	}
	return a - b
}

func mutantLt[T mutantcmp.Ordered](id int, a, b T) bool { return a < b || mutantOn(id) && a == b }
func mutantGt[T mutantcmp.Ordered](id int, a, b T) bool { return a > b || mutantOn(id) && a == b }
func mutantLe[T mutantcmp.Ordered](id int, a, b T) bool { return a <= b && !(mutantOn(id) && a == b) }
func mutantGe[T mutantcmp.Ordered](id int, a, b T) bool { return a >= b && !(mutantOn(id) && a == b) }

func mutantMin[T mutantcmp.Ordered](id int, a, b T) T {
	if mutantOn(id) {
		return max(a, b)
	}
	return min(a, b)
}

func mutantMax[T mutantcmp.Ordered](id int, a, b T) T {
	if mutantOn(id) {
		return min(a, b)
	}
	return max(a, b)
}

func mutantBefore(id int, a, b mutanttime.Time) bool { return a.Before(b) || mutantOn(id) && a.Equal(b) }
func mutantAfter(id int, a, b mutanttime.Time) bool  { return a.After(b) || mutantOn(id) && a.Equal(b) }
`
