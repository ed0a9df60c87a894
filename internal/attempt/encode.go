package attempt

import (
	"encoding/json"
	"fmt"
)

// Encode encodes what an attempt says of its job: its result, or a checkpoint.
func Encode(field string, v any) (json.RawMessage, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("ojs: %s: encoding %T: %w", field, v, err)
	}
	return raw, nil
}
