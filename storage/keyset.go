package storage

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
)

// KeySet is a set of keys that lives on from claim to claim, so that a claim costs the
// same however many keys are in it: a storage may keep what it has worked out for the
// set, and bring that up to date with Changes [claim-14]. Sets are told apart by their
// pointers [claim-14].
//
// Only its owner changes a set, and not during a call that it is given to. A storage
// reads it during that call only, and may keep the pointer. The nil set is empty and read
// only [claim-11]. A KeySet encodes to JSON as the list of its keys.
type KeySet struct {
	keys  map[string]struct{}
	log   []string // keys that have come or gone
	first uint64   // the moment of log[0]
}

// Keys returns a new set.
func Keys(keys ...string) *KeySet {
	s := new(KeySet)
	for _, key := range keys {
		s.Add(key)
	}
	return s
}

// Add puts a key into the set.
func (s *KeySet) Add(key string) {
	if s.Has(key) {
		return
	}
	if s.keys == nil {
		s.keys = make(map[string]struct{})
	}
	s.keys[key] = struct{}{}
	s.changed(key)
}

// Remove takes a key out of the set.
func (s *KeySet) Remove(key string) {
	if s.Has(key) {
		delete(s.keys, key)
		s.changed(key)
	}
}

// changed notes a change. Of many it forgets the older half: a storage that has missed so
// many reads the set instead.
func (s *KeySet) changed(key string) {
	s.log = append(s.log, key)
	if n := len(s.log); n > 1024+2*len(s.keys) {
		s.first += uint64(n / 2)
		s.log = slices.Clone(s.log[n/2:])
	}
}

// Has reports whether a key is in the set.
func (s *KeySet) Has(key string) bool {
	if s == nil {
		return false
	}
	_, ok := s.keys[key]
	return ok
}

// Len returns the number of keys.
func (s *KeySet) Len() int {
	if s == nil {
		return 0
	}
	return len(s.keys)
}

// All returns the keys, in no order.
func (s *KeySet) All() iter.Seq[string] {
	if s == nil {
		return func(func(string) bool) {}
	}
	return maps.Keys(s.keys)
}

// Changes returns the keys that have come or gone since a moment that Changes returned, 0
// being when the set was empty and new, and this moment. Has says which of the two; a key
// may be in the list twice. ok is false if the set does not remember as far back. The
// list is valid until the set changes.
func (s *KeySet) Changes(since uint64) (keys []string, now uint64, ok bool) {
	if s == nil {
		return nil, 0, since == 0
	}
	now = s.first + uint64(len(s.log))
	if since < s.first || since > now {
		return nil, now, false
	}
	return s.log[since-s.first:], now, true
}

// MarshalJSON implements json.Marshaler.
func (s *KeySet) MarshalJSON() ([]byte, error) {
	if s == nil {
		return []byte("null"), nil
	}
	return json.Marshal(append([]string{}, slices.Sorted(s.All())...))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *KeySet) UnmarshalJSON(b []byte) error {
	var keys []string
	if err := json.Unmarshal(b, &keys); err != nil {
		return err
	}
	*s = *Keys(keys...)
	return nil
}
