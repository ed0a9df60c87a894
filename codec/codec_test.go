package codec_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
)

var ctx = context.Background()

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// key makes a key whose bytes all are b.
func key(id string, b byte) codec.Key {
	return must(codec.NewKey(id, bytes.Repeat([]byte{b}, codec.KeySize)))
}

func ring(keys ...codec.Key) *codec.Ring { return must(codec.NewRing(keys[0], keys[1:]...)) }

func chain(codecs ...codec.Codec) *codec.Chain { return must(codec.NewChain(codecs...)) }

func args(v any) ojs.Args { return must(ojs.NewArgs(v)) }

// wire reads args as they come over the wire.
func wire(text string) (a ojs.Args) {
	if err := a.UnmarshalJSON([]byte(text)); err != nil {
		panic(err)
	}
	return a
}

// encrypted is encrypted args as another client writes them.
func encrypted(data []byte) ojs.Args {
	return wire(fmt.Sprintf(`[{"data":%q,"ojs_encoded":true,"encoding":"binary/encrypted"}]`,
		base64.StdEncoding.EncodeToString(data)))
}

func wantType(t *testing.T, err error, errorType string, retryable bool) {
	t.Helper()
	var e *codec.Error
	if !errors.As(err, &e) || e.ErrorType() != errorType || e.DoNotRetry() == retryable {
		t.Errorf("%v, want %s, retryable %t", err, errorType, retryable)
	}
}

// reversing is a codec that reverses bytes.
type reversing struct {
	name string
	key  string
}

func (r reversing) Encoding() string { return r.name }
func (r reversing) Encode(_ context.Context, b []byte) ([]byte, string, error) {
	b = append(bytes.Clone(b), r.name...)
	slices.Reverse(b)
	return b, r.key, nil
}
func (r reversing) Decode(_ context.Context, b []byte, _ string) ([]byte, error) {
	b = bytes.Clone(b)
	slices.Reverse(b)
	plain, ok := bytes.CutSuffix(b, []byte(r.name))
	if !ok {
		return nil, errors.New("not mine")
	}
	return plain, nil
}

type panicking struct{ reversing }

func (panicking) Encode(context.Context, []byte) ([]byte, string, error) { panic("boom") }
func (panicking) Decode(context.Context, []byte, string) ([]byte, error) { panic("boom") }

