package codec

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/encoded"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// Entries in the meta of a job whose args are encoded. They are never encoded themselves,
// and a job whose args are not encoded has none of them.
const (
	MetaEncodings = "ojs.codec.encodings" // a list of names, in the order in which they were applied
	MetaKeyID     = "ojs.codec.key_id"    // absent if no key was used
)

// Redacted stands for an encoded value wherever a person reads.
const Redacted = encoded.Redacted

const (
	plainSuffix   = "/plain"
	encodingPlain = "json/plain" // of what is not encoded
)

// aliases are the short names of encodings, which other clients write too.
var aliases = map[string]string{
	"gzip": EncodingGzip, "zstd": "zstd/plain", "snappy": "snappy/plain",
	"aes-256-gcm": EncodingEncrypted, "json": encodingPlain,
}

func canonical(name string) string {
	if long, ok := aliases[name]; ok {
		return long
	}
	return name
}

// joined is encodings as one text: the last one first, the others by their short names.
func joined(names []string) string {
	var b strings.Builder
	for i := len(names) - 1; i >= 0; i-- {
		name := names[i]
		if i < len(names)-1 {
			b.WriteByte('+')
			name = strings.TrimSuffix(name, plainSuffix)
		}
		b.WriteString(name)
	}
	return b.String()
}

// split undoes joined.
func split(text string) []string {
	if text == "" {
		return nil
	}
	names := strings.Split(text, "+")
	slices.Reverse(names)
	return names
}

// value is an encoded value in JSON.
type value struct {
	Encoded  bool   `json:"ojs_encoded"`
	Encoding string `json:"encoding"`
	KeyID    string `json:"key_id,omitempty"`
	Data     string `json:"data"`
}

func valueOf(p Payload) value {
	return value{true, joined(p.Encodings), p.KeyID, base64.StdEncoding.EncodeToString(p.Data)}
}

// payload is what a value holds.
func (v *value) payload() (Payload, error) {
	data, err := decodeBase64(v.Data)
	return Payload{Data: data, Encodings: split(v.Encoding), KeyID: v.KeyID}, err
}

// decodeBase64 reads either alphabet, padded or not.
func decodeBase64(text string) ([]byte, error) {
	text = strings.TrimRight(text, "=")
	data, err := base64.RawStdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "/").Replace(text))
	if err != nil {
		return nil, failed("the data of the payload is not base64")
	}
	return data, nil
}

func marshal(v any) (json.RawMessage, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, &Error{ErrorTypeEncodeFailed, err}
	}
	return raw, nil
}

// IsEncoded reports whether args are encoded, as they themselves or the meta of their job
// say.
func IsEncoded(args ojs.Args, meta map[string]any) bool {
	if args.Encoded() {
		return true
	}
	if len(meta) == 0 {
		return false
	}
	return meta[MetaEncodings] != nil || meta[encoded.Member] == true
}

// IsEncodedValue reports whether a result or a checkpoint is encoded.
func IsEncodedValue(raw json.RawMessage) bool { return encoded.Value(raw) }

// PlainMeta removes from meta the entries of encoded args. It returns nil if none are
// left.
func PlainMeta(meta map[string]any) map[string]any {
	delete(meta, MetaEncodings)
	delete(meta, MetaKeyID)
	delete(meta, encoded.Member)
	if len(meta) == 0 {
		return nil
	}
	return meta
}

