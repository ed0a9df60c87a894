// Package labels bounds how many values a label of a metric has.
package labels

import "sync"

// Other is the label of the names beyond the first.
const Other = "other"

// Names gives the first names their own label. It is safe for concurrent use.
type Names struct {
	most int

	mu   sync.Mutex // guards seen
	seen map[string]bool
}

// New returns Names with labels for so many names.
func New(most int) *Names { return &Names{most: most, seen: make(map[string]bool)} }

// Of returns the label of a name: the name itself if it is among the first, or Other.
func (n *Names) Of(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.seen[name] {
		if len(n.seen) >= n.most {
			return Other
		}
		n.seen[name] = true
	}
	return name
}
