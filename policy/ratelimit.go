package policy

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ojsengine/ojs"
)

// RateLimitKey returns the key of a job whose limit is by a member of its args or meta:
// ojs.WithRateLimitBy has the rule. Its error is an *ojs.InvalidError: args or meta that
// are not JSON.
func RateLimitKey(scope, member string, job *ojs.JobInfo) (string, error) {
	in, path, _ := strings.Cut(member, ".")
	var of jsontext.Value
	if in == "meta" {
		name, rest, _ := strings.Cut(path, ".")
		v, ok := job.Meta[name]
		if !ok {
			return scope, nil
		}
		if text, ok := v.(string); ok && rest == "" {
			return ojs.RateLimitKey(scope, text), nil
		}
		a, err := ojs.NewArgs(v)
		if err != nil {
			return "", limitedByError(member, err)
		}
		of, path = jsontext.Value(a.JSON()), rest
	} else {
		of = jsontext.Value(job.Args.JSON())
		if of.Kind() == '[' {
			elems, err := elements(of)
			if err != nil {
				return "", limitedByError(member, err)
			}
			if len(elems) != 1 {
				return scope, nil
			}
			of = elems[0]
		}
	}
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, ".")
		v, err := memberOf(of, name)
		if err != nil {
			return "", limitedByError(member, err)
		}
		of = v
	}
	switch of.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, of)
		if err != nil {
			return "", limitedByError(member, err)
		}
		return ojs.RateLimitKey(scope, string(text)), nil
	case '{', '[', '0', 't', 'f':
		err := of.Compact(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
		if err != nil {
			return "", limitedByError(member, err)
		}
		return ojs.RateLimitKey(scope, string(of)), nil
	}
	return scope, nil
}

// memberOf returns the last member of an object with a name, as decoding into a struct
// does, and nil if it has none or is no object.
func memberOf(of jsontext.Value, name string) (found jsontext.Value, err error) {
	if of.Kind() != '{' {
		return nil, nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(of),
		jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	for dec.PeekKind() != '}' {
		tok, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		if tok.String() != name {
			if err := dec.SkipValue(); err != nil {
				return nil, err
			}
			continue
		}
		v, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		found = v.Clone()
	}
	return found, nil
}

func limitedByError(member string, err error) error {
	return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "rate_limit_by",
		Reason: member + " cannot be read: " + strings.TrimPrefix(err.Error(), "jsontext: ")}
}
