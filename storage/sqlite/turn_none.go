//go:build !unix || aix || solaris

package sqlite

// Without locks of this kind those who wait ask often, and are not in order.

func (t *turn) lock() bool { return true }

func (t *turn) unlock() {}
