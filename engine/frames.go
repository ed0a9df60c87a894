package engine

import (
	internal "github.com/ojsengine/ojs/internal/attempt"
	"github.com/ojsengine/ojs/storage"
)

// frames are for the attempts of a worker that claims ahead, of the few types that it comes by first. Frames of a block are one
// allocation in place of some, which is most of what such attempts cost; but a handler that keeps its own, or stays in it, keeps its
// neighbours too. So none of these has much to keep.
type frames [4]struct {
	of    *jobType // nil: nothing yet
	block internal.Block
	used  int // of the block
}

// maxNeighbour is how many bytes the args of a job that has neighbours may have as JSON, each of a string counted as six.
const maxNeighbour = 4 << 10

// next returns the frame for an attempt of a job. Nil frames have lone ones only.
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