func TestChain(t *testing.T) {
	t.Run("K001 a chain encodes in order and decodes in reverse", func(t *testing.T) {
		c := chain(reversing{"a/b", ""}, reversing{"c/d", "k"})
		p := must(c.Encode(ctx, []byte("text")))
		if want := []string{"a/b", "c/d"}; !reflect.DeepEqual(p.Encodings, want) || p.KeyID != "k" {
			t.Errorf("%v, key %q", p.Encodings, p.KeyID)
		}
		if got := must(c.Decode(ctx, p)); string(got) != "text" {
			t.Errorf("%q", got)
		}
		p.Encodings = []string{"c/d", "a/b"}
		_, err := c.Decode(ctx, p)
		wantType(t, err, codec.ErrorTypeDecodeFailed, false)
	})
	t.Run("no codec encodes nothing and refuses what is encoded", func(t *testing.T) {
		var none *codec.Chain
		for _, c := range []*codec.Chain{none, new(codec.Chain)} {
			p := must(c.Encode(ctx, []byte("text")))
			if string(p.Data) != "text" || p.Encodings != nil || string(must(c.Decode(ctx, p))) != "text" {
				t.Errorf("%v", p)
			}
			_, err := c.Decode(ctx, codec.Payload{Encodings: []string{"binary/encrypted"}})
			wantType(t, err, codec.ErrorTypeDecodeFailed, false)
		}
	})
	t.Run("codecs that make no chain are refused", func(t *testing.T) {
		aes := codec.AES256GCM(ring(key("k", 1)))
		for name, list := range map[string][]codec.Codec{
			"nil": {nil}, "twice": {codec.Gzip(), codec.Gzip()}, "no name": {reversing{}},
			"plus": {reversing{name: "a+b"}}, "short name": {reversing{name: "gzip"}},
			"K009 compression after encryption": {aes, codec.Gzip()},
		} {
			_, err := codec.NewChain(list...)
			if err == nil || !strings.HasPrefix(err.Error(), "ojs: codec: ") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := codec.NewChain(aes, codec.DecodeOnly(codec.Gzip())); err != nil {
			t.Error(err)
		}
		if _, err := codec.NewChain(codec.DecodeOnly(aes), codec.Gzip()); err != nil {
			t.Error(err)
		}
	})
	t.Run("two keys in one payload are refused", func(t *testing.T) {
		_, err := chain(reversing{"a/b", "1"}, reversing{"c/d", "2"}).Encode(ctx, nil)
		wantType(t, err, codec.ErrorTypeEncodeFailed, true)
	})
	t.Run("a panic is an error", func(t *testing.T) {
		c := chain(panicking{reversing{name: "p/p"}})
		_, err := c.Encode(ctx, nil)
		wantType(t, err, codec.ErrorTypeEncodeFailed, true)
		_, err = c.Decode(ctx, codec.Payload{Encodings: []string{"p/p"}})
		wantType(t, err, codec.ErrorTypeDecodeFailed, false)
	})
	t.Run("DecodeOnly decodes, and leaves itself out", func(t *testing.T) {
		aes := codec.AES256GCM(ring(key("k", 1)))
		p := must(chain(aes).Encode(ctx, []byte("text")))
		c := chain(codec.DecodeOnly(aes))
		if string(must(c.Decode(ctx, p))) != "text" || must(c.Encode(ctx, []byte("text"))).Encodings != nil {
			t.Error("it encodes, or does not decode")
		}
	})
}

func TestAES256GCM(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	c := chain(codec.AES256GCM(ring(must(codec.NewKey("k1", secret)))))
	t.Run("K004 0x01, nonce of 12 bytes, ciphertext, tag of 16, no additional data", func(t *testing.T) {
		p := must(c.Encode(ctx, []byte("text")))
		if len(p.Data) != 1+12+4+16 || p.Data[0] != 1 || p.KeyID != "k1" ||
			!reflect.DeepEqual(p.Encodings, []string{"binary/encrypted"}) {
			t.Fatalf("%d bytes that begin with %d, key %q, %v", len(p.Data), p.Data[0], p.KeyID, p.Encodings)
		}
		gcm := must(cipher.NewGCM(must(aes.NewCipher(secret))))
		if plain := must(gcm.Open(nil, p.Data[1:13], p.Data[13:], nil)); string(plain) != "text" {
			t.Errorf("%q", plain)
		}
		nonce := []byte("twelve bytes")
		made := slices.Concat([]byte{1}, nonce, gcm.Seal(nil, nonce, []byte("theirs"), nil))
		p = codec.Payload{Data: made, Encodings: []string{"binary/encrypted"}, KeyID: "k1"}
		got := must(c.Decode(ctx, p))
		if string(got) != "theirs" {
			t.Errorf("%q", got)
		}
	})
	t.Run("K004 a fresh nonce for each payload", func(t *testing.T) {
		seen := make(map[string]bool)
		for range 1000 {
			p := must(c.Encode(ctx, []byte("text")))
			if n := string(p.Data[1:13]); seen[n] {
				t.Fatal("a nonce came twice")
			} else {
				seen[n] = true
			}
		}
	})
	t.Run("K004 a key of any other size is refused", func(t *testing.T) {
		for _, n := range []int{0, 16, 24, 31, 33, 64} {
			if k, err := codec.NewKey("k", make([]byte, n)); err == nil || k.ID() != "" {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
		for _, id := range []string{"", strings.Repeat("x", 256), "\xff"} {
			if _, err := codec.NewKey(id, secret); err == nil {
				t.Errorf("id %q is accepted", id)
			}
		}
	})
	t.Run("K011 damaged data is lost for good, a missing key is not", func(t *testing.T) {
		p := must(c.Encode(ctx, []byte("text")))
		for i := range p.Data {
			bad := p
			bad.Data = bytes.Clone(p.Data)
			bad.Data[i] ^= 1
			_, err := c.Decode(ctx, bad)
			wantType(t, err, codec.ErrorTypeDecodeFailed, false)
			bad.Data = p.Data[:i]
			_, err = c.Decode(ctx, bad)
			wantType(t, err, codec.ErrorTypeDecodeFailed, false)
		}
		_, err := chain(codec.AES256GCM(ring(key("k1", 8)))).Decode(ctx, p)
		wantType(t, err, codec.ErrorTypeDecodeFailed, false)
		_, err = chain(codec.AES256GCM(ring(key("k2", 7)))).Decode(ctx, p)
		wantType(t, err, codec.ErrorTypeKeyNotFound, true)
		if !errors.Is(err, codec.ErrKeyNotFound) {
			t.Error(err)
		}
		_, err = c.Decode(ctx, codec.Payload{Encodings: []string{"rot13/plain"}})
		wantType(t, err, codec.ErrorTypeDecodeFailed, false)
		_, err = c.Decode(ctx, codec.Payload{Encodings: make([]string, 17)})
		wantType(t, err, codec.ErrorTypeDecodeFailed, false)
	})
	t.Run("K011 a source of keys that fails is asked again", func(t *testing.T) {
		p := must(c.Encode(ctx, []byte("text")))
		down := chain(codec.AES256GCM(failing{}))
		_, err := down.Decode(ctx, p)
		wantType(t, err, codec.ErrorTypeKeyNotFound, true)
		_, err = down.Encode(ctx, []byte("text"))
		wantType(t, err, codec.ErrorTypeKeyNotFound, true)
		_, err = chain(codec.AES256GCM(zero{})).Encode(ctx, nil)
		wantType(t, err, codec.ErrorTypeKeyNotFound, true)
	})
	t.Run("K012 one key encrypts, any number decrypts", func(t *testing.T) {
		r := ring(key("old", 1))
		c := chain(codec.AES256GCM(r))
		before := must(c.Encode(ctx, []byte("before")))
		if err := r.Add(key("new", 2)); err != nil {
			t.Fatal(err)
		}
		if p := must(c.Encode(ctx, nil)); p.KeyID != "old" {
			t.Errorf("key %s encrypts", p.KeyID)
		}
		if err := r.Use("new"); err != nil {
			t.Fatal(err)
		}
		if p := must(c.Encode(ctx, nil)); p.KeyID != "new" {
			t.Errorf("key %s encrypts", p.KeyID)
		}
		if string(must(c.Decode(ctx, before))) != "before" {
			t.Error("what the old key has encrypted is lost")
		}
		if err := r.Use("other"); !errors.Is(err, codec.ErrKeyNotFound) {
			t.Error(err)
		}
		for _, bad := range [][]codec.Key{{key("new", 3)}, {{}}, {key("x", 1), key("x", 2)}} {
			if r.Add(bad...) == nil {
				t.Errorf("%v was added", bad)
			}
		}
		if _, err := r.Key(ctx, "x"); err == nil {
			t.Error("a part of refused keys was added")
		}
		if _, err := codec.NewRing(codec.Key{}); err == nil {
			t.Error("a ring of a zero key")
		}
	})
	t.Run("a key does not show itself", func(t *testing.T) {
		k := must(codec.NewKey("k", []byte("0123456789abcdef0123456789abcdef")))
		raw, _ := json.Marshal(map[string]any{"key": k})
		shown := fmt.Sprintf("%v %+v %#v %s %x ", k, k, k, k, k) + string(raw)
		if strings.Contains(shown, "0123456789") || strings.Contains(shown, "3031323334") {
			t.Error(shown)
		}
	})
}

type failing struct{}

func (failing) Current(context.Context) (codec.Key, error) { return codec.Key{}, errors.New("down") }
func (failing) Key(context.Context, string) (codec.Key, error) {
	return codec.Key{}, errors.New("down")
}

type zero struct{}

func (zero) Current(context.Context) (codec.Key, error)     { return codec.Key{}, nil }
func (zero) Key(context.Context, string) (codec.Key, error) { return codec.Key{}, nil }

func TestCompression(t *testing.T) {
	big := bytes.Repeat([]byte("text "), 1000)
	t.Run("K009 only what gets smaller, and not below 1 KB", func(t *testing.T) {
		c := chain(codec.Gzip())
		noise := make([]byte, 4096)
		for i, x := 0, uint32(1); i < len(noise); i++ {
			x = x*1664525 + 1013904223
			noise[i] = byte(x >> 24)
		}
		for name, data := range map[string][]byte{"1023 bytes": big[:1023], "noise": noise} {
			p := must(c.Encode(ctx, data))
			if p.Encodings != nil || !bytes.Equal(p.Data, data) {
				t.Errorf("%s: %v", name, p.Encodings)
			}
		}
		for _, data := range [][]byte{big[:1024], big} {
			p := must(c.Encode(ctx, data))
			if !reflect.DeepEqual(p.Encodings, []string{"gzip/plain"}) || len(p.Data) >= len(data) {
				t.Errorf("%v, %d of %d bytes", p.Encodings, len(p.Data), len(data))
			}
			if !bytes.Equal(must(c.Decode(ctx, p)), data) {
				t.Error("it is lost")
			}
		}
		same := chain(codec.Compression("same/plain", unchanged{}))
		if p := must(same.Encode(ctx, big)); p.Encodings != nil || !bytes.Equal(p.Data, big) {
			t.Errorf("what stays as large is listed: %v", p.Encodings)
		}
		if p := must(chain(codec.Gzip(codec.WithMinSize(100))).Encode(ctx, big[:100])); p.Encodings == nil {
			t.Error("WithMinSize has no effect")
		}
	})
	t.Run("a small payload does not fill the memory", func(t *testing.T) {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(make([]byte, codec.MaxPlaintext+1))
		_ = w.Close()
		p := codec.Payload{Data: b.Bytes(), Encodings: []string{"gzip/plain"}}
		_, err := chain(codec.Gzip()).Decode(ctx, p)
		wantType(t, err, codec.ErrorTypeDecodeFailed, false)
	})
}

// unchanged is a compression that makes nothing smaller.
type unchanged struct{}

func (unchanged) Compress(data []byte) ([]byte, error)          { return data, nil }
func (unchanged) Decompress(data []byte, _ int) ([]byte, error) { return data, nil }

func TestForm(t *testing.T) {
	r := ring(key("k1", 1), key("k2", 2))
	c := chain(codec.Gzip(), codec.AES256GCM(r))
	long := strings.Repeat("long ", 1000)
	t.Run("K003 K005 K006 args of one encoded value, and two entries of the meta", func(t *testing.T) {
		given := map[string]any{"tenant": "a"}
		for v, want := range map[string]struct {
			encoding  string
			encodings []any
		}{
			"short": {"binary/encrypted", []any{"binary/encrypted"}},
			long:    {"binary/encrypted+gzip", []any{"gzip/plain", "binary/encrypted"}},
		} {
			a, meta, err := c.EncodeArgs(ctx, args(v), given)
			if err != nil {
				t.Fatal(err)
			}
			var list []map[string]any
			if err := json.Unmarshal(a.JSON(), &list); err != nil || len(list) != 1 || len(list[0]) != 3 {
				t.Fatalf("%s, %v", a, err)
			}
			_, err = base64.StdEncoding.DecodeString(list[0]["data"].(string))
			if list[0]["ojs_encoded"] != true || list[0]["encoding"] != want.encoding || err != nil {
				t.Errorf("%s, %v", a, err)
			}
			wantMeta := map[string]any{
				"tenant": "a", "ojs.codec.encodings": want.encodings, "ojs.codec.key_id": "k1",
			}
			if !reflect.DeepEqual(meta, wantMeta) {
				t.Errorf("meta %v, want %v", meta, wantMeta)
			}
		}
		if !reflect.DeepEqual(given, map[string]any{"tenant": "a"}) {
			t.Error("K008 the given meta was changed")
		}
	})
	t.Run("K003 plain jobs have no entries of a codec", func(t *testing.T) {
		a, meta, err := chain(codec.Gzip()).EncodeArgs(ctx, args("short"),
			map[string]any{codec.MetaEncodings: []any{"stale"}, codec.MetaKeyID: "stale"})
		if err != nil || meta != nil || a.String() != `"short"` {
			t.Errorf("%s, %v, %v", a, meta, err)
		}
	})
	t.Run("K004 the plaintext is a list, and any args come back as they were", func(t *testing.T) {
		for _, v := range []any{
			nil, 1, "s", true, []any{}, []any{1.0}, []any{[]any{}}, []any{nil}, map[string]any{},
			map[string]any{"a": []any{1.0, nil}}, []any{"a", "b"}, long, "\u2028<>&\n]",
			[]any{map[string]any{}},
		} {
			given := args(v)
			a, meta, err := c.EncodeArgs(ctx, given, nil)
			if err != nil || !a.Encoded() || strings.Contains(a.String(), "long") {
				t.Fatalf("%s: %s, %v", given, a, err)
			}
			got, err := c.DecodeArgs(ctx, a, meta)
			if err != nil || got.String() != given.String() {
				t.Errorf("%s became %s, %v", given, got, err)
			}
			p := unpack(t, c, a, meta)
			var list []any
			if err := json.Unmarshal(p, &list); err != nil {
				t.Errorf("%s: plaintext %s: %v", given, p, err)
			}
		}
	})
	t.Run("plaintexts of other clients", func(t *testing.T) {
		for plain, want := range map[string]string{
			`[]`: `[]`, `[1, 2]`: `[1,2]`, "[\n  {\"a\": 1}\n]": `[{"a":1}]`, "[\n]": "null", "[{}\n]": "{}",
			"[1,2\n]": "[1,2]", "[[1]\n]": "[1]",
		} {
			p := must(c.Encode(ctx, []byte(plain)))
			got, err := c.DecodeArgs(ctx, encrypted(p.Data), nil)
			if err != nil || got.String() != want {
				t.Errorf("%q: %s, %v", plain, got, err)
			}
		}
		for _, plain := range []string{"", "{}", "1", "[", "\xff", "[1"} {
			p := must(c.Encode(ctx, []byte(plain)))
			_, err := c.DecodeArgs(ctx, encrypted(p.Data), nil)
			wantType(t, err, codec.ErrorTypeDecodeFailed, false)
		}
	})
	p := must(c.Encode(ctx, []byte(`["`+long+`"]`)))
	std := base64.StdEncoding.EncodeToString(p.Data)
	t.Run("K005 meta wins over encoding, which is read without it", func(t *testing.T) {
		a := wire(`[{"ojs_encoded":true,"encoding":"binary/encrypted+gzip","data":"` + std + `"}]`)
		if _, err := c.DecodeArgs(ctx, a, nil); err != nil {
			t.Error(err)
		}
		_, err := c.DecodeArgs(ctx, a, map[string]any{codec.MetaEncodings: []any{"other/plain"}})
		wantType(t, err, codec.ErrorTypeDecodeFailed, false)
		wrong := wire(`[{"ojs_encoded":true,"encoding":"other","data":"` + std + `"}]`)
		meta := map[string]any{
			codec.MetaEncodings: []any{"gzip/plain", "binary/encrypted"}, codec.MetaKeyID: "k1",
		}
		if _, err := c.DecodeArgs(ctx, wrong, meta); err != nil {
			t.Error(err)
		}
	})
	t.Run("K006 either alphabet, padded or not", func(t *testing.T) {
		for _, enc := range []*base64.Encoding{
			base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
		} {
			data := enc.EncodeToString(p.Data)
			a := wire(`[{"ojs_encoded":true,"encoding":"binary/encrypted+gzip","data":"` + data + `"}]`)
			if got, err := c.DecodeArgs(ctx, a, nil); err != nil || got.String() != `["`+long+`"]` {
				t.Error(err)
			}
		}
	})
	t.Run("K007 marker in the meta, data as the only arg, short names", func(t *testing.T) {
		if err := r.Use("k2"); err != nil { // so that the key is that of the meta
			t.Fatal(err)
		}
		defer func() { _ = r.Use("k1") }()
		for name, meta := range map[string]map[string]any{
			"id of another name": {
				"ojs_encoded": true, "encoding": "aes-256-gcm+gzip", "encryption_key_id": "k1",
			},
			"encodings": {
				"ojs_encoded": true, codec.MetaEncodings: []any{"gzip", "aes-256-gcm"}, codec.MetaKeyID: "k1",
			},
			"encoding": {"ojs_encoded": true, "encoding": "aes-256-gcm+gzip", "key_id": "k1"},
			"no marker": {
				codec.MetaEncodings: []any{"gzip/plain", "binary/encrypted"}, codec.MetaKeyID: "k1",
			},
			"a text": {codec.MetaEncodings: "aes-256-gcm+gzip", codec.MetaKeyID: "k1"},
		} {
			got, err := c.DecodeArgs(ctx, wire(`["`+std+`"]`), meta)
			if err != nil || got.String() != `["`+long+`"]` {
				t.Errorf("%s: %v", name, err)
			}
		}
		meta := map[string]any{"ojs_encoded": true, "encoding": "snappy"}
		_, err := c.DecodeArgs(ctx, wire(`["`+std+`"]`), meta)
		wantType(t, err, codec.ErrorTypeDecodeFailed, false)
	})
	t.Run("K011 damaged forms", func(t *testing.T) {
		meta := map[string]any{codec.MetaEncodings: []any{"binary/encrypted"}}
		for _, text := range []string{
			`[{"ojs_encoded":true}]`, `[{"ojs_encoded":true,"data":1,"encoding":"binary/encrypted"}]`,
			`[{"ojs_encoded":true,"data":"!","encoding":"binary/encrypted"}]`,
			`[{"ojs_encoded":true,"data":"AQ==","encoding":""}]`,
			`[{"ojs_encoded":true,"data":"AQ==","encoding":"+"}]`,
		} {
			_, err := c.DecodeArgs(ctx, wire(text), nil)
			wantType(t, err, codec.ErrorTypeDecodeFailed, false)
		}
		for _, text := range []string{`[]`, `["a","b"]`, `[1]`, `[{"a":1}]`} {
			_, err := c.DecodeArgs(ctx, wire(text), meta)
			wantType(t, err, codec.ErrorTypeDecodeFailed, false)
		}
	})
	t.Run("K015 values name their key", func(t *testing.T) {
		raw := must(c.EncodeValue(ctx, json.RawMessage(`{"n":1}`)))
		var v map[string]any
		if err := json.Unmarshal(raw, &v); err != nil || v["ojs_encoded"] != true || v["key_id"] != "k1" {
			t.Errorf("%s", raw)
		}
		if err := r.Use("k2"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Use("k1") }()
		if got := must(c.DecodeValue(ctx, raw, "")); string(got) != `{"n":1}` {
			t.Errorf("%s", got)
		}
		delete(v, "key_id")
		raw = must(json.Marshal(v))
		if got := must(c.DecodeValue(ctx, raw, "k1")); string(got) != `{"n":1}` {
			t.Errorf("%s", got)
		}
		for _, plain := range []string{"null", `{"n":1}`, `{"ojs_encoded":false}`, `"ojs_encoded"`} {
			if got := must(c.DecodeValue(ctx, json.RawMessage(plain), "")); string(got) != plain {
				t.Errorf("%s became %s", plain, got)
			}
		}
		for _, bad := range []string{
			`{"ojs_encoded":true}`, `{"ojs_encoded":true,"data":{},"encoding":"gzip"}`,
		} {
			_, err := c.DecodeValue(ctx, json.RawMessage(bad), "")
			wantType(t, err, codec.ErrorTypeDecodeFailed, false)
		}
	})
	t.Run("details keep the members that stay clear", func(t *testing.T) {
		given := map[string]any{"card": "4242", "limit": 1.0, "big": json.Number("9007199254740993")}
		enc := must(c.EncodeDetails(ctx, given, "limit"))
		s := fmt.Sprint(enc)
		if strings.Contains(s, "4242") || enc["limit"] != 1.0 || enc["ojs_encoded"] != true {
			t.Error(s)
		}
		if got := must(c.DecodeDetails(ctx, enc, "")); !reflect.DeepEqual(got, given) {
			t.Errorf("%v", got)
		}
		only := map[string]any{"limit": 1.0}
		if got := must(c.EncodeDetails(ctx, only, "limit")); !reflect.DeepEqual(got, only) {
			t.Errorf("%v", got)
		}
	})
	t.Run("details name the key of their own, which need not be that of the args", func(t *testing.T) {
		keys := ring(key("new", 1), key("old", 2))
		c := must(codec.NewChain(codec.AES256GCM(keys)))
		given := map[string]any{"card": "4242"}
		enc := must(c.EncodeDetails(ctx, given))
		if got, err := c.DecodeDetails(ctx, enc, "old"); err != nil || !reflect.DeepEqual(got, given) {
			t.Errorf("%v, %v", got, err)
		}
		value := must(c.EncodeValue(ctx, json.RawMessage(`"4242"`)))
		if got, err := c.DecodeValue(ctx, value, "old"); err != nil || string(got) != `"4242"` {
			t.Errorf("%s, %v", got, err)
		}
	})
}

// unpack is the plaintext of encoded args.
func unpack(t *testing.T, c *codec.Chain, a ojs.Args, meta map[string]any) []byte {
	t.Helper()
	var list []struct{ Data []byte }
	if err := json.Unmarshal(a.JSON(), &list); err != nil {
		t.Fatal(err)
	}
	p := codec.Payload{Data: list[0].Data, KeyID: meta[codec.MetaKeyID].(string)}
	for _, name := range meta[codec.MetaEncodings].([]any) {
		p.Encodings = append(p.Encodings, name.(string))
	}
	return must(c.Decode(ctx, p))
}

// FuzzDecode decodes any bytes as a payload, and any JSON as a job: it never panics, and
// fails as an *Error.
func FuzzDecode(f *testing.F) {
	r := ring(key("k1", 1))
	c := chain(codec.Gzip(codec.WithMinSize(0)), codec.AES256GCM(r))
	for _, plain := range []string{"", "[]", "[1\n]", strings.Repeat("a", 100)} {
		p := must(c.Encode(ctx, []byte(plain)))
		f.Add(p.Data, encrypted(p.Data).String(), `{"ojs.codec.encodings":["gzip","binary/encrypted"]}`)
	}
	f.Add([]byte{1}, `["AQ"]`, `{"ojs_encoded":true,"encoding":"gzip+aes-256-gcm"}`)
	f.Fuzz(func(t *testing.T, data []byte, text, metaText string) {
		check := func(err error) {
			var e *codec.Error
			if err != nil && !errors.As(err, &e) {
				t.Fatalf("%T: %v", err, err)
			}
		}
		for _, list := range [][]string{{"binary/encrypted"}, {"gzip/plain"}, {"gzip", "aes-256-gcm"}} {
			_, err := c.Decode(ctx, codec.Payload{Data: data, Encodings: list, KeyID: "k1"})
			check(err)
		}
		var meta map[string]any
		_ = json.Unmarshal([]byte(metaText), &meta)
		job := &ojs.JobInfo{Result: json.RawMessage(text)}
		job.Meta = meta
		job.Error = &ojs.Failure{Details: meta}
		if job.Args.UnmarshalJSON([]byte(text)) != nil {
			job.Args = ojs.Args{}
		}
		if !json.Valid(job.Result) {
			job.Result = nil
		}
		_, err := c.DecodeJob(ctx, job)
		check(err)
		_, err = (*codec.Chain)(nil).DecodeJob(ctx, job)
		check(err)

		// Encoded bytes come back.
		p := must(c.Encode(ctx, data))
		if got := must(c.Decode(ctx, p)); !bytes.Equal(got, data) {
			t.Fatalf("%q became %q", data, got)
		}
	})
}
