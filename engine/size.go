package engine

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/jsonvalue"
	"github.com/ojsengine/ojs/internal/plain"
)

var insideArgs = bridge.Take[bridge.Args[ojs.Args]]()

// checkArgs refuses args that are sure to make their job too large, before they are
// encoded. The bound of a plain value costs a fraction of a walk over it.
func checkArgs(args any, most int) error {
	larger := false
	switch args := args.(type) {
	case nil:
	case ojs.Args:
		larger = insideArgs.LargerThan(args, most)
	default:
		p := plain.Of(reflect.TypeOf(args))
		larger = (p == nil || p.Bound(args) > most) && jsonvalue.LargerThan(args, most)
	}
	if !larger {
		return nil
	}
	return &ojs.InvalidError{Code: ojs.InvalidCodeTooLarge, Field: "envelope",
		Reason: fmt.Sprintf("has more than %d bytes of JSON", most)}
}

// maxArgs is how large args may be before a codec makes them smaller.
func (c *core) maxArgs() int {
	if c.codec != nil {
		return codec.MaxPlaintext
	}
	return ojs.MaxEnvelope
}

// checkSize refuses a job whose meta or envelope is too large. Only one that may be is
// encoded to know.
func checkSize(j *ojs.JobInfo) error {
	meta := jsonvalue.SizeBound(j.Meta)
	if meta > ojs.MaxMeta {
		raw, err := json.Marshal(j.Meta)
		if err != nil {
			return &ojs.InvalidError{Code: ojs.InvalidCodeMeta, Field: "meta", Reason: err.Error()}
		}
		if len(raw) > ojs.MaxMeta {
			return &ojs.InvalidError{Code: ojs.InvalidCodeMetaTooLarge, Field: "meta",
				Reason: tooLarge(len(raw), ojs.MaxMeta)}
		}
	}
	const rest = 4096 // more than the names, times and numbers of an envelope
	bound := rest + meta + insideArgs.SizeBound(j.Args)
	for name, value := range j.Extra {
		bound += 6*len(name) + 6*len(value)
	}
	for _, pattern := range j.Retry.NonRetryableErrors {
		bound += 6*len(pattern) + 3
	}
	if bound <= ojs.MaxEnvelope {
		return nil
	}
	raw, err := json.Marshal(j)
	if err != nil {
		return &ojs.InvalidError{Code: ojs.InvalidCodeEnvelope, Field: "envelope", Reason: err.Error()}
	}
	if len(raw) > ojs.MaxEnvelope {
		return &ojs.InvalidError{Code: ojs.InvalidCodeTooLarge, Field: "envelope",
			Reason: tooLarge(len(raw), ojs.MaxEnvelope)}
	}
	return nil
}

func tooLarge(n, most int) string { return fmt.Sprintf("has %d bytes of JSON, more than %d", n, most) }
