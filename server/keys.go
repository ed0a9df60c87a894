package server

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/internal/draft"
)

// Key is a bearer key, of which only the hash is kept.
type Key struct {
	Name     string    // of the principal; several keys may have it
	Hash     string    // of NewKey: the SHA-256 of the key in hexadecimal
	Grants   []Grant   // what it permits
	NotAfter time.Time // zero: it is valid until it is revoked
}

// NewKey makes a key of 256 random bits, and its hash. Give the key to its user, and keep
// the hash.
func NewKey() (key, hash string) {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // which does not fail
	key = "ojs_" + base64.RawURLEncoding.EncodeToString(b)
	return key, hashOf(key)
}

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Keys are the bearer keys of a server. They may be changed while it serves. It is an
// Authenticator, and safe for concurrent use.
type Keys struct {
	clock clock.Clock

	mu     sync.Mutex // guards what follows
	keys   []Key
	audits []func(AuditEntry) // of the servers that the keys are for
}

// follow makes a server's audit hear of changes (F198).
func (k *Keys) follow(audit func(AuditEntry)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.audits = append(k.audits, audit)
}

// change changes the keys by f, and then audits what f says.
func (k *Keys) change(f func(say func(event, name string))) {
	var list []AuditEntry
	k.mu.Lock()
	f(func(event, name string) {
		list = append(list, AuditEntry{Timestamp: k.clock.Now(), EventType: event, Outcome: "success",
			Detail: "key of " + name})
	})
	audits := k.audits
	k.mu.Unlock()
	for _, e := range list {
		for _, audit := range audits {
			audit(e)
		}
	}
}

// RotationGrace is how long an old key stays valid beside the new one.
const RotationGrace = 24 * time.Hour

// NewKeys makes an Authenticator of keys. The clock ends keys that have a NotAfter; nil:
// the wall clock.
func NewKeys(c clock.Clock, keys ...Key) (*Keys, error) {
	if c == nil {
		c = clock.New()
	}
	k := &Keys{clock: c}
	return k, k.Set(keys...)
}

// Set replaces all keys, as after a change of a file that has them.
func (k *Keys) Set(keys ...Key) error {
	keys = slices.Clone(keys)
	for i := range keys {
		if err := keys[i].check(); err != nil {
			return err
		}
	}
	k.change(func(say func(event, name string)) {
		for i := range k.keys {
			if find(keys, k.keys[i].Hash) < 0 {
				say("key.revoked", k.keys[i].Name)
			}
		}
		for i := range keys {
			if n := find(k.keys, keys[i].Hash); n < 0 {
				say("key.added", keys[i].Name)
			} else if !reflect.DeepEqual(k.keys[n], keys[i]) {
				say("key.changed", keys[i].Name)
			}
		}
		k.keys = keys
	})
	return nil
}

// check refuses a key that is none. It makes the hash lower-case.
func (key *Key) check() error {
	key.Hash = strings.ToLower(key.Hash)
	if sum, err := hex.DecodeString(key.Hash); err != nil || len(sum) != sha256.Size {
		return draft.Invalid("key.hash", "of %q is no SHA-256 in hexadecimal: NewKey makes one", key.Name)
	}
	return checkGrants("key.grants", key.Name, key.Grants)
}

func checkGrants(field, name string, grants []Grant) error {
	for _, g := range grants {
		if permits[g.Role] == nil {
			return draft.Invalid(field, "of %q: %q is no role", name, g.Role)
		}
	}
	return nil
}

// Rotate adds a key in the place of an old one, which ends after RotationGrace. It
// returns false if there is no old one.
func (k *Keys) Rotate(oldHash string, key Key) (rotated bool, err error) {
	if err := key.check(); err != nil {
		return false, err
	}
	k.change(func(say func(event, name string)) {
		i := find(k.keys, oldHash)
		if rotated = i >= 0; !rotated {
			return
		}
		end := k.clock.Now().Add(RotationGrace)
		if at := k.keys[i].NotAfter; at.IsZero() || at.After(end) {
			k.keys[i].NotAfter = end
		}
		k.keys = append(k.keys, key)
		say("key.rotated", key.Name)
	})
	return rotated, nil
}

// find returns the place of the key with a hash; below 0: there is none.
func find(keys []Key, hash string) int {
	return slices.IndexFunc(keys, func(key Key) bool { return key.Hash == strings.ToLower(hash) })
}

// Revoke ends a key at once. It returns false if there is none with the hash.
func (k *Keys) Revoke(hash string) (revoked bool) {
	k.change(func(say func(event, name string)) {
		if i := find(k.keys, hash); i >= 0 {
			revoked = true
			say("key.revoked", k.keys[i].Name)
			k.keys = append(k.keys[:i:i], k.keys[i+1:]...)
		}
	})
	return revoked
}

// Authenticate proves a request by its header "Authorization: Bearer KEY". Each key is
// compared, so that the time tells nothing.
func (k *Keys) Authenticate(r *http.Request) (*Principal, error) {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, nil
	}
	hash, now := []byte(hashOf(given)), k.clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	var found *Principal
	for i := range k.keys {
		key := &k.keys[i]
		same := subtle.ConstantTimeCompare([]byte(key.Hash), hash) == 1
		if same && (key.NotAfter.IsZero() || now.Before(key.NotAfter)) {
			found = &Principal{Name: key.Name, Grants: key.Grants}
		}
	}
	return found, nil
}
