package storage

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
)

// ValueStore keeps small values by their keys: what engines on the storage tell each
// other that is about no job, such as which processes there are and what they have
// counted. A durable storage keeps the values as it keeps jobs [values-6].
type ValueStore interface {
	// PutValues stores the values, all of them or none [values-1, values-5, values-8].
	// Each replaces the one that its key has; one without Data deletes it [values-1]. It
	// deletes some of the values that have expired, more than it stores, so that these do
	// not pile up [values-3].
	PutValues(ctx context.Context, now time.Time, values []Value) error

	// Values returns up to limit values whose keys start with the prefix and come after
	// the key given, in the order of their bytes [values-2]. A limit of 0 or more than
	// 1000 is 1000 [values-4]. None are left when it returns none [values-2]. A value
	// that has expired by now is not there [values-3].
	Values(ctx context.Context, now time.Time, prefix, after string, limit int) ([]Value, error)
}

// Value is a small value that is stored by a key.
type Value struct {
	// Key is 1 to 255 bytes of printable ASCII [values-5]. Another one fails PutValues
	// with an error that is ojs.ErrInvalid, and nothing is stored [values-5].
	Key     string
	Data    []byte    // at most some hundred KiB [values-1]
	Expires time.Time // when it ceases to exist; zero: never [values-3]
}

// MaxValues is the largest limit of Values.
const MaxValues = 1000

// maxKey is the longest key, in bytes.
const maxKey = 255

// CheckValues refuses values whose keys are none [values-5].
func CheckValues(values []Value) error {
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

// Expired reports whether the value has ceased to exist [values-3].
func (v *Value) Expired(now time.Time) bool { return !v.Expires.IsZero() && !now.Before(v.Expires) }
