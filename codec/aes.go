package codec

import (
	"context"
	"errors"
)

// EncodingEncrypted is the encoding of AES256GCM.
const EncodingEncrypted = "binary/encrypted"

// aesVersion is the first byte of what AES256GCM makes. The rest is a nonce of 12 random
// bytes, the ciphertext, and the tag of 16 bytes.
const aesVersion = 1

// AES256GCM encrypts with the current key of keys, and decrypts with the key whose id the
// payload has. A payload without an id is tried with the current key. A payload that was
// changed does not decode.
//
// Nonces are random. Rotate a key before it has encrypted 2^32 payloads, beyond which two
// nonces may be equal. It panics if keys is nil.
func AES256GCM(keys Keys) Codec {
	if keys == nil {
		panic("ojs: codec: keys are nil")
	}
	return aesGCM{keys}
}

type aesGCM struct{ keys Keys }

func (aesGCM) Encoding() string { return EncodingEncrypted }

func (c aesGCM) Encode(ctx context.Context, data []byte) ([]byte, string, error) {
	k, err := c.keys.Current(ctx)
	if err == nil && k.aead == nil {
		err = errZeroKey
	}
	if err != nil {
		return nil, "", &Error{ErrorTypeKeyNotFound, err}
	}
	b := make([]byte, 1, 1+len(data)+k.aead.Overhead())
	b[0] = aesVersion
	return k.aead.Seal(b, nil, data, nil), k.id, nil
}

func (c aesGCM) Decode(ctx context.Context, data []byte, keyID string) ([]byte, error) {
	if len(data) == 0 || data[0] != aesVersion {
		return nil, errors.New("the data does not begin with the version 1 of its layout")
	}
	k, err := c.key(ctx, keyID)
	if err == nil && k.aead == nil {
		err = errZeroKey
	}
	if err != nil {
		return nil, &Error{ErrorTypeKeyNotFound, err}
	}
	if len(data) < 1+k.aead.Overhead() {
		return nil, errors.New("the data is truncated")
	}
	plain, err := k.aead.Open(nil, nil, data[1:], nil)
	if err != nil {
		return nil, errors.New("the data was changed, or encrypted with another key of the id " + k.String())
	}
	return plain, nil
}

func (c aesGCM) key(ctx context.Context, id string) (Key, error) {
	if id == "" {
		return c.keys.Current(ctx)
	}
	return c.keys.Key(ctx, id)
}
