// Package encoded recognises what package codec has encoded, for packages that must not
// take it for a value.
package encoded

import (
	"bytes"
	"encoding/json"
)

// Redacted stands for an encoded value in logs, spans and events.
const Redacted = "[encrypted]"

// Member is the member that marks an encoded value.
const Member = "ojs_encoded"

var (
	quoted = []byte(`"` + Member + `"`)
	usual  = []byte(`{"` + Member + `":true,`) // how package codec begins a value
)

// Value reports whether JSON is an encoded value: an object whose ojs_encoded is true.
func Value(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return false
	}
	if bytes.HasPrefix(raw, usual) {
		return true
	}
	if !bytes.Contains(raw, quoted) {
		return false
	}
	var v struct {
		Encoded bool `json:"ojs_encoded"`
	}
	return json.Unmarshal(raw, &v) == nil && v.Encoded
}

// Args reports whether JSON is an array of one encoded value.
func Args(raw []byte) bool {
	if len(raw) == 0 || raw[0] != '[' {
		return false
	}
	if bytes.HasPrefix(raw[1:], usual) {
		return true
	}
	if !bytes.Contains(raw, quoted) {
		return false
	}
	var list []json.RawMessage
	return json.Unmarshal(raw, &list) == nil && len(list) == 1 && Value(list[0])
}
