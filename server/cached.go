package server

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"
)

// cached is a value of the storage that is read again when it is old. While one caller
// reads it, the others go by the old value, or wait if that is of twice the age.
type cached[T any] struct {
	known   atomic.Pointer[known[T]] // nil: it has not been read
	reading sync.Mutex               // held while it is read
	age     time.Duration            // from which it is old; 0: maxAge
}

type known[T any] struct {
	value T
	at    time.Time
}

// maxAge is how long a server goes by what another has changed.
const maxAge = time.Second

// get returns the value. fresh reads it in any case.
func (v *cached[T]) get(now time.Time, fresh bool, read func() (T, error)) (T, error) {
	age := cmp.Or(v.age, maxAge)
	since := func(k *known[T]) time.Duration { return now.Sub(k.at).Abs() }
	isYoung := func(k *known[T]) bool { return !fresh && k != nil && since(k) < age }
	k := v.known.Load()
	switch {
	case isYoung(k):
		return k.value, nil
	case fresh || k == nil || since(k) >= 2*age:
		v.reading.Lock()
	case !v.reading.TryLock():
		return k.value, nil
	}
	defer v.reading.Unlock()
	if k = v.known.Load(); isYoung(k) {
		return k.value, nil
	}
	value, err := read()
	if err == nil {
		v.known.Store(&known[T]{value, now})
	}
	return value, err
}

// forget makes the next get read the value.
func (v *cached[T]) forget() { v.known.Store(nil) }
