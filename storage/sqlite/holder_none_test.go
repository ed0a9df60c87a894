//go:build !unix || aix || solaris

package sqlite_test

func holdAsChild() {}
