package codec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ojsengine/ojs/internal/foreign"
)

// MaxPlaintext is the most bytes that a codec of this module decompresses to. More counts
// as damaged, so that a small payload cannot fill the memory.
const MaxPlaintext = 16 << 20

// ErrSkip is what Codec.Encode returns to be left out for a payload.
var ErrSkip = errors.New("ojs: codec: left out")

// Codec is one step of a Chain: it turns bytes into other bytes and back. Its methods are
// called concurrently, and keep neither their arguments nor their results. A panic counts
// as an error.
type Codec interface {
	// Encoding names what Encode does, such as "binary/encrypted". The name is stored
	// with each payload and selects the codec that decodes it. It has no "+".
	Encoding() string

	// Encode returns the encoded data, and the id of the key that it has used, "" for
	// none. ErrSkip leaves the codec out: the payload stays as it is and does not list
	// the encoding. The call has to be quick, since enqueues and handlers wait for it.
	Encode(ctx context.Context, data []byte) (encoded []byte, keyID string, err error)

	// Decode returns what Encode was given. keyID is the id that Encode returned, or ""
	// if the payload does not have it. An *Error is passed on. Any other error means that
	// the data is damaged, and fails the job for good as ErrorTypeDecodeFailed.
	Decode(ctx context.Context, data []byte, keyID string) ([]byte, error)
}

// Payload is bytes, and what a Chain has done to them.
type Payload struct {
	Data      []byte
	Encodings []string // the names of the codecs, in the order in which they were applied
	KeyID     string   // of the key; "": none was used, or it is not known
}

// Chain is codecs in order. The zero Chain and a nil *Chain encode nothing, and refuse to
// decode what is encoded. A Chain is immutable and safe for concurrent use.
type Chain struct {
	codecs []Codec
	byName map[string]Codec
}

// NewChain makes a chain. Its error says that a codec is nil, that a name is invalid or
// given twice, or that a compression follows an encryption, which leaves it nothing to
// compress.
func NewChain(codecs ...Codec) (*Chain, error) {
	c := &Chain{codecs: slices.Clone(codecs), byName: make(map[string]Codec, len(codecs))}
	encrypted := false
	for i, one := range codecs {
		if one == nil {
			return nil, fmt.Errorf("ojs: codec: codec %d of %d is nil", i+1, len(codecs))
		}
		name := one.Encoding()
		_, only := one.(decodeOnly)
		switch {
		case name == "" || len(name) > maxName || strings.Contains(name, "+") || canonical(name) != name:
			return nil, fmt.Errorf(
				"ojs: codec: encoding name %q: use 1 to %d bytes without +, such as binary/encrypted", clip(name), maxName)
		case c.byName[name] != nil:
			return nil, fmt.Errorf("ojs: codec: encoding %s is given twice", name)
		case encrypted && !only && strings.HasSuffix(name, plainSuffix):
			return nil, fmt.Errorf(
				"ojs: codec: %s follows %s: compress first, since ciphertext does not get smaller", name, EncodingEncrypted)
		}
		encrypted = encrypted || name == EncodingEncrypted && !only
		c.byName[name] = one
	}
	return c, nil
}

// maxName is how long the name of an encoding may be, in bytes.
const maxName = 255

// maxEncodings is how many encodings a payload may list.
const maxEncodings = 16

// Encode encodes data by each codec in order. The result has no encodings if all were
// left out. The error is an *Error.
func (c *Chain) Encode(ctx context.Context, data []byte) (Payload, error) {
	p := Payload{Data: data}
	if c == nil || len(c.codecs) == 0 {
		return p, nil
	}
	var err error
	if stop := foreign.Call(func() { err = c.encode(ctx, &p) }); stop != nil {
		err = stop
	}
	if err != nil {
		return Payload{}, typed(ErrorTypeEncodeFailed, err)
	}
	return p, nil
}

func (c *Chain) encode(ctx context.Context, p *Payload) error {
	for _, one := range c.codecs {
		data, id, err := one.Encode(ctx, p.Data)
		switch {
		case err == ErrSkip:
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", one.Encoding(), err)
		case id != "" && p.KeyID != "":
			return fmt.Errorf("%s: a second codec has a key: a payload has room for one", one.Encoding())
		}
		p.Data, p.Encodings = data, append(p.Encodings, one.Encoding())
		if id != "" {
			p.KeyID = id
		}
	}
	return nil
}

// Decode undoes the encodings of a payload, the last first. The error is an *Error.
func (c *Chain) Decode(ctx context.Context, p Payload) (data []byte, err error) {
	if len(p.Encodings) > maxEncodings {
		return nil, failed("the payload lists %d encodings, more than %d", len(p.Encodings), maxEncodings)
	}
	if stop := foreign.Call(func() { data, err = c.decode(ctx, p) }); stop != nil {
		err = stop
	}
	if err != nil {
		return nil, typed(ErrorTypeDecodeFailed, err)
	}
	return data, nil
}

func (c *Chain) decode(ctx context.Context, p Payload) ([]byte, error) {
	data := p.Data
	for _, name := range slices.Backward(p.Encodings) {
		if name = canonical(name); name == encodingPlain {
			continue
		}
		one := c.find(name)
		if one == nil {
			return nil, failed("no codec of this program decodes %q: give it to engine.WithCodec", clip(name))
		}
		var err error
		if data, err = one.Decode(ctx, data, p.KeyID); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return data, nil
}

func (c *Chain) find(name string) Codec {
	if c == nil {
		return nil
	}
	return c.byName[name]
}

// DecodeOnly makes of a codec one that only decodes. It is for the first of two
// deployments: first every program learns to decode, then the programs begin to encode.
// It also reads what a codec has left behind that is out of use.
func DecodeOnly(c Codec) Codec { return decodeOnly{c} }

type decodeOnly struct{ Codec }

func (decodeOnly) Encode(context.Context, []byte) ([]byte, string, error) { return nil, "", ErrSkip }

func clip(s string) string { return foreign.Clip(s, 64) }
