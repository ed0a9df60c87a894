package rows

import "encoding/binary"

// Reader reads numbers as varints, and texts and bytes behind their length. If they are
// cut short, it reads zeros and Short is set.
type Reader struct {
	B     []byte
	Short bool
}

func (r *Reader) fail() { r.Short, r.B = true, nil }

// Take reads n bytes. Of fewer it reads none, and returns zeros, 12 at most.
func (r *Reader) Take(n int) []byte {
	if n < 0 || n > len(r.B) {
		r.fail()
		return make([]byte, 12)[:max(0, min(n, 12))]
	}
	b := r.B[:n]
	r.B = r.B[n:]
	return b
}

// Uint reads a number.
func (r *Reader) Uint() uint64 {
	n, size := binary.Uvarint(r.B)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.B = r.B[size:]
	return n
}

// Int reads a number that may be negative.
func (r *Reader) Int() int64 {
	n := r.Uint()
	return int64(n>>1) ^ -int64(n&1) // as binary.AppendVarint has it
}

// Text reads a text.
func (r *Reader) Text() string { return string(r.all(r.Uint())) }

// Bytes reads bytes whose length is one less than written, nil for 0.
func (r *Reader) Bytes() []byte {
	if n := r.Uint(); n > 0 {
		return r.all(n - 1)
	}
	return nil
}

// all reads n bytes, or none of fewer.
func (r *Reader) all(n uint64) []byte {
	if n > uint64(len(r.B)) {
		r.fail()
		return nil
	}
	return r.Take(int(n))
}
