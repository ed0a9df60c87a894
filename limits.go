package ojs

import "github.com/ojsengine/ojs/internal/jsonvalue"

// Limits of what is stored, in bytes of its JSON (OJS payload limits). What exceeds one is refused with an *InvalidError.
const (
	MaxEnvelope   = 1 << 20  // a job as it is enqueued
	MaxMeta       = 64 << 10 // its meta
	MaxResult     = 1 << 20
	MaxCheckpoint = 1 << 20
	MaxDetails    = 64 << 10 // the details of an error; larger ones are replaced by "details_error", which gives their size

	MaxDepth = jsonvalue.MaxDepth // how deep args, meta, results and checkpoints may be nested; a scalar is 0 deep, a list of scalars 1
)