// EncodeArgs encodes args, and returns them with the meta that belongs to them. The given
// meta stays as it is. Args that the whole chain leaves out are returned as they are, and
// meta without the entries of a codec.
//
// The plaintext is the wire form of the args, a list. A line feed before its last bracket
// says that the args are the only element. JSON takes no notice of it.
func (c *Chain) EncodeArgs(
	ctx context.Context, args ojs.Args, meta map[string]any,
) (ojs.Args, map[string]any, error) {
	plain := []byte(args.JSON())
	switch {
	case string(plain) == "null":
		plain = []byte(onlyBegin + onlyEnd)
	case plain[0] != '[':
		plain = slices.Concat([]byte(onlyBegin), plain, []byte(onlyEnd))
	}
	p, err := c.Encode(ctx, plain)
	if err != nil {
		return args, meta, err
	}
	meta = PlainMeta(maps.Clone(meta))
	if len(p.Encodings) == 0 {
		return args, meta, nil
	}
	if meta == nil {
		meta = make(map[string]any, 2)
	}
	names := make([]any, len(p.Encodings))
	for i, name := range p.Encodings {
		names[i] = name
	}
	if meta[MetaEncodings] = names; p.KeyID != "" {
		meta[MetaKeyID] = p.KeyID
	}
	p.KeyID = ""
	raw, err := marshal([]value{valueOf(p)})
	if err != nil {
		return args, meta, err
	}
	if args, err = ojs.NewArgs(raw); err != nil {
		return args, meta, &Error{ErrorTypeEncodeFailed, err}
	}
	return args, meta, nil
}

// onlyBegin and onlyEnd are around args that are not a list.
const (
	onlyBegin = "["
	onlyEnd   = "\n]"
)

// DecodeArgs decodes args. Args that are not encoded are returned as they are.
func (c *Chain) DecodeArgs(ctx context.Context, args ojs.Args, meta map[string]any) (ojs.Args, error) {
	if !IsEncoded(args, meta) {
		return args, nil
	}
	p, err := payloadOf(args, meta)
	if err != nil {
		return ojs.Args{}, err
	}
	plain, err := c.Decode(ctx, p)
	if err != nil {
		return ojs.Args{}, err
	}
	return plainArgs(plain)
}

// plainArgs makes args of their plaintext.
func plainArgs(plain []byte) (args ojs.Args, err error) {
	if len(plain) >= 2 && plain[0] == '[' {
		only, marked := strings.CutSuffix(string(plain[1:]), onlyEnd)
		switch {
		case marked && only == "":
			return ojs.Args{}, nil
		case marked && !strings.ContainsAny(only[:1], " \t\r\n") && json.Valid([]byte(only)):
			if args, err = ojs.NewArgs(json.RawMessage(only)); err == nil {
				return args, nil
			}
		}
	}
	if args.UnmarshalJSON(plain) != nil {
		return ojs.Args{}, failed("the decoded args are not a list in JSON")
	}
	return args, nil
}

// payloadOf finds the payload of encoded args. The entries of meta override the members
// of the args.
func payloadOf(args ojs.Args, meta map[string]any) (p Payload, err error) {
	if raw := []byte(args.JSON()); encoded.Args(raw) {
		var list []value
		if json.Unmarshal(raw, &list) != nil || len(list) != 1 {
			return p, failed("the encoded args do not have the members encoding and data")
		}
		p, err = list[0].payload()
	} else {
		var list []string
		if json.Unmarshal(raw, &list) != nil || len(list) != 1 {
			return p, failed("the meta lists encodings, but the args are no payload")
		}
		p.Data, err = decodeBase64(list[0])
		p.Encodings = names(meta["encoding"])
		p.KeyID = first(meta, "key_id", "encryption_key_id")
	}
	if err != nil {
		return p, err
	}
	if list := names(meta[MetaEncodings]); list != nil {
		p.Encodings = list
	}
	if id := first(meta, MetaKeyID); id != "" {
		p.KeyID = id
	}
	if len(p.Encodings) == 0 {
		return p, failed("the payload names no encoding")
	}
	return p, nil
}

// names reads encodings in meta: a list in the order of their application, or a text in
// the reverse order.
func names(v any) (list []string) {
	switch v := v.(type) {
	case string:
		return split(v)
	case []any:
		for _, name := range v {
			s, _ := name.(string)
			list = append(list, s)
		}
	case []string:
		return v
	}
	return list
}

// first is the first entry of meta that is a text.
func first(meta map[string]any, names ...string) string {
	for _, name := range names {
		if s, _ := meta[name].(string); s != "" {
			return s
		}
	}
	return ""
}

