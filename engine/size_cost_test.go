package engine_test

import (
	"strings"
	"testing"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/internal/test/racedetector"
	"github.com/ojsengine/ojs/storage/memory"
)

type largeDocument struct {
	Name string
	N    int
	Text string
}

// The size of large args is known without another encoding of the job: an enqueue
// allocates a small part of what they take, or what their own encoding takes.
func TestLargeArgsAreNotEncodedToBeMeasured(t *testing.T) {
	if racedetector.On {
		t.Skip("the race detector allocates as well")
	}
	const kB, MB = 1 << 10, 1 << 20
	text := func(n int) string { return strings.Repeat("a", n) }
	for _, tt := range []struct {
		name string
		args any
		most float64 // bytes
	}{
		{"200 kB of a string", text(200 * kB), 20 * kB},
		{"nearly 1 MB of a string", text(MB - 8*kB), 20 * kB},
		{"1 MB of a string but for the rest of the job", text(MB - 1*kB), 3 * MB},
		{"400 kB of a struct", largeDocument{"n", 1, text(400 * kB)}, 20 * kB},
		{"a string with escapes", strings.Repeat("a\"\n<", 60*kB), 20 * kB},
		{"nearly 1 MB of a list", []string{text(MB - 8*kB)}, 3 * MB},
		{"1 MB of a list but for the rest of the job", []string{text(MB - 1*kB)}, 3 * MB},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eng := must1(engine.New[any](memory.New(), quiet))
			enqueue := func() { must1(eng.Enqueue(t.Context(), "x", tt.args)) }
			enqueue()
			_, got := allocated(func() {
				for range 5 {
					enqueue()
				}
			}, 5)
			if got > tt.most {
				t.Errorf("an enqueue allocates %.0f bytes, more than %.0f", got, tt.most)
			}
		})
	}
}

// The bound is that of the encoded job, for args of each kind.
func TestSizeOfAJobIsExact(t *testing.T) {
	inBubble(t, func(b *rig) { // where the times of all jobs take the same bytes
		sizeIsExact(t, b)
	})
}

func sizeIsExact(t *testing.T, b *rig) {
	for name, of := range map[string]func(n int) any{
		"string":  func(n int) any { return strings.Repeat("a", n) },
		"escapes": func(n int) any { return strings.Repeat("\n", n/2) },
		"struct":  func(n int) any { return largeDocument{Text: strings.Repeat("a", n)} },
		"list":    func(n int) any { return []string{strings.Repeat("a", n)} },
	} {
		most := 0 // that is taken
		for step := jsonvalue.MaxEnvelope; step > 0; step /= 2 {
			if _, err := b.Enqueue(b.ctx, "x", of(most+step)); err == nil {
				most += step
			}
		}
		ticket := must1(b.Enqueue(b.ctx, "x", of(most)))
		job := b.job(ticket.ID)
		raw := must1(job.MarshalJSON())
		if len(raw) > jsonvalue.MaxEnvelope+300 || len(raw) < jsonvalue.MaxEnvelope-10 {
			t.Errorf("the largest %s makes a job of %d bytes", name, len(raw))
		}
	}
}
