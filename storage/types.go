package storage

import "github.com/ojsengine/ojs/internal/versions"

// Takes reports whether a claim takes jobs of a type by its Types. The version is "" for
// a job without one.
func (c *Claim) Takes(jobType, version string) bool {
	for _, pattern := range c.Types {
		if versions.Takes(pattern, jobType, version) {
			return true
		}
	}
	return len(c.Types) == 0
}
