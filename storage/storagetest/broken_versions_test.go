package storagetest_test

import (
	"slices"
	"strings"

	"github.com/ojsengine/ojs/storage"
)

// changeTypes changes the types that claims name.
func changeTypes(f func(string) string) func(*broken) {
	return changeClaim(func(c *storage.Claim) {
		c.Types = slices.Clone(c.Types)
		for i, pattern := range c.Types {
			c.Types[i] = f(pattern)
		}
	})
}

// Storages that mistake versions.
var _ = register([]fault{
	{"versions ignored", "version-1 version-2 version-3", changeTypes(func(pattern string) string {
		name, _, _ := strings.Cut(pattern, "@")
		return name
	})},
	{"a type alone without versioned jobs", "version-1", changeTypes(func(pattern string) string {
		if strings.Contains(pattern, "@") {
			return pattern
		}
		return pattern + "@"
	})},
	{"bounds ignored", "version-2 version-3", changeTypes(func(pattern string) string {
		name, wanted, ranged := strings.Cut(pattern, "@")
		if !ranged || wanted == "" {
			return pattern
		}
		return name + "@*"
	})},
	{"versions lost", "version-1 version-2 version-3",
		changeInsert(func(r *storage.Record) { r.TypeVersion = "" })},
	{"a version in the name of its type", "version-3",
		changeInsert(func(r *storage.Record) {
			if r.TypeVersion != "" {
				r.Type, r.TypeVersion = r.Type+"@"+r.TypeVersion, ""
			}
		})},
})
