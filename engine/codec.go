package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/internal/encoded"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Encoded payloads.
//
// The storage, events, logs and listings get the encoded form, a handler gets the plain
// one. The places where one becomes the other:
//
//  1. Args are encoded at the end of prepare, after hooks, checks and fingerprint. Args
//     that come encoded, from a client with keys of its own, stay as they are.
//  2. Results and checkpoints are encoded when the handler or the worker hands them in,
//     and the details of an error when the attempt is decided on.
//  3. Args are decoded in attempt.call, before the middlewares; checkpoints when the
//     handler loads them; a whole job when a caller waits for it or asks for it.
//  4. A recurring entry is stored encoded. Its args are decoded for each run, and encoded
//     anew with the job.

// WithCodec encodes args, results, checkpoints and the details of errors before they
// reach the storage, by the codecs in order, such as codec.Gzip and codec.AES256GCM.
// Handlers get them decoded. So do Wait, Ticket.Result and Jobs.Decode; every other call,
// event, log line and span has the encoded form. docs/encryption.md has the steps.
//
// Fingerprints of unique jobs are made before the encoding. The size limits hold for what
// is encoded. An attempt whose args do not decode fails before its handler is called: for
// good, with a dead letter, or until the key is there (codec.ErrorTypeKeyNotFound).
//
// Without WithCodec jobs are stored in clear, and encoded jobs of other programs are kept
// and handed to workers as they are. The engine's own handlers cannot run them.
func WithCodec(codecs ...codec.Codec) Option {
	return func(c *config) error {
		if c.codec != nil {
			return invalid("codec", "is given twice: name all codecs in one WithCodec, in their order")
		}
		if len(codecs) == 0 {
			return invalid("codec", "has no codecs")
		}
		chain, err := codec.NewChain(codecs...)
		if err != nil {
			return invalid("codec", "%v", err)
		}
		c.codec = chain
		for _, one := range codecs {
			c.codecs = append(c.codecs, one.Encoding())
		}
		return nil
	}
}

// readable returns a job decoded, for a caller that waits for it, if that is possible.
func (c *core) readable(ctx context.Context, job *ojs.JobInfo) *ojs.JobInfo {
	if c.codec != nil {
		if plain, err := c.codec.DecodeJob(ctx, job); err == nil {
			return plain
		}
	}
	return job
}

// plainArgs returns the args of a job for its handler.
func (a *attempt) plainArgs(ctx context.Context) (args ojs.Args, decoded bool, err error) {
	rec := a.rec
	if !codec.IsEncoded(rec.Args, rec.Meta) {
		return rec.Args, false, nil
	}
	if args, err = a.r.c.codec.DecodeArgs(ctx, rec.Args, rec.Meta); err == nil {
		return args, true, nil
	}
	var e *codec.Error
	if foreign.As(err, &e) && !e.DoNotRetry() && rec.Attempt >= rec.Retry.Runs() {
		err = ojs.DeadLetter(err) // the policy might drop a job that lacks nothing but a key
	}
	return args, true, err
}

// unfit is the outcome of an attempt whose decoded args do not fit its handler. The error
// of the decoding may quote them.
func (a *attempt) unfit() policy.Outcome {
	err := fmt.Errorf(
		"ojs: the args do not fit the handler's %v; the reason is left out, since it may quote them",
		a.kind.handler.ArgsType())
	return policy.Outcome{Kind: policy.Undecodable, Err: err}
}

// encodeValue encodes a result or a checkpoint that is not larger than most bytes then.
func (c *core) encodeValue(
	ctx context.Context, field string, raw json.RawMessage, most int,
) (json.RawMessage, error) {
	if c.codec == nil || raw == nil {
		return raw, nil
	}
	raw, err := c.codec.EncodeValue(ctx, raw)
	if err == nil && len(raw) > most {
		return nil, invalidAs(ojs.InvalidCodeResultTooLarge, field,
			"encoded, has %d bytes of JSON, more than %d", len(raw), most)
	}
	return raw, err
}

// encodeGiven is encodeValue of a worker's value, which the worker may have encoded.
func (c *core) encodeGiven(
	ctx context.Context, field string, raw json.RawMessage, most int,
) (json.RawMessage, error) {
	if codec.IsEncodedValue(raw) {
		return raw, nil
	}
	return c.encodeValue(ctx, field, raw, most)
}

// decodeValue decodes the checkpoint of a job.
func (c *core) decodeValue(
	ctx context.Context, rec *storage.Record, raw json.RawMessage,
) (json.RawMessage, error) {
	if !codec.IsEncodedValue(raw) {
		return raw, nil
	}
	id, _ := rec.Meta[codec.MetaKeyID].(string)
	return c.codec.DecodeValue(ctx, raw, id)
}

// encodeDetails encodes the details of the failure that a decision stores. An outcome is
// stored even if that is not possible, without the details.
func (c *core) encodeDetails(d *policy.Decision) {
	f := d.Failure
	if c.codec == nil || f == nil || len(f.Details) == 0 || f.Details[encoded.Member] == true {
		return
	}
	// The engine's own entries are not the job's.
	details, err := c.codec.EncodeDetails(context.Background(), f.Details,
		"timeout_kind", "limit_seconds", "elapsed_seconds")
	refused := ""
	if err != nil {
		refused = foreign.ErrorText(err)
	} else if raw, err := json.Marshal(details); err != nil || len(raw) > ojs.MaxDetails {
		refused = fmt.Sprintf("encoded, %d bytes of JSON, more than %d", len(raw), ojs.MaxDetails)
	}
	if f.Details = details; refused != "" {
		f.Details = map[string]any{"details_error": refused}
	}
}

// Decode decodes Job and Checkpoint by the engine's codecs, for a worker in a program
// that has them. A worker elsewhere decodes for itself. The error is a *codec.Error, and
// the delivery then stays as it is.
func (d *Delivery) Decode(ctx context.Context) error {
	job, err := d.core.codec.DecodeJob(ctx, d.Job)
	if err != nil {
		return err
	}
	checkpoint, err := d.core.decodeValue(ctx, &d.rec, d.Checkpoint)
	if err != nil {
		return err
	}
	d.Job, d.Checkpoint = job, checkpoint
	return nil
}
