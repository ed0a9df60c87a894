package engine

import (
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/storage"
)

// frames are for the attempts of a worker that claims ahead, of the first few types that it meets. The frames of a block share one
// allocation, and allocating is most of what such attempts cost; but a handler that keeps its frame, or does not return, keeps its
// neighbours too. So only small jobs get one.
type frames [4]struct {
	of    *jobType // nil: nothing yet
	block internal.Block
	used  int // of the block
}

// maxNeighbour bounds the args of a job that has neighbours: bytes of JSON, where each of a string counts as six.
const maxNeighbour = 4 << 10

// next returns the frame for an attempt of a job. Nil frames give only lone ones.
func (f *frames) next(t *jobType, rec *storage.Record) internal.Frame {
	if f == nil || rec.Meta != nil || rec.Errors != nil || rec.Args.SizeBound() > maxNeighbour {
		return t.handler.Frame()
	}
	for i := range f {
		x := &f[i]
		if x.of == nil {
			x.of, x.used = t, internal.BlockSize
		}
		if x.of != t {
			continue
		}
		if x.used == internal.BlockSize {
			x.block, x.used = t.handler.Frames(), 0
		}
		if x.block == nil {
			break
		}
		x.used++
		return x.block.At(x.used - 1)
	}
	return t.handler.Frame()
}
