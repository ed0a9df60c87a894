package codec

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"sync"
)

// Compressor compresses whole payloads. Its methods are called concurrently.
type Compressor interface {
	Compress(data []byte) ([]byte, error)
	// Decompress refuses data that becomes more than most bytes.
	Decompress(data []byte, most int) ([]byte, error)
}

// DefaultMinSize is the size from which a payload is compressed, in bytes.
const DefaultMinSize = 1024

// CompressionOption sets how a compression works.
type CompressionOption func(*compression)

// WithMinSize sets the size from which payloads are compressed: DefaultMinSize by
// default; 0 and less compress all.
func WithMinSize(n int) CompressionOption { return func(c *compression) { c.least = n } }

// Compression makes a codec of a compressor. It leaves itself out for payloads below the
// least size, and for payloads that do not shrink.
//
// The size of an encrypted payload tells how well it was compressed. Do not compress a
// secret together with text that an attacker chooses and measures.
func Compression(encoding string, by Compressor, opts ...CompressionOption) Codec {
	c := &compression{name: encoding, by: by, least: DefaultMinSize}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

type compression struct {
	name  string
	by    Compressor
	least int
}

func (c *compression) Encoding() string { return c.name }

func (c *compression) Encode(_ context.Context, data []byte) ([]byte, string, error) {
	if len(data) < c.least {
		return nil, "", ErrSkip
	}
	small, err := c.by.Compress(data)
	if err == nil && len(small) >= len(data) {
		err = ErrSkip
	}
	return small, "", err
}

func (c *compression) Decode(_ context.Context, data []byte, _ string) ([]byte, error) {
	return c.by.Decompress(data, MaxPlaintext)
}

// EncodingGzip is the encoding of Gzip.
const EncodingGzip = "gzip/plain"

// Gzip compresses by the gzip of the standard library, at its default level. Package
// codec/compress, a module of its own, has zstd and snappy, which are faster.
func Gzip(opts ...CompressionOption) Codec { return Compression(EncodingGzip, gzipped{}, opts...) }

type gzipped struct{}

var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

func (gzipped) Compress(data []byte) ([]byte, error) {
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	var b bytes.Buffer
	w.Reset(&b)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (gzipped) Decompress(data []byte, most int) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(plain) > most {
		err = fmt.Errorf("the data has more than %d bytes", most)
	}
	return plain, err
}
