package codec_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

type Charge struct{ Card string }

func newKey(id string) codec.Key {
	key, err := codec.NewKey(id, bytes.Repeat([]byte(id[:1]), 32)) // a real one is random
	if err != nil {
		panic(err)
	}
	return key
}

// An engine with a codec stores jobs encrypted and runs them as ever.
func Example() {
	ring, err := codec.NewRing(newKey("2026-01"))
	if err != nil {
		panic(err)
	}
	eng, err := engine.New[Charge](memory.New(), engine.WithCodec(codec.Gzip(), codec.AES256GCM(ring)))
	if err != nil {
		panic(err)
	}
	eng.Handle("charge", func(_ context.Context, job *ojs.Job[Charge]) error {
		fmt.Println("the handler gets", job.Args.Card)
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go eng.Run(ctx)

	ticket, err := eng.Enqueue(ctx, "charge", Charge{"4242"})
	if err != nil {
		panic(err)
	}
	if _, err := ticket.Wait(ctx); err != nil {
		panic(err)
	}
	stored, err := eng.Get(ctx, ticket.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println("the storage has", stored.Meta[codec.MetaEncodings], "of key", stored.Meta[codec.MetaKeyID])
	plain, err := eng.Jobs().Decode(ctx, stored)
	if err != nil {
		panic(err)
	}
	fmt.Println("a caller that asks gets", plain.Args)
	// Output:
	// the handler gets 4242
	// the storage has [binary/encrypted] of key 2026-01
	// a caller that asks gets {"Card":"4242"}
}

// Rotation: add the new key to every program, then let it encrypt.
func ExampleRing() {
	ring, err := codec.NewRing(newKey("2026-01"))
	if err != nil {
		panic(err)
	}
	chain, err := codec.NewChain(codec.AES256GCM(ring))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	old, err := chain.Encode(ctx, []byte("stored before"))
	if err != nil {
		panic(err)
	}
	if err := ring.Add(newKey("a new one")); err != nil {
		panic(err)
	}
	if err := ring.Use("a new one"); err != nil {
		panic(err)
	}
	fresh, err := chain.Encode(ctx, []byte("stored after"))
	if err != nil {
		panic(err)
	}
	for _, p := range []codec.Payload{old, fresh} {
		plain, err := chain.Decode(ctx, p)
		fmt.Printf("%s: %s, %v\n", p.KeyID, plain, err)
	}
	// Output:
	// 2026-01: stored before, <nil>
	// a new one: stored after, <nil>
}

// kms has data keys that a key management service has wrapped.
type kms struct {
	wrapped map[string][]byte // by id
	current string            // the id of the one that encrypts
	unwrap  func(ctx context.Context, wrapped []byte) ([]byte, error)
	cache   sync.Map
}

func (k *kms) Current(ctx context.Context) (codec.Key, error) { return k.Key(ctx, k.current) }

func (k *kms) Key(ctx context.Context, id string) (codec.Key, error) {
	if key, ok := k.cache.Load(id); ok {
		return key.(codec.Key), nil
	}
	wrapped, ok := k.wrapped[id]
	if !ok {
		return codec.Key{}, codec.ErrKeyNotFound
	}
	secret, err := k.unwrap(ctx, wrapped)
	if err != nil {
		return codec.Key{}, err
	}
	key, err := codec.NewKey(id, secret)
	if err == nil {
		k.cache.Store(id, key)
	}
	return key, err
}

// Keys of a key management service: it unwraps a data key once, and payloads are
// encrypted without it.
func ExampleKeys() {
	calls := 0
	keys := &kms{
		wrapped: map[string][]byte{"2026-01": []byte("wrapped")},
		current: "2026-01",
		unwrap: func(context.Context, []byte) ([]byte, error) { // a call of the service's Decrypt
			calls++
			return bytes.Repeat([]byte{7}, 32), nil
		},
	}
	chain, err := codec.NewChain(codec.AES256GCM(keys))
	if err != nil {
		panic(err)
	}
	for range 3 {
		p, err := chain.Encode(context.Background(), []byte("text"))
		if err != nil {
			panic(err)
		}
		if _, err := chain.Decode(context.Background(), p); err != nil {
			panic(err)
		}
	}
	fmt.Println("calls of the service:", calls)
	// Output: calls of the service: 1
}

// A job whose key is not there waits for it, and its handler is not called.
func ExampleErrKeyNotFound() {
	store := memory.New()
	ctx := context.Background()
	open := func(keys ...codec.Key) *engine.Engine[any] {
		ring, err := codec.NewRing(keys[0], keys[1:]...)
		if err != nil {
			panic(err)
		}
		log := slog.New(slog.NewTextHandler(io.Discard, nil))
		eng, err := engine.New[any](store, engine.WithCodec(codec.AES256GCM(ring)), engine.WithLogger(log))
		if err != nil {
			panic(err)
		}
		return eng
	}
	ticket, err := open(newKey("new")).Enqueue(ctx, "charge", Charge{"4242"}, ojs.WithMaxAttempts(1))
	if err != nil {
		panic(err)
	}
	behind := open(newKey("old"))
	behind.Handle("charge", func(context.Context, *ojs.Job[any]) error { return nil })
	run, stop := context.WithCancel(ctx)
	defer stop()
	go behind.Run(run)
	job, err := behind.Wait(ctx, ticket.ID)
	fmt.Println(job.Error.Type, job.DeadLettered(), err != nil)
	// Output: codec.key_not_found true true
}
