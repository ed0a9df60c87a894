package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/unicode/norm"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/internal/foreign"
	"github.com/ojsengine/ojs/internal/versions"
)

var inside = bridge.Take[bridge.Args[ojs.Args]]()

// UnicodeVersion is the version of Unicode that Fingerprint normalises strings by.
// Characters that a later version assigns may normalise differently there.
const UnicodeVersion = norm.Version

// Fingerprint returns the identity of a job under a unique policy (OJS unique jobs,
// section 4): 64 hexadecimal digits. Two jobs with the same fingerprint have the same
// type, and are equal in the policy's other dimensions, as JSON: the order of names, the
// spelling of numbers and the normal form of strings make no difference.
//
// It is the SHA-256 of the canonical JSON (RFC 8785) of an object of the dimensions, with
// every name and string in normal form C. Unlike RFC 8785, an integer beyond 2^53 keeps
// its digits: as a float64, two ids could become one. Args count in their wire form, a
// list, or as an object of the members that ArgsKeys names. Period, states and conflict
// do not count.
//
// Its error is an *ojs.InvalidError: an invalid policy, a named member that the job does
// not have, names that become equal in normal form, strings that are not Unicode, numbers
// beyond a float64.
func Fingerprint(p *ojs.UniquePolicy, job *ojs.JobInfo) (string, error) {
	if err := p.Validate(); err != nil {
		return "", err
	}
	if p.Keys&bridge.GivenFingerprint != 0 {
		return p.Key, nil
	}
	w := writers.Get().(*simpleWriter)
	defer w.release()
	text, ok := w.simple(p, job)
	if !ok {
		var err error
		if text, err = canonical(p, job); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256(text)
	var digits [2 * len(sum)]byte
	hex.Encode(digits[:], sum[:])
	return string(digits[:]), nil
}

// canonical returns the text whose hash is the fingerprint, for a policy that is valid.
func canonical(p *ojs.UniquePolicy, job *ojs.JobInfo) ([]byte, error) {
	dims := p.Dimensions()
	var buf bytes.Buffer
	c := canonicalizer{enc: jsontext.NewEncoder(&buf)}
	c.token(jsontext.BeginObject)
	args, err := projectArgs(p, job)
	if err != nil {
		return nil, err
	}
	if dims&ojs.ByArgs != 0 {
		c.member("args", args)
	}
	if p.Key != "" {
		c.text("key", p.Key)
	}
	if dims&ojs.ByMeta != 0 {
		meta, err := projectMeta(p, job)
		if err != nil {
			return nil, err
		}
		c.member("meta", meta)
	}
	if dims&ojs.ByQueue != 0 {
		c.text("queue", job.Queue)
	}
	c.text("type", job.Type)
	if v, err := versions.Parse(job.TypeVersion); err == nil && (p.Keys == 0 || dims&ojs.ByVersion != 0) {
		c.text("version", v.String())
	}
	c.token(jsontext.EndObject)
	if c.err != nil {
		field := "args"
		if c.at != "args" {
			field = "unique." + c.at
		}
		return nil, fieldError(field, reason(c.err))
	}
	text := jsontext.Value(bytes.TrimSpace(buf.Bytes()))
	// Integers are final here; a library that made float64 of them would lose digits.
	if err := text.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		return nil, fieldError("unique", reason(err))
	}
	return text, nil
}

func fieldError(field, reason string) error {
	return &ojs.InvalidError{Code: ojs.InvalidCodeUnique, Field: field, Reason: reason}
}

// reason is a library's error without its name.
func reason(err error) string {
	return "have no fingerprint: " + strings.TrimPrefix(err.Error(), "jsontext: ")
}

// member is a member of an object: its name in normal form, its value unchanged.
type member struct {
	name  string
	value jsontext.Value
}

// projectArgs returns the part of the args that counts. Missing members are an error,
// even if they would not count.
func projectArgs(p *ojs.UniquePolicy, job *ojs.JobInfo) (jsontext.Value, error) {
	if inside.Lossy(job.Args) {
		if p.Dimensions()&ojs.ByArgs != 0 {
			return nil, fieldError("args", "have no fingerprint: a string is not UTF-8")
		}
	}
	if p.ArgsKeys == nil {
		raw, err := job.Args.MarshalJSON()
		if err != nil {
			return nil, fieldError("args", err.Error())
		}
		return raw, nil
	}
	if len(p.ArgsKeys) == 0 {
		return jsontext.Value("{}"), nil
	}
	raw := jsontext.Value(job.Args.JSON())
	if raw.Kind() == '[' {
		elems, err := elements(raw)
		if err != nil {
			return nil, fieldError("args", reason(err))
		}
		if len(elems) != 1 {
			return nil, fieldError("unique.args_keys",
				"need args that are an object, or a list of one object")
		}
		raw = elems[0]
	}
	if raw.Kind() != '{' {
		return nil, fieldError("unique.args_keys", "need args that are an object, or a list of one object")
	}
	have, err := membersOf(raw)
	if err != nil {
		return nil, fieldError("args", reason(err))
	}
	return project(have, p.ArgsKeys, "args")
}