// EncodeValue encodes a result or a checkpoint. The whole chain may leave it out.
func (c *Chain) EncodeValue(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	p, err := c.Encode(ctx, raw)
	if err != nil || len(p.Encodings) == 0 {
		return raw, err
	}
	return marshal(valueOf(p))
}

// DecodeValue decodes a result or a checkpoint. If the value does not name its key,
// keyID is tried: that of the job's args. A value that is not encoded is returned as it
// is.
func (c *Chain) DecodeValue(ctx context.Context, raw json.RawMessage, keyID string) (json.RawMessage, error) {
	if !encoded.Value(raw) {
		return raw, nil
	}
	var v value
	if json.Unmarshal(raw, &v) != nil {
		return nil, failed("the encoded value does not have the members encoding and data")
	}
	p, err := v.payload()
	if err != nil {
		return nil, err
	}
	if p.KeyID == "" {
		p.KeyID = keyID
	}
	if len(p.Encodings) == 0 {
		return nil, failed("the payload names no encoding")
	}
	plain, err := c.Decode(ctx, p)
	if err != nil {
		return nil, err
	}
	if !json.Valid(plain) {
		return nil, failed("the decoded value is not JSON")
	}
	return plain, nil
}

// EncodeDetails encodes the details of an error, but for the members that clear names.
func (c *Chain) EncodeDetails(
	ctx context.Context, details map[string]any, clear ...string,
) (map[string]any, error) {
	hidden, open := make(map[string]any, len(details)), make(map[string]any)
	for name, v := range details {
		if slices.Contains(clear, name) {
			open[name] = v
		} else {
			hidden[name] = v
		}
	}
	if len(hidden) == 0 {
		return details, nil
	}
	plain, err := marshal(hidden)
	if err != nil {
		return nil, err
	}
	p, err := c.Encode(ctx, plain)
	if err != nil || len(p.Encodings) == 0 {
		return details, err
	}
	v := valueOf(p)
	open[encoded.Member], open["encoding"], open["data"] = true, v.Encoding, v.Data
	if v.KeyID != "" {
		open["key_id"] = v.KeyID
	}
	return open, nil
}

// DecodeDetails decodes the details of an error. Details that are not encoded are
// returned as they are.
func (c *Chain) DecodeDetails(
	ctx context.Context, details map[string]any, keyID string,
) (map[string]any, error) {
	if details[encoded.Member] != true {
		return details, nil
	}
	raw, err := json.Marshal(details)
	if err != nil {
		return nil, failed("the details are not JSON")
	}
	if raw, err = c.DecodeValue(ctx, raw, keyID); err != nil {
		return nil, err
	}
	decoded, err := jsonvalue.Decode(raw)
	plain, ok := decoded.(map[string]any)
	if err != nil || !ok {
		return nil, failed("the decoded details are not an object")
	}
	for name, v := range details {
		switch name {
		case encoded.Member, "encoding", "key_id", "data":
		default:
			plain[name] = v
		}
	}
	return plain, nil
}

// DecodeJob returns a copy of a job with its args, its result and the details of its
// errors decoded, and without the meta entries of a codec. Plain parts stay as they are.
// If anything does not decode there is no copy, and the error is an *Error.
func (c *Chain) DecodeJob(ctx context.Context, job *ojs.JobInfo) (*ojs.JobInfo, error) {
	j := job.Clone()
	keyID := first(j.Meta, MetaKeyID)
	var err error
	if j.Args, err = c.DecodeArgs(ctx, j.Args, j.Meta); err != nil {
		return nil, err
	}
	j.Meta = PlainMeta(j.Meta)
	if j.Result, err = c.DecodeValue(ctx, j.Result, keyID); err != nil {
		return nil, err
	}
	if j.Error != nil {
		if j.Error.Details, err = c.DecodeDetails(ctx, j.Error.Details, keyID); err != nil {
			return nil, err
		}
	}
	for i := range j.Errors {
		if j.Errors[i].Details, err = c.DecodeDetails(ctx, j.Errors[i].Details, keyID); err != nil {
			return nil, err
		}
	}
	return j, nil
}
