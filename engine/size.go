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
	return tooLarge(ojs.InvalidCodeTooLarge, "envelope", args, most)
}

// tooLarge refuses a value that encodes to more bytes than most. It gives the size, which
// takes encoding the value, unless that is much larger still.
func tooLarge(code ojs.InvalidCode, field string, v any, most int) error {
	const much = 16 << 20 // bytes, from which on the size is not found out
	size := fmt.Sprintf("more than %d bytes of JSON", most)
	args, made := v.(ojs.Args)
	if !made && !jsonvalue.LargerThan(v, much) {
		var err error
		args, err = ojs.NewArgs(v)
		made = err == nil
	}
	if made && !insideArgs.LargerThan(args, much) {
		size = fmt.Sprintf("%d bytes of JSON, more than %d", args.Len(), most)
	}
	return invalidAs(code, field, "has %s: store the data elsewhere, and enqueue its name", size)
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
		err := checkJSON(j.Meta, ojs.MaxMeta, "meta", ojs.InvalidCodeMeta, ojs.InvalidCodeMetaTooLarge)
		if err != nil {
			return err
		}
	}
	const least = 4096 // more than the names, times and numbers of an envelope
	bound := least + meta + insideArgs.SizeBound(j.Args)
	for name, value := range j.Extra {
		bound += 6*len(name) + 6*len(value)
	}
	for _, pattern := range j.Retry.NonRetryableErrors {
		bound += 6*len(pattern) + 3
	}
	if bound <= ojs.MaxEnvelope {
		return nil
	}
	// The args, which may be large, are counted and not encoded once more.
	rest := *j
	rest.Args = ojs.Args{}
	raw, err := json.Marshal(&rest)
	if err != nil {
		return invalidAs(ojs.InvalidCodeEnvelope, "envelope", "%v", err)
	}
	size := len(raw)
	if size+insideArgs.SizeBound(j.Args) <= ojs.MaxEnvelope {
		return nil
	}
	switch args := j.Args.JSON(); {
	case string(args) == "null":
	case args[0] == '[':
		size += len(args) - len("[]") // which the rest has
	default:
		size += len(args)
	}
	if size > ojs.MaxEnvelope {
		return invalidAs(ojs.InvalidCodeTooLarge, "envelope",
			"has %d bytes of JSON, more than %d: store the data elsewhere, and enqueue its name",
			size, ojs.MaxEnvelope)
	}
	return nil
}

// checkJSON refuses a value that does not encode, or to more bytes than most.
func checkJSON(v any, most int, field string, bad, large ojs.InvalidCode) error {
	raw, err := json.Marshal(v)
	switch {
	case err != nil:
		return invalidAs(bad, field, "%v", err)
	case len(raw) > most:
		return invalidAs(large, field, "has %d bytes of JSON, more than %d: store the data elsewhere, and "+
			"enqueue its name", len(raw), most)
	}
	return nil
}
