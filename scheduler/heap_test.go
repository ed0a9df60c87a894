package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs/scheduler"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A heap does what a sorted list does.
func TestHeapModel(t *testing.T) {
	type entry struct {
		item *scheduler.Item[int]
		due  time.Time
	}
	rapid.Check(t, func(t *rapid.T) {
		var h scheduler.Heap[int]
		var list []entry // in the order of their push
		var items []*scheduler.Item[int]
		first := func() int {
			best := 0
			for i := range list {
				if list[i].due.Before(list[best].due) {
					best = i
				}
			}
			return best
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				var it *scheduler.Item[int]
				if len(items) > 0 && rapid.Bool().Draw(t, "again") {
					it = rapid.SampledFrom(items).Draw(t, "item")
				} else {
					it = &scheduler.Item[int]{Value: len(items)}
					items = append(items, it)
				}
				due := epoch.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "due")))
				list = slices.DeleteFunc(list, func(e entry) bool { return e.item == it })
				list = append(list, entry{it, due})
				h.Push(it, due)
			},
			"remove": func(t *rapid.T) {
				if len(items) == 0 {
					return
				}
				it := rapid.SampledFrom(items).Draw(t, "item")
				was := slices.ContainsFunc(list, func(e entry) bool { return e.item == it })
				list = slices.DeleteFunc(list, func(e entry) bool { return e.item == it })
				if got := h.Remove(it); got != was {
					t.Fatalf("Remove: %v, want %v", got, was)
				}
			},
			"pop": func(t *rapid.T) {
				now := epoch.Add(time.Duration(rapid.IntRange(-1, 21).Draw(t, "now")))
				it, ok := h.PopDue(now)
				if len(list) == 0 || list[first()].due.After(now) {
					if ok {
						t.Fatalf("popped %d, which is not due", it.Value)
					}
					return
				}
				want := list[first()]
				if !ok || it != want.item {
					t.Fatalf("popped %v, want %d", it, want.item.Value)
				}
				list = slices.Delete(list, first(), first()+1)
			},
			"": func(t *rapid.T) {
				next, ok := h.Next()
				if ok != (len(list) > 0) || ok && !next.Equal(list[first()].due) || h.Len() != len(list) {
					t.Fatalf("Next %v, %v; Len %d of %d", next, ok, h.Len(), len(list))
				}
				for _, it := range items {
					if it.Queued() != slices.ContainsFunc(list, func(e entry) bool { return e.item == it }) {
						t.Fatalf("item %d: Queued is %v", it.Value, it.Queued())
					}
				}
			},
		})
	})
}

func TestHeapFarTimes(t *testing.T) {
	var h scheduler.Heap[string]
	for _, year := range []int{9999, 1, 2262, 1677, 2026} {
		h.Push(&scheduler.Item[string]{Value: fmt.Sprint(year)},
			time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC))
	}
	var got []string
	for {
		it, ok := h.PopDue(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))
		if !ok {
			break
		}
		got = append(got, it.Value)
	}
	if want := []string{"1", "1677", "2026"}; !slices.Equal(got, want) {
		t.Errorf("due by 2200: %v, want %v", got, want)
	}
}

// Slots grow by a quarter at a time, which leaves an item at most 46 bytes.
func TestHeapItemsAreSmall(t *testing.T) {
	if scheduler.Bytes > 40 {
		t.Errorf("an item takes %d bytes", scheduler.Bytes)
	}
}

func TestHeapGivesMemoryBack(t *testing.T) {
	var h scheduler.Heap[int]
	items := make([]scheduler.Item[int], 100_000)
	for i := range items {
		h.Push(&items[i], epoch)
	}
	for i := range items {
		h.Remove(&items[i])
	}
	if h.Len() != 0 {
		t.Errorf("%d left", h.Len())
	}
	if c := h.Cap(); c > 4096 {
		t.Errorf("an empty heap keeps %d slots", c)
	}
}
