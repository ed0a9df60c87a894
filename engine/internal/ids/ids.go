// Package ids draws the random numbers of an engine, and makes ids of them.
//
// # Invariants
//
//  1. One seed fixes all ids and delays of an engine whose calls come in one order.
//  2. Ids of a source sort in the order in which they were made.
package ids

import (
	crand "crypto/rand"
	"encoding/binary"
	rand "math/rand/v2"
	"time"

	"github.com/ojsengine/ojs/internal/locks"
)

// Source draws every random number of an engine, so that one seed fixes them all.
type Source struct {
	// Pick chooses the partition of an id that is given none, by some random bits; 0:
	// any. Nil: ids carry no partitions.
	Pick func(random uint64) int

	mu   locks.Mutex // guards the fields below
	r    *rand.Rand
	last uint64 // time and counter of the latest id
}

// New makes a source that draws from r; nil: from the operating system's.
func New(r *rand.Rand) *Source {
	if r == nil {
		var seed [32]byte
		_, _ = crand.Read(seed[:]) // never fails: it ends the program instead
		r = rand.New(rand.NewChaCha8(seed))
	}
	return &Source{r: r}
}

// Next makes a UUIDv7 of the engine's clock and random source, which uuid.NewV7 has its
// own of. Ids of one engine sort in the order in which they were made: the 12 bits after
// the millisecond count within it (RFC 9562, section 6.2, method 1).
func (g *Source) Next(now time.Time) string { return g.In(now, 0) }

// In is Next with a partition, from 1 on, whose number less one is in the 12 bits after
// the variant; 0: that of Pick, or random bits.
func (g *Source) In(now time.Time, partition int) string { return g.Named("", now, partition) }

// Named is In with a name before the id.
func (g *Source) Named(name string, now time.Time, partition int) string {
	g.mu.Lock()
	g.last = max(uint64(max(now.UnixMilli(), 0))<<12, g.last+1)
	stamp, tail := g.last, g.r.Uint64()
	g.mu.Unlock()

	if partition == 0 && g.Pick != nil {
		partition = g.Pick(tail >> 8)
	}
	if partition > 0 {
		const bits = 0xfff << 50
		tail = tail&^uint64(bits) | uint64(partition-1)<<50
	}
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], stamp>>12<<16|stamp&0xfff)
	binary.BigEndian.PutUint64(u[8:], tail)
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	var room [48]byte
	text := append(room[:0], name...)
	for i, b := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text = append(text, '-')
		}
		text = append(text, digits[b>>4], digits[b&0xf])
	}
	return string(text)
}

const digits = "0123456789abcdef"

// Uint64 draws a number.
func (g *Source) Uint64() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.r.Uint64()
}

// Jitter is the random number, from [0, 1), for the delay after an attempt. It depends
// only on the seed, the job and the attempt, so the order of other events does not change
// it.
func Jitter(seed uint64, id string, attempt int) float64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * prime
	}
	var g rand.PCG
	g.Seed(seed^h, uint64(attempt))
	return float64(g.Uint64()>>11) / (1 << 53)
}