func projectMeta(p *ojs.UniquePolicy, job *ojs.JobInfo) (jsontext.Value, error) {
	var have []member
	for name, v := range job.Meta {
		a, err := ojs.NewArgs(v)
		if err != nil {
			return nil, fieldError("meta", err.Error())
		}
		name = norm.NFC.String(name)
		for _, key := range p.MetaKeys {
			if norm.NFC.String(key) == name && inside.Lossy(a) {
				return nil, fieldError("meta", "has no fingerprint: a string is not UTF-8")
			}
		}
		have = append(have, member{name, jsontext.Value(a.JSON())})
	}
	return project(have, p.MetaKeys, "meta")
}

// project returns an object of the members of args or meta that keys name.
func project(have []member, keys []string, of string) (jsontext.Value, error) {
	field := "unique." + of + "_keys"
	var buf bytes.Buffer
	c := canonicalizer{enc: jsontext.NewEncoder(&buf), at: field}
	c.token(jsontext.BeginObject)
	for _, key := range keys {
		found := 0
		for _, m := range have {
			if m.name == norm.NFC.String(key) {
				found++
				c.member(m.name, m.value)
			}
		}
		switch {
		case found == 0:
			return nil, fieldError(field,
				fmt.Sprintf("%q is no member of the %s, whose members are: %s", key, of, names(have)))
		case found > 1:
			return nil, fieldError(field, fmt.Sprintf("%q is a member of the %s twice", key, of))
		}
	}
	c.token(jsontext.EndObject)
	if c.err != nil {
		return nil, fieldError(field, reason(c.err))
	}
	return buf.Bytes(), nil
}

// names lists members for an error.
func names(of []member) string {
	const most = 10
	list := []string{"none"}
	for i, m := range of {
		if i == most {
			list = append(list[:most], "...")
			break
		}
		list = append(list[:i], foreign.Clip(m.name, 64))
	}
	return strings.Join(list, ", ")
}

func elements(raw jsontext.Value) ([]jsontext.Value, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var elems []jsontext.Value
	for dec.PeekKind() != ']' {
		v, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		elems = append(elems, v.Clone())
	}
	return elems, nil
}

func membersOf(raw jsontext.Value) ([]member, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var ms []member
	for dec.PeekKind() != '}' {
		tok, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		name := norm.NFC.String(tok.String())
		v, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		ms = append(ms, member{name, v.Clone()})
	}
	return ms, nil
}

// canonicalizer writes JSON with every string in normal form C and every integer
// unchanged. The encoder refuses repeated names, also names that normal form makes equal.
// The decoder refuses text that is not UTF-8.
type canonicalizer struct {
	enc *jsontext.Encoder
	at  string // the member being written
	err error
}

func (c *canonicalizer) token(t jsontext.Token) {
	if c.err == nil {
		c.err = c.enc.WriteToken(t)
	}
}

func (c *canonicalizer) text(name, s string) {
	if c.err != nil {
		return
	}
	c.at = name
	c.token(jsontext.String(name))
	c.token(jsontext.String(norm.NFC.String(s)))
}

func (c *canonicalizer) member(name string, raw jsontext.Value) {
	if c.err != nil {
		return
	}
	c.at = name
	c.token(jsontext.String(name))
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	for c.err == nil {
		tok, err := dec.ReadToken()
		switch {
		case foreign.Is(err, io.EOF):
			return
		case err != nil:
			c.err = err
		case tok.Kind() == '"':
			c.token(jsontext.String(norm.NFC.String(tok.String())))
		case tok.Kind() == '0':
			c.number(tok.String())
		default:
			c.token(tok)
		}
	}
}

func (c *canonicalizer) number(text string) {
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		c.err = fmt.Errorf("number %.40s is out of range", text)
		return
	}
	if text == "-0" {
		text = "0"
	}
	c.err = c.enc.WriteValue(jsontext.Value(text))
}
