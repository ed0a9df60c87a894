// Package codec keeps what jobs carry unreadable in their storage: it encrypts
// and compresses args, results, checkpoints and the details of errors. An engine with
// engine.WithCodec encodes them before they reach the storage, and decodes them for
// handlers and for callers that ask. The storage, its backups and every listing have the
// encoded form.
//
//	ring, err := codec.NewRing(key)
//	eng, err := engine.New[any](store, engine.WithCodec(codec.Gzip(), codec.AES256GCM(ring)))
//
// docs/encryption.md has the steps to turn it on, to rotate keys and to connect a key
// management service, and lists what stays readable.
//
// A Chain is the codecs in their order. It encodes by each in order and decodes in
// reverse. The form is that of Open Job Spec, so clients in other languages share jobs:
//
//	"args": [{"ojs_encoded": true, "encoding": "binary/encrypted+gzip", "data": "AXk2..."}],
//	"meta": {"ojs.codec.encodings": ["gzip/plain", "binary/encrypted"], "ojs.codec.key_id": "2026-01"}
//
// A result, a checkpoint and the details of an error are such an object by themselves,
// with the member key_id.
//
// Package storage/codec is another thing: it writes a whole stored record as bytes, for
// storages without columns. It hides nothing.
package codec
