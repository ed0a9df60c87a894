package labels_test

import (
	"slices"
	"testing"

	"github.com/ojsengine/ojs/internal/labels"
)

func TestNames(t *testing.T) {
	names := labels.New(2)
	var got []string
	for _, name := range []string{"b", "a", "c", "b", "d", "a"} {
		got = append(got, names.Of(name))
	}
	if want := []string{"b", "a", "other", "b", "other", "a"}; !slices.Equal(got, want) {
		t.Errorf("labels %v, not %v", got, want)
	}
}
