package keyed

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/ojsengine/ojs/internal/rows"
)

// key is a key or a value of several fields. The bytes of each field sort as its values
// do, except for names: a name follows its length, so that the key of one is not the
// beginning of another's.
type key []byte

func newKey(t table) key { return append(make(key, 0, 64), byte(t)) }

// meta is the key of a name in the meta table.
func meta(name string) key { return newKey(metaTable).text(name) }

func (k key) byte(b byte) key { return append(k, b) }

func (k key) bool(b bool) key {
	if b {
		return k.byte(1)
	}
	return k.byte(0)
}

func (k key) number(n int64) key { return binary.BigEndian.AppendUint64(k, uint64(n)^1<<63) }

// maxName is how long a name may be in a key. A longer one, which no engine makes, is
// hashed: then it cannot be read from the key.
const maxName = 255

func (k key) name(s string) key {
	if len(s) > maxName {
		hash := sha256.Sum256([]byte(s))
		return append(binary.AppendUvarint(k, maxName+1), hash[:]...)
	}
	return append(binary.AppendUvarint(k, uint64(len(s))), s...)
}

func (k key) uint(n uint64) key { return binary.AppendUvarint(k, n) }

func (k key) int(n int64) key { return binary.AppendVarint(k, n) }

// string appends a text of any length.
func (k key) string(s string) key { return k.uint(uint64(len(s))).text(s) }

// nanos appends a time as a column has it (package rows), in one byte if it is not set.
func (k key) nanos(t time.Time) key { return k.uint(uint64(rows.Nanos(t)) - 1<<63) }

// bytes appends bytes, and tells nil from empty.
func (k key) bytes(b []byte) key {
	if b == nil {
		return append(k, 0)
	}
	return append(k.uint(uint64(len(b))+1), b...)
}

// text appends a name that ends the key, so that keys sort as their names do.
func (k key) text(s string) key { return append(k, s...) }

// time appends seconds and nanoseconds: nanoseconds alone would end in the year 2262.
func (k key) time(t time.Time) key {
	return binary.BigEndian.AppendUint32(k.number(t.Unix()), uint32(t.Nanosecond()))
}

const (
	numberLen = 8  // bytes of a number
	timeLen   = 12 // bytes of a time
)

// number returns the number at the beginning of b, 0 if b is nil.
func number(b []byte) int64 {
	if b == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b) ^ 1<<63)
}

// timeOf returns the time at the beginning of b, the zero time if b is nil.
func timeOf(b []byte) time.Time {
	if b == nil {
		return time.Time{}
	}
	return time.Unix(number(b), int64(binary.BigEndian.Uint32(b[numberLen:]))).UTC()
}

// cut returns the name at the beginning of b, and what follows it.
func cut(b []byte) (name string, rest []byte) {
	r := readerOf(b)
	name = r.name()
	return name, r.B
}

// section returns the queue and the type at the beginning of b.
func section(b []byte) (queue, jobType string) {
	r := readerOf(b)
	return r.name(), r.name()
}

// reader reads fields. If they are cut short, it reads zeros and Short is set.
type reader struct{ rows.Reader }

func readerOf(b []byte) reader { return reader{rows.Reader{B: b}} }

func (r *reader) byte() byte { return r.Take(1)[0] }

// text reads a text of any length, and shares the memory of it.
func (r *reader) text() []byte { return r.Take(int(r.Uint())) }

func (r *reader) nanos() time.Time { return rows.Time(int64(r.Uint() + 1<<63)) }

func (r *reader) name() string {
	n := int(min(r.Uint(), maxName+1))
	if n > maxName {
		n = sha256.Size
	}
	return string(r.Take(n))
}

// behind is the first key behind all that begin with a prefix.
func behind(prefix []byte) []byte {
	e := append([]byte{}, prefix...)
	for i := len(e) - 1; i >= 0; i-- {
		if e[i]++; e[i] != 0 {
			return e[:i+1]
		}
	}
	return nil // there is none: the first byte of a key is a table
}
