package jsonvalue

import (
	"iter"
	"strconv"
)

// At yields the values at a path below v, which are several if names have dots: a dot of
// the path may be between two names, or in one. A name is that of a member, or the index
// of an element.
func At(v any, path string) iter.Seq[any] {
	return func(yield func(any) bool) { at(v, path, yield) }
}

func at(v any, path string, yield func(any) bool) bool {
	for end := 0; end <= len(path); end++ {
		if end < len(path) && path[end] != '.' {
			continue
		}
		var below any
		there := false
		switch v := v.(type) {
		case map[string]any:
			below, there = v[path[:end]]
		case []any:
			i, err := strconv.Atoi(path[:end])
			if there = err == nil && i >= 0 && i < len(v); there {
				below = v[i]
			}
		}
		if there && (end == len(path) && !yield(below) ||
			end < len(path) && !at(below, path[end+1:], yield)) {
			return false
		}
	}
	return true
}
