package attempt

import (
	"encoding/json"
	"fmt"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/jsonvalue"
)

// EncodeResult encodes a result. A result that is too large or too deep is refused with
// an *ojs.InvalidError.
func EncodeResult(v any) (json.RawMessage, error) { return encode("result", v, jsonvalue.MaxResult) }

// EncodeCheckpoint encodes a checkpoint as EncodeResult does a result.
func EncodeCheckpoint(v any) (json.RawMessage, error) {
	return encode("checkpoint", v, jsonvalue.MaxCheckpoint)
}

func encode(field string, v any, most int) (raw json.RawMessage, err error) {
	defer func() {
		if r := recover(); r != nil { // a MarshalJSON of the caller's
			raw, err = nil, fmt.Errorf("ojs: %s: encoding %T panicked: %s", field, v, foreign.Text(r))
		}
	}()
	deep := &ojs.InvalidError{Code: ojs.InvalidCodeResultTooLarge, Field: field,
		Reason: fmt.Sprintf("is nested deeper than %d", jsonvalue.MaxDepth)}
	if jsonvalue.DeeperThan(v, jsonvalue.MaxDepth) {
		return nil, deep
	}
	if jsonvalue.LargerThan(v, most) {
		return nil, &ojs.InvalidError{Code: ojs.InvalidCodeResultTooLarge, Field: field,
			Reason: fmt.Sprintf("has more than %d bytes of JSON", most)}
	}
	raw, err = json.Marshal(v)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ojs: %s: encoding %T: %w", field, v, err)
	case len(raw) > most:
		return nil, &ojs.InvalidError{Code: ojs.InvalidCodeResultTooLarge, Field: field,
			Reason: fmt.Sprintf("has %d bytes of JSON, more than %d", len(raw), most)}
	case !jsonvalue.Bounded(v, jsonvalue.MaxDepth) && jsonvalue.Depth(raw) > jsonvalue.MaxDepth:
		return nil, deep
	}
	return raw, nil
}
