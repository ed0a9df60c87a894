package codec_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/codec"
)

func must(t interface{ Fatal(...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func TestRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want storage.Record
		fields.Filler{Wide: true}.Fill(t, &want)
		b, err := codec.EncodeRecord(&want)
		must(t, err)
		got, err := codec.DecodeRecord(b)
		must(t, err)
		if d := fields.Diff(got, want); len(d) > 0 {
			t.Fatal(strings.Join(d, "\n"))
		}
		clear(b)
		if d := fields.Diff(got, want); len(d) > 0 {
			t.Fatalf("the record shares memory with the bytes: %q", d)
		}
	})
}

func TestBadBytes(t *testing.T) {
	var r storage.Record
	r.ID, r.State, r.Queue = "id", ojs.StateActive, "q"
	good, err := codec.EncodeRecord(&r)
	must(t, err)
	for n := range good {
		if _, err := codec.DecodeRecord(good[:n]); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%d bytes of %d: %v", n, len(good), err)
		}
	}
	if _, err := codec.DecodeRecord(append(good, 0)); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("a byte too many: %v", err)
	}
	good[0]++
	if _, err := codec.DecodeRecord(good); !errors.Is(err, codec.ErrNewer) {
		t.Errorf("a newer format: %v", err)
	}
	good[0]--
	good[1]++
	if _, err := codec.DecodeRecord(good); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("another kind: %v", err)
	}
	if _, err := codec.EncodeRecord(&storage.Record{}); err == nil {
		t.Error("a record without a state was encoded")
	}
}

func FuzzDecode(f *testing.F) {
	var r storage.Record
	r.ID, r.State, r.Meta = "id", ojs.StateActive, map[string]any{"k": "v"}
	b, err := codec.EncodeRecord(&r)
	must(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := codec.DecodeRecord(b); err == nil {
			if again, err := codec.EncodeRecord(&r); err != nil {
				t.Errorf("what was decoded does not encode: %v", err)
			} else if back, err := codec.DecodeRecord(again); err != nil || back.ID != r.ID ||
				back.Version != r.Version {
				t.Errorf("%+v, then %+v, %v", r, back, err)
			}
		}
	})
}

// The format is stored: what version 1 has written is read for ever.
func TestVersion1(t *testing.T) {
	var want storage.Record
	want.ID, want.Queue, want.Type, want.Worker, want.State = "id", "q", "x", "w", ojs.StateActive
	want.Priority, want.Attempt, want.Version, want.Progress = -3, 2, 7, 0.5
	want.Lease, want.Timeout, want.Fingerprint, want.RateLimit = time.Minute, time.Second, "f",
		&ojs.RateLimit{Key: "k", Concurrency: 1}
	want.CreatedAt, want.LeaseUntil = time.Unix(1_767_225_600, 5).UTC(), time.Unix(1_767_225_660, 0).UTC()
	want.Args, _ = ojs.NewArgs(json.RawMessage(`{"a":1}`))
	want.Meta, want.Checkpoint = map[string]any{"m": "<"}, json.RawMessage("null")
	want.Errors = []ojs.Failure{{Attempt: 1, At: time.Unix(1, 0).UTC(), Type: "t", Message: "m",
		Code: ojs.CodeRetry}}
	stored, err := hex.DecodeString(version1)
	must(t, err)
	got, err := codec.DecodeRecord(stored)
	if err != nil || !reflect.DeepEqual(got, want) {
		b, _ := codec.EncodeRecord(&want)
		t.Errorf("%v\ngot  %+v\nwant %+v\n%x", err, got, want, b)
	}
}

const version1 = "" +
	"01010269640171017801770805040e80808080808080f03f80e0ba84bf030166016b80b085b2fecb9cc39801008580e8" +
	"ef9eca9cc39801000000000080b085b2fecb9cc39801087b2261223a317dab017b226d657461223a7b226d223a225c75" +
	"30303363227d2c227265747279223a7b224d6178417474656d707473223a302c22496e697469616c496e74657276616c" +
	"223a302c224261636b6f6666436f656666696369656e74223a302c224d6178496e74657276616c223a307d2c2274696d" +
	"656f7574223a313030303030303030302c22726174655f6c696d6974223a7b224b6579223a226b222c22436f6e637572" +
	"72656e6379223a317d7d5f7b226572726f7273223a5b7b22417474656d7074223a312c224174223a22313937302d3031" +
	"2d30315430303a30303a30315a222c2254797065223a2274222c224d657373616765223a226d222c22436f6465223a22" +
	"5245545259227d5d7d056e756c6c"
