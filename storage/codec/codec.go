// Package codec writes stored jobs as bytes, and reads them again without loss. A storage
// keeps the bytes beside the columns or keys by which it finds jobs. The wire form of a
// job (ojs.JobInfo) is not for that: it is the standard's, and has no place for the
// version, the lease and the checkpoint of a storage.Record, nor for all fields of a
// policy.
//
// The bytes begin with the version of the format. A later version of this module reads
// the bytes of an earlier one. An earlier one refuses the bytes of a later one with
// ErrNewer. The format is not meant for people or for other programs.
//
// It hides nothing: package codec of this module, without storage before it, is the one
// that encrypts what jobs carry.
//
// The functions do not keep their arguments, and their results share no memory with them.
// They are safe for concurrent use.
package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// Errors of decoding.
var (
	// ErrNewer refuses bytes of a format that this version of the module does not know.
	ErrNewer = errors.New("ojs: codec: the bytes are of a newer format; update this program")

	// ErrCorrupt refuses bytes that no version has written.
	ErrCorrupt = errors.New("ojs: codec: the bytes are damaged")
)

// Version is the version of the format that the functions write.
const Version = 1

// kindRecord is the kind of what is encoded. It is stored and may never change.
const kindRecord = 1

// EncodeRecord returns a record as bytes. It fails with an *ojs.InvalidError if the
// record's state is none, and with another error if a value in its meta or in the details
// of a failure does not encode to JSON.
func EncodeRecord(r *storage.Record) ([]byte, error) {
	c, err := rows.Encode(r)
	if err != nil {
		return nil, err
	}
	w := writer{b: make([]byte, 0, 256+len(c.Args)+len(c.Job)+len(c.Outcome)+len(c.Checkpoint))}
	w.b = append(w.b, Version, kindRecord)
	w.record(&c)
	return w.b, nil
}

// DecodeRecord returns the record that EncodeRecord was given. Its error is ErrNewer,
// ErrCorrupt, or one that names the job and what of it does not decode.
func DecodeRecord(b []byte) (storage.Record, error) {
	r, err := open(b, kindRecord)
	if err != nil {
		return storage.Record{}, err
	}
	var c rows.Columns
	r.record(&c)
	if err := r.close(); err != nil {
		return storage.Record{}, err
	}
	rec, err := rows.Read(&c)
	if err != nil {
		return rec, fmt.Errorf("ojs: stored job %s: %w", c.ID, err)
	}
	return rec, nil
}

// writer appends fields: numbers as varints, strings and bytes behind their length.
type writer struct{ b []byte }

func (w *writer) uint(n uint64)   { w.b = binary.AppendUvarint(w.b, n) }
func (w *writer) int(n int64)     { w.b = binary.AppendVarint(w.b, n) }
func (w *writer) string(s string) { w.uint(uint64(len(s))); w.b = append(w.b, s...) }

// bytes tells nil from empty.
func (w *writer) bytes(b []byte) {
	if b == nil {
		w.uint(0)
		return
	}
	w.uint(uint64(len(b)) + 1)
	w.b = append(w.b, b...)
}

// reader reads what a writer has appended.
type reader struct{ rows.Reader }

// open begins to read bytes of a kind.
func open(b []byte, kind byte) (*reader, error) {
	switch {
	case len(b) < 2 || b[0] == 0:
		return nil, ErrCorrupt
	case b[0] > Version:
		return nil, fmt.Errorf("%w: format %d, and this program knows %d", ErrNewer, b[0], Version)
	case b[1] != kind:
		return nil, fmt.Errorf("%w: of kind %d, not %d", ErrCorrupt, b[1], kind)
	}
	return &reader{rows.Reader{B: b[2:]}}, nil
}

// close returns what went wrong. All of the bytes must have been read.
func (r *reader) close() error {
	switch {
	case r.Short:
		return ErrCorrupt
	case len(r.B) > 0:
		return fmt.Errorf("%w: %d bytes are left over", ErrCorrupt, len(r.B))
	}
	return nil
}

// fields are the fields of a record in the order in which they are written. The order is
// stored and may never change: a new field makes a new version of the format.
func fields(c *rows.Columns) []any {
	return []any{
		&c.ID, &c.Queue, &c.Type, &c.Worker, &c.State, &c.Priority, &c.Attempt, &c.Version, &c.Progress,
		&c.Lease, &c.Fingerprint,
		&c.RateKey, (*nanos)(&c.Wake), (*nanos)(&c.Deadline), (*nanos)(&c.Created), (*nanos)(&c.Enqueued),
		(*nanos)(&c.Started),
		(*nanos)(&c.NextRetry), (*nanos)(&c.Finished), (*nanos)(&c.Dead), (*nanos)(&c.LeaseUntil),
		&c.Args, &c.Job, &c.Outcome, &c.Checkpoint,
	}
}

// nanos is a time of a column. It is written as its distance from rows.None, so that a
// time that is not set takes one byte.
type nanos int64

func (w *writer) record(c *rows.Columns) {
	for _, f := range fields(c) {
		switch f := f.(type) {
		case *string:
			w.string(*f)
		case *int:
			w.int(int64(*f))
		case *int64:
			w.int(*f)
		case *nanos:
			w.uint(uint64(*f) - 1<<63)
		case *float64:
			w.uint(math.Float64bits(*f))
		case *[]byte:
			w.bytes(*f)
		}
	}
}

func (r *reader) record(c *rows.Columns) {
	for _, f := range fields(c) {
		switch f := f.(type) {
		case *string:
			*f = r.Text()
		case *int:
			*f = int(r.Int())
		case *int64:
			*f = r.Int()
		case *nanos:
			*f = nanos(r.Uint() + 1<<63)
		case *float64:
			*f = math.Float64frombits(r.Uint())
		case *[]byte:
			*f = bytes.Clone(r.Bytes())
		}
	}
}
