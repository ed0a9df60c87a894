package storage

import "github.com/ojsengine/ojs"

// Share is how many jobs of the key of f have a place in one round: the weight, and 1 if
// that is less.
func Share(f ojs.Fairness) int { return max(f.Weight, 1) }
