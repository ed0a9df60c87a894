package codec

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"unicode/utf8"
)

// KeySize is the size of an AES-256 key in bytes.
const KeySize = 32

// Key is a key of AES-256-GCM with its id. The zero Key encrypts nothing. Printing a Key
// shows its id only.
type Key struct {
	id   string
	aead cipher.AEAD
}

// NewKey makes a key of 32 random bytes, which it does not keep. The id is stored in
// clear with every payload: 1 to 255 bytes of text. Never give another key the same id.
func NewKey(id string, secret []byte) (Key, error) {
	if id == "" || len(id) > maxName || !utf8.ValidString(id) {
		return Key{}, fmt.Errorf(
			"ojs: codec: key id %q: use 1 to %d bytes of UTF-8, such as 2026-01", clip(id), maxName)
	}
	if len(secret) != KeySize {
		return Key{}, fmt.Errorf(
			"ojs: codec: key %s has %d bytes: AES-256 wants exactly %d", id, len(secret), KeySize)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return Key{}, fmt.Errorf("ojs: codec: key %s: %w", id, err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return Key{}, fmt.Errorf("ojs: codec: key %s: %w", id, err)
	}
	return Key{id, aead}, nil
}

// ID returns the key's id.
func (k Key) ID() string { return k.id }

// String names the key.
func (k Key) String() string { return "codec.Key(" + strconv.Quote(k.id) + ")" }

// GoString is String.
func (k Key) GoString() string { return k.String() }

// Keys is where AES256GCM gets its keys. Its methods are called concurrently, once for
// each payload: they answer from memory as a rule. An error of either is retried, as
// ErrorTypeKeyNotFound.
type Keys interface {
	// Current returns the key that encrypts.
	Current(ctx context.Context) (Key, error)
	// Key returns the key with the id, or ErrKeyNotFound.
	Key(ctx context.Context, id string) (Key, error)
}

// Ring is keys in memory: one of them encrypts, all of them decrypt. It is safe for
// concurrent use.
type Ring struct {
	mu      sync.RWMutex
	keys    map[string]Key
	current string
}

var _ Keys = (*Ring)(nil)

// NewRing makes a ring whose first key encrypts. It refuses a zero Key and two keys with
// one id.
func NewRing(current Key, others ...Key) (*Ring, error) {
	r := &Ring{keys: make(map[string]Key), current: current.id}
	if err := r.Add(append([]Key{current}, others...)...); err != nil {
		return nil, err
	}
	return r, nil
}

// Add adds keys that decrypt. If it refuses one, it adds none.
func (r *Ring) Add(keys ...Key) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make(map[string]bool, len(keys))
	for _, k := range keys {
		if k.aead == nil {
			return errZeroKey
		}
		if _, ok := r.keys[k.id]; ok || seen[k.id] {
			return fmt.Errorf("ojs: codec: key id %q is given twice; a new key needs a new id", k.id)
		}
		seen[k.id] = true
	}
	for _, k := range keys {
		r.keys[k.id] = k
	}
	return nil
}

// Use makes a key of the ring the one that encrypts. Before the call every program that
// decodes needs the key. An unknown id gives ErrKeyNotFound.
func (r *Ring) Use(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.keys[id]; !ok {
		return fmt.Errorf("%w: %q", ErrKeyNotFound, clip(id))
	}
	r.current = id
	return nil
}

// Current implements Keys.
func (r *Ring) Current(context.Context) (Key, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.keys[r.current], nil
}

// Key implements Keys.
func (r *Ring) Key(_ context.Context, id string) (Key, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.keys[id]
	if !ok {
		return Key{}, fmt.Errorf("%w: %q", ErrKeyNotFound, clip(id))
	}
	return k, nil
}

var errZeroKey = errors.New("ojs: codec: the zero Key is no key; make one with codec.NewKey")
