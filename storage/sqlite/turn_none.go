//go:build !unix || aix || solaris

package sqlite

import "os"

// Without locks of this kind those who wait ask often, and are not in order.

func (t *turn) unlock() {}

// writable does not know.
func writable(string) error { return nil }

// lockFile is not able to.
func lockFile(*os.File, bool) (got, able bool) { return false, false }
