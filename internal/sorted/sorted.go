// Package sorted has a map in the order of its keys, for the writes of a transaction and
// for a store in memory.
package sorted

import (
	"cmp"
	"iter"
	"slices"
	"sort"
)

// Map is a list of pages, each a sorted list of keys. Its zero value is empty. A copy by
// Clone shares its pages until one of them is written.
type Map[K cmp.Ordered, V any] struct {
	pages []*page[K, V]
	n     int
}

type page[K cmp.Ordered, V any] struct {
	keys   []K
	values []V
	owner  *Map[K, V] // writes in place; any other map copies the page first
}

const maxPage = 256

// Clone returns a copy. The map that is copied must not be written after that.
func (m *Map[K, V]) Clone() *Map[K, V] { return &Map[K, V]{slices.Clone(m.pages), m.n} }

// Len returns the number of keys.
func (m *Map[K, V]) Len() int { return m.n }

// find returns where a key is or would be.
func (m *Map[K, V]) find(key K) (p, i int, there bool) {
	p = max(sort.Search(len(m.pages), func(p int) bool { return m.pages[p].keys[0] > key })-1, 0)
	if p < len(m.pages) {
		i, there = slices.BinarySearch(m.pages[p].keys, key)
	}
	return p, i, there
}

// Get returns the value of a key.
func (m *Map[K, V]) Get(key K) (value V, there bool) {
	p, i, there := m.find(key)
	if there {
		value = m.pages[p].values[i]
	}
	return value, there
}

// own returns a page that may be written.
func (m *Map[K, V]) own(p int) *page[K, V] {
	if m.pages[p].owner != m {
		m.pages[p] = &page[K, V]{slices.Clone(m.pages[p].keys), slices.Clone(m.pages[p].values), m}
	}
	return m.pages[p]
}

// Set gives a key a value, and returns the one before.
func (m *Map[K, V]) Set(key K, value V) (was V, had bool) {
	if len(m.pages) == 0 {
		m.pages, m.n = append(m.pages, &page[K, V]{[]K{key}, []V{value}, m}), 1
		return was, false
	}
	p, i, had := m.find(key)
	own := m.own(p)
	if had {
		was, own.values[i] = own.values[i], value
		return was, true
	}
	m.n++
	own.keys, own.values = slices.Insert(own.keys, i, key), slices.Insert(own.values, i, value)
	if half := len(own.keys) / 2; len(own.keys) > maxPage {
		next := &page[K, V]{slices.Clone(own.keys[half:]), slices.Clone(own.values[half:]), m}
		clear(own.values[half:])
		own.keys, own.values = own.keys[:half], own.values[:half]
		m.pages = slices.Insert(m.pages, p+1, next)
	}
	return was, false
}

// Delete removes a key.
func (m *Map[K, V]) Delete(key K) {
	p, i, there := m.find(key)
	if !there {
		return
	}
	m.n--
	own := m.own(p)
	own.keys, own.values = slices.Delete(own.keys, i, i+1), slices.Delete(own.values, i, i+1)
	if len(own.keys) == 0 {
		m.pages = slices.Delete(m.pages, p, p+1)
	}
}

// From yields the keys from one on, with their values. The map must not change meanwhile.
func (m *Map[K, V]) From(key K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		p, i, _ := m.find(key)
		for ; p < len(m.pages); p++ {
			for ; i < len(m.pages[p].keys); i++ {
				if !yield(m.pages[p].keys[i], m.pages[p].values[i]) {
					return
				}
			}
			i = 0
		}
	}
}

// Before yields the keys before one, the last first, with their values. The map must not
// change meanwhile.
func (m *Map[K, V]) Before(key K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		p, i, _ := m.find(key)
		for ; p >= 0 && p < len(m.pages); p-- {
			for i--; i >= 0; i-- {
				if !yield(m.pages[p].keys[i], m.pages[p].values[i]) {
					return
				}
			}
			if p > 0 {
				i = len(m.pages[p-1].keys)
			}
		}
	}
}
