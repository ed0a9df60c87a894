package compress_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/codec/compress"
)

var ctx = context.Background()

func chain(t testing.TB, codecs ...codec.Codec) *codec.Chain {
	t.Helper()
	c, err := codec.NewChain(codecs...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func keys(t testing.TB) codec.Keys {
	t.Helper()
	key, err := codec.NewKey("k1", bytes.Repeat([]byte{1}, codec.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	ring, err := codec.NewRing(key)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func wantFailed(t testing.TB, err error) {
	t.Helper()
	var e *codec.Error
	if !errors.As(err, &e) || e.Type != codec.ErrorTypeDecodeFailed {
		t.Errorf("%v", err)
	}
}

func TestCodecs(t *testing.T) {
	big := bytes.Repeat([]byte("text "), 1000)
	for name, one := range map[string]codec.Codec{"zstd": compress.Zstd(), "snappy": compress.Snappy()} {
		t.Run(name, func(t *testing.T) {
			c := chain(t, one)
			t.Run("K009 only what gets smaller, from 1 KB on", func(t *testing.T) {
				p, err := c.Encode(ctx, big)
				if want := []string{name + "/plain"}; err != nil || !reflect.DeepEqual(p.Encodings, want) ||
					len(p.Data) >= len(big) {
					t.Errorf("%v, %d bytes, %v", p.Encodings, len(p.Data), err)
				}
				if got, err := c.Decode(ctx, p); err != nil || !bytes.Equal(got, big) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				noise := make([]byte, 4096)
				_, _ = rand.Read(noise)
				if p, err := c.Encode(ctx, noise); err != nil || p.Encodings != nil ||
					!bytes.Equal(p.Data, noise) {
					t.Errorf("noise: %v, %v", p.Encodings, err)
				}
				if p, err := c.Encode(ctx, big[:1023]); err != nil || p.Encodings != nil {
					t.Errorf("%v, %v", p.Encodings, err)
				}
			})
			t.Run("K005 K007 the names that other clients write", func(t *testing.T) {
				c := chain(t, one, codec.AES256GCM(keys(t)))
				args, err := ojs.NewArgs(string(big))
				if err != nil {
					t.Fatal(err)
				}
				encoded, meta, err := c.EncodeArgs(ctx, args, nil)
				if err != nil || !strings.Contains(encoded.String(), `"binary/encrypted+`+name+`"`) {
					t.Fatalf("%s, %v", encoded, err)
				}
				for _, meta := range []map[string]any{meta, {
					"ojs.codec.encodings": []any{name, "aes-256-gcm"}, "ojs.codec.key_id": "k1",
				}, nil} {
					got, err := c.DecodeArgs(ctx, encoded, meta)
					if err != nil || got.String() != args.String() {
						t.Error(err)
					}
				}
			})
			t.Run("K011 damaged data", func(t *testing.T) {
				p, err := c.Encode(ctx, big)
				if err != nil {
					t.Fatal(err)
				}
				p.Data = p.Data[:len(p.Data)/2]
				_, err = c.Decode(ctx, p)
				wantFailed(t, err)
			})
		})
	}
	t.Run("a small payload does not fill the memory", func(t *testing.T) {
		c := chain(t, compress.Zstd(), compress.Snappy())
		enc, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		large := make([]byte, codec.MaxPlaintext+1)
		for name, data := range map[string][]byte{
			"zstd": enc.EncodeAll(large, nil), "snappy": snappy.Encode(nil, large),
		} {
			_, err := c.Decode(ctx, codec.Payload{Data: data, Encodings: []string{name}})
			wantFailed(t, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	c := chain(f, compress.Zstd(codec.WithMinSize(0)), compress.Snappy(codec.WithMinSize(0)))
	f.Add([]byte(strings.Repeat("text", 100)))
	p, _ := c.Encode(ctx, []byte(strings.Repeat("text", 100)))
	f.Add(p.Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"zstd", "snappy"} {
			if _, err := c.Decode(ctx, codec.Payload{Data: data, Encodings: []string{name}}); err != nil {
				wantFailed(t, err)
			}
		}
		p, err := c.Encode(ctx, data)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Decode(ctx, p); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%q became %q, %v", data, got, err)
		}
	})
}

func Example() {
	zstd := compress.Zstd() // one for the program
	c, err := codec.NewChain(zstd)
	if err != nil {
		panic(err)
	}
	p, err := c.Encode(ctx, bytes.Repeat([]byte("text "), 1000))
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Encodings, len(p.Data) < 100)
	// Output: [zstd/plain] true
}
