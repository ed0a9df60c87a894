package storagetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs/internal/document"
)

// worldValues are the values that the storage of a world has to have.
type worldValues struct {
	byKey map[string]document.Value
	maybe map[string]bool // keys of values that had expired when others were put: they may be gone
}

var valueKeys = []string{"a", "a/", "a/1", "a/10", "a/2", "b", "b/1", "c~"}

// putValues stores some values, or deletes them, in one call.
func (w *world) putValues(t *rapid.T) randomOp {
	var list []document.Value
	for range 1 + dice(t, 4) {
		v := document.Value{Key: pick(t, valueKeys...), Data: fmt.Appendf(nil, "%d", dice(t, 100))}
		switch dice(t, 4) {
		case 0:
			v.Data = nil
		case 1:
			v.Expires = w.in(t, -1)
		}
		list = append(list, v)
	}
	return randomOp{"put values", func() string { return "put the values " + valuesText(list) }, func() {
		w.same("the error of put values", document.Of(w.s).PutValues(w.ctx, w.now, list), nil)
		for _, v := range list {
			delete(w.values.maybe, v.Key)
			if w.values.byKey[v.Key] = v; len(v.Data) == 0 {
				delete(w.values.byKey, v.Key)
			}
		}
		for key, v := range w.values.byKey {
			if v.Expired(w.now) {
				w.values.maybe[key] = true
			}
		}
	}}
}

func valuesText(list []document.Value) string {
	var texts []string
	for _, v := range list {
		text := fmt.Sprintf("%q=%q", v.Key, v.Data)
		if !v.Expires.IsZero() {
			text += " until " + clockText(v.Expires)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// lookValues compares some of the values.
func (w *world) lookValues(t *rapid.T) randomOp {
	keys := append([]string{"", "", "a/3", "d"}, valueKeys...)
	prefix, after, limit := pick(t, keys...), pick(t, keys...), pick(t, 0, 0, 1, 2, 3)
	says := func() string {
		return fmt.Sprintf("look at %d values with the prefix %q after %q", limit, prefix, after)
	}
	return randomOp{"look at values", says, func() { w.sameValues(prefix, after, limit) }}
}

func (w *world) sameValues(prefix, after string, limit int) {
	w.rt.Helper()
	if len(w.values.maybe) > 0 {
		limit = 0
	}
	got, err := document.Of(w.s).Values(w.ctx, w.now, prefix, after, limit)
	w.same("the error of values", err, nil)
	got = slices.DeleteFunc(got, func(v document.Value) bool { return w.values.maybe[v.Key] })
	var want []document.Value
	for key, v := range w.values.byKey {
		if strings.HasPrefix(key, prefix) && key > after && !v.Expired(w.now) && !w.values.maybe[key] {
			want = append(want, v)
		}
	}
	slices.SortFunc(want, func(a, b document.Value) int { return cmp.Compare(a.Key, b.Key) })
	if limit > 0 {
		want = want[:min(limit, len(want))]
	}
	same := func(a, b document.Value) bool {
		round := func(t time.Time) time.Time { return w.cfg.rounded(t) }
		return a.Key == b.Key && string(a.Data) == string(b.Data) && round(a.Expires).Equal(round(b.Expires))
	}
	if !slices.EqualFunc(got, want, same) {
		w.failf("values with the prefix %q after %q: %s, want %s", prefix, after,
			valuesText(got), valuesText(want))
	}
}
