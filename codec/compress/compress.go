// Package compress has the compressions that are not in the standard library, for
// engine.WithCodec: zstd and snappy, by github.com/klauspost/compress. It is a module of
// its own, so that the core does without that dependency.
package compress

import (
	"fmt"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/ojsengine/ojs/codec"
)

// The encodings of the codecs.
const (
	EncodingZstd   = "zstd/plain"
	EncodingSnappy = "snappy/plain"
)

// Zstd compresses by zstd at its default level: smaller than gzip, and several times as
// fast. Payloads below codec.DefaultMinSize, and payloads that do not shrink, stay as
// they are. Make one codec for a program: it keeps some memory for each processor.
func Zstd(opts ...codec.CompressionOption) codec.Codec {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err) // no option is given that could be wrong
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(codec.MaxPlaintext))
	if err != nil {
		panic(err)
	}
	return codec.Compression(EncodingZstd, zstandard{enc, dec}, opts...)
}

type zstandard struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func (z zstandard) Compress(data []byte) ([]byte, error) { return z.enc.EncodeAll(data, nil), nil }

func (z zstandard) Decompress(data []byte, most int) ([]byte, error) {
	plain, err := z.dec.DecodeAll(data, nil)
	if err == nil && len(plain) > most {
		return nil, tooLarge(most)
	}
	return plain, err
}

// Snappy compresses by the block format of snappy: quicker than Zstd, and larger.
// Payloads below codec.DefaultMinSize, and payloads that do not shrink, stay as they
// are.
func Snappy(opts ...codec.CompressionOption) codec.Codec {
	return codec.Compression(EncodingSnappy, snap{}, opts...)
}

type snap struct{}

func (snap) Compress(data []byte) ([]byte, error) { return snappy.Encode(nil, data), nil }

func (snap) Decompress(data []byte, most int) ([]byte, error) {
	n, err := snappy.DecodedLen(data)
	if err == nil && n > most {
		err = tooLarge(most)
	}
	if err != nil {
		return nil, err
	}
	return snappy.Decode(nil, data)
}

func tooLarge(most int) error { return fmt.Errorf("the data has more than %d bytes", most) }
