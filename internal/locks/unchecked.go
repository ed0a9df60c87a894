//go:build !ojslocks

package locks

import "sync"

// Mutex is a sync.Mutex.
type Mutex = sync.Mutex

// Taking is called before a lock is taken that is no Mutex.
func Taking(lock any) {}

// Freed is called after such a lock is given back.
func Freed(lock any) {}

var _ = order // of the other build
