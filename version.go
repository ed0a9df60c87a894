package ojs

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/ojsengine/ojs/internal/versions"
)

// WithVersion sets the version of the job's type, "major.minor" without leading zeros. A
// versioned job runs only where a handler takes its version (handler.WithVersions), and
// waits otherwise, until it expires or such an engine comes. "2" is 2.0. A job without a
// version runs with any handler of its type.
func WithVersion(version string) Option {
	if err := validateVersion(version); err != nil {
		return func(o *Options) { o.fail(err) }
	}
	return func(o *Options) { o.TypeVersion = version }
}

// validateVersion checks a version as WithVersion takes it.
func validateVersion(version string) error {
	if _, err := versions.Parse(version); err != nil {
		return &InvalidError{Code: InvalidCodeOption, Field: "version",
			Reason: fmt.Sprintf("%q: %s", clip([]byte(version)), err)}
	}
	return nil
}

// decodeVersion reads the attribute "version": a text "major.minor", or an integer.
func decodeVersion(v json.RawMessage) (string, error) {
	var n uint64
	if json.Unmarshal(v, &n) == nil {
		s := strconv.FormatUint(n, 10)
		return s, validateVersion(s)
	}
	s, err := decodeName(v)
	if err == nil && !strings.Contains(s, ".") {
		err = fmt.Errorf("%q is neither major.minor, such as \"2.1\", nor an integer", clip([]byte(s)))
	}
	if err == nil {
		err = validateVersion(s)
	}
	return s, err
}

// wireVersion is a version as it was sent: an integer if it has no minor.
type wireVersion string

func (v wireVersion) MarshalJSON() ([]byte, error) {
	if _, err := strconv.ParseUint(string(v), 10, 64); err == nil {
		return []byte(v), nil
	}
	return json.Marshal(string(v))
}
