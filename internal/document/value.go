package document

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// Value is a small value that is stored by a key.
type Value struct {
	// Key is 1 to 255 bytes of printable ASCII. Another one fails PutValues
	// with an error that is ojs.ErrInvalid, and nothing is stored.
	Key     string
	Data    []byte    // at most some hundred KiB
	Expires time.Time // when it ceases to exist; zero: never

	version uint64 // of EachValue
}

// maxKey is the longest key, in bytes.
const maxKey = 255

// checkValues refuses values whose keys are none.
func checkValues(values []Value) error {
	for i := range values {
		key := values[i].Key
		odd := strings.IndexFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
		if key == "" || len(key) > maxKey || odd >= 0 {
			return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "key",
				Reason: fmt.Sprintf("%q is not 1 to %d bytes of printable ASCII", key, maxKey)}
		}
	}
	return nil
}

// Expired reports whether the value has ceased to exist.
func (v *Value) Expired(now time.Time) bool { return !v.Expires.IsZero() && !now.Before(v.Expires) }

// PutValues stores values, all of them or none. Each replaces the one of its key; one
// without Data deletes it. Some of the values that have expired are deleted, more than
// are stored, so that these do not pile up.
func (s Store) PutValues(ctx context.Context, now time.Time, values []Value) error {
	if err := checkValues(values); err != nil {
		return err
	}
	expired, _, err := s.s.DueDocuments(ctx, storage.KindValue, now, nil, 2*len(values)+10)
	if err != nil {
		return err
	}
	places := make(map[string]int, len(values))
	var list []storage.Document
	put := func(d storage.Document) {
		place, there := places[d.Name]
		if !there {
			place = len(list)
			places[d.Name], list = place, append(list, d)
		}
		list[place] = d
	}
	for _, d := range expired {
		put(storage.Document{Name: d.Name, Version: d.Version})
	}
	for _, v := range values {
		put(storage.Document{Name: v.Key, Version: storage.AnyVersion, Due: v.Expires, Data: v.Data})
	}
	_, err = s.s.PutDocuments(ctx, storage.KindValue, list)
	return err
}

// Swap stores a value in the place of a version, 0 standing for none. It returns the new
// version, or 0 if the stored value has another one. A new value takes the place of some
// that have expired.
func (s Store) Swap(ctx context.Context, now time.Time, v Value, version uint64) (uint64, error) {
	if err := checkValues([]Value{v}); err != nil {
		return 0, err
	}
	list := []storage.Document{{Name: v.Key, Version: version, Due: v.Expires, Data: v.Data}}
	if version == 0 {
		expired, _, err := s.s.DueDocuments(ctx, storage.KindValue, now, nil, 10)
		if err != nil {
			return 0, err
		}
		for _, d := range expired {
			if d.Name != v.Key {
				list = append(list, storage.Document{Name: d.Name, Version: d.Version})
			}
		}
	}
	versions, err := s.s.PutDocuments(ctx, storage.KindValue, list)
	if err != nil {
		return 0, err
	}
	return versions[0], nil
}

// Merge stores each value whose key has none, and deletes others, each if it is as
// EachValue has yielded it: all in one step.
func (s Store) Merge(ctx context.Context, made, others []Value) error {
	if err := checkValues(made); err != nil {
		return err
	}
	var list []storage.Document
	for _, v := range made {
		list = append(list, storage.Document{Name: v.Key, Due: v.Expires, Data: v.Data})
	}
	for _, v := range others {
		list = append(list, storage.Document{Name: v.Key, Version: v.version})
	}
	_, err := s.s.PutDocuments(ctx, storage.KindValue, list)
	return err
}

// Values returns up to limit of the values that EachValue yields. A limit of 0 or more
// than storage.MaxDocuments is that.
func (s Store) Values(
	ctx context.Context, now time.Time, prefix, after string, limit int,
) (list []Value, err error) {
	q := storage.DocumentQuery{Prefix: prefix, After: after, Limit: limit}
	for v, err := range s.EachValue(ctx, now, q) {
		if err != nil {
			return nil, err
		}
		if list = append(list, v); len(list) == q.Most() {
			break
		}
	}
	return list, nil
}

// Value returns the value of a key, and whether there is one.
func (s Store) Value(ctx context.Context, now time.Time, key string) (v Value, ok bool, err error) {
	list, err := s.Values(ctx, now, key, "", 1)
	if err != nil || len(list) == 0 || list[0].Key != key {
		return Value{}, false, err
	}
	return list[0], true, nil
}

// EachValue yields the values that q selects and that have not expired, in the order of
// their keys. It reads as many at once as q.Limit says. An error ends it.
func (s Store) EachValue(
	ctx context.Context, now time.Time, q storage.DocumentQuery,
) iter.Seq2[Value, error] {
	return func(yield func(Value, error) bool) {
		for {
			page, err := s.s.Documents(ctx, storage.KindValue, q)
			if err != nil {
				yield(Value{}, err)
				return
			}
			for _, d := range page {
				q.After = d.Name
				v := Value{Key: d.Name, Data: d.Data, Expires: d.Due, version: d.Version}
				if !v.Expired(now) && !yield(v, nil) {
					return
				}
			}
			if len(page) < q.Most() {
				return
			}
		}
	}
}
