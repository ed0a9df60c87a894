// Package backoff knows the names of the backoff strategies that are not the standard's.
// The root package and package policy both ask it: the root, which decodes policies,
// cannot import policy, which computes delays.
package backoff

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// MaxName is how many bytes a qualified name may have.
const MaxName = 64

// builtin are the names of package policy's own strategies.
var builtin = []string{
	"ojs:asynq", "ojs:celery", "ojs:faktory", "ojs:graphile", "ojs:immediate", "ojs:oban", "ojs:ratchet",
	"ojs:river", "ojs:sidekiq",
}

var (
	mu         sync.RWMutex           // guards registered
	registered = make(map[string]any) // name -> the function, whose type is policy's
)

// Builtin lists the names that need no registration.
func Builtin() []string { return slices.Clone(builtin) }

// Qualified reports whether a name has the form "vendor:name". Both parts are lower-case
// letters, digits, '.', '_' and '-', the first a letter; the whole has at most MaxName
// bytes.
func Qualified(name string) bool {
	vendor, rest, ok := strings.Cut(name, ":")
	return ok && len(name) <= MaxName && part(vendor) && part(rest)
}

func part(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z'
		if !letter && (i == 0 || !('0' <= c && c <= '9' || c == '.' || c == '_' || c == '-')) {
			return false
		}
	}
	return s != ""
}

// Register makes a qualified name known. The vendor "ojs" is taken.
func Register(name string, f any) error {
	switch {
	case !Qualified(name):
		return fmt.Errorf("%q is not of the form vendor:name", name)
	case strings.HasPrefix(name, "ojs:"):
		return fmt.Errorf("%q: the vendor ojs is reserved", name)
	}
	mu.Lock()
	defer mu.Unlock()
	if _, twice := registered[name]; twice {
		return fmt.Errorf("%q is registered twice", name)
	}
	registered[name] = f
	return nil
}

// Lookup returns what a name was registered with.
func Lookup(name string) (f any, ok bool) {
	mu.RLock()
	defer mu.RUnlock()
	f, ok = registered[name]
	return f, ok
}

// Unknown returns why this program cannot compute a strategy of that name; "" if it can.
// It says nothing of names that are not qualified.
func Unknown(name string) (why string) {
	if !Qualified(name) || slices.Contains(builtin, name) {
		return ""
	}
	if _, ok := Lookup(name); ok {
		return ""
	}
	return fmt.Sprintf("%q is not registered in this program", name)
}
