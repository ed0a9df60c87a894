package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ojsengine/ojs"
)

// RateLimitKey returns the key of a job whose limit is by a member of its args or meta:
// ojs.WithRateLimitBy has the rule. Its error is an *ojs.InvalidError: args or meta that
// are not JSON.
func RateLimitKey(scope, member string, job *ojs.JobInfo) (string, error) {
	text, ok, err := memberText(member, job)
	if err != nil {
		return "", memberError("rate_limit_by", member, err)
	}
	if !ok {
		return scope, nil
	}
	return ojs.RateLimitKey(scope, text), nil
}

// FairnessKey returns the fairness key of a job that is shared by a member of its args or
// meta, "" if it has none: ojs.WithFairnessBy has the rule. Its error is an
// *ojs.InvalidError: args or meta that are not JSON.
func FairnessKey(member string, job *ojs.JobInfo) (string, error) {
	text, _, err := memberText(member, job)
	if err != nil {
		return "", memberError("fairness_by", member, err)
	}
	if text != "" && (ojs.Fairness{Key: text}).Validate() != nil {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:]), nil
	}
	return text, nil
}

// memberText returns the value of a member of a job's args or meta: a string as its text,
// any other value as its JSON. It reports false if there is none, or null.
func memberText(member string, job *ojs.JobInfo) (text string, ok bool, err error) {
	in, path, _ := strings.Cut(member, ".")
	var of jsontext.Value
	if in == "meta" {
		name, rest, _ := strings.Cut(path, ".")
		v, ok := job.Meta[name]
		if !ok {
			return "", false, nil
		}
		if text, ok := v.(string); ok && rest == "" {
			return text, true, nil
		}
		a, err := ojs.NewArgs(v)
		if err != nil {
			return "", false, err
		}
		of, path = jsontext.Value(a.JSON()), rest
	} else {
		of = jsontext.Value(job.Args.JSON())
		if of.Kind() == '[' {
			elems, err := elements(of)
			if err != nil || len(elems) != 1 {
				return "", false, err
			}
			of = elems[0]
		}
	}
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, ".")
		if of, err = memberOf(of, name); err != nil {
			return "", false, err
		}
	}
	switch of.Kind() {
	case '"':
		b, err := jsontext.AppendUnquote(nil, of)
		return string(b), err == nil, err
	case '{', '[', '0', 't', 'f':
		err := of.Compact(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
		return string(of), err == nil, err
	}
	return "", false, nil
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

func memberError(field, member string, err error) error {
	return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: field,
		Reason: member + " cannot be read: " + strings.TrimPrefix(err.Error(), "jsontext: ")}
}
