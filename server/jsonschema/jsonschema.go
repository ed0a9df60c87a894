// Package jsonschema checks the args of jobs by JSON schemas of draft 2020-12, for
// server.WithSchemas.
//
//	srv, err := server.New(eng, server.WithSchemas(jsonschema.New()))
package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/ojsengine/ojs/server"
)

// Compiler compiles schemas. It reads no file and no address: a schema may refer to parts
// of itself only.
type Compiler struct{}

var _ server.SchemaCompiler = Compiler{}

// New makes a Compiler.
func New() Compiler { return Compiler{} }

// Compile implements server.SchemaCompiler.
func (Compiler) Compile(uri string, schema json.RawMessage) (server.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("ojs: jsonschema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nothing{})
	if err := c.AddResource(uri, doc); err != nil {
		return nil, fmt.Errorf("ojs: jsonschema: %w", err)
	}
	compiled, err := c.Compile(uri)
	if err != nil {
		return nil, fmt.Errorf("ojs: jsonschema: %w", err)
	}
	return schemaOf{compiled}, nil
}

// nothing loads nothing.
type nothing struct{}

// Load implements jsonschema.URLLoader.
func (nothing) Load(url string) (any, error) {
	return nil, fmt.Errorf("ojs: jsonschema: %s: a schema refers to parts of itself only", url)
}

type schemaOf struct{ compiled *jsonschema.Schema }

// maxFaults is how many faults a Check returns.
const maxFaults = 100

// Check implements server.Schema.
func (s schemaOf) Check(value json.RawMessage) []server.SchemaFault {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return []server.SchemaFault{{Path: "$", Message: "is not JSON"}}
	}
	var bad *jsonschema.ValidationError
	if err := s.compiled.Validate(v); !errors.As(err, &bad) {
		return nil
	}
	var list []server.SchemaFault
	collect(bad, &list)
	return list
}

// collect lists the innermost errors.
func collect(e *jsonschema.ValidationError, list *[]server.SchemaFault) {
	for _, cause := range e.Causes {
		collect(cause, list)
	}
	if len(e.Causes) > 0 || len(*list) == maxFaults {
		return
	}
	words := e.ErrorKind.KeywordPath()
	*list = append(*list, server.SchemaFault{Path: path(e.InstanceLocation), Message: text(e, words),
		SchemaPath: fragment(e.SchemaURL) + "/" + strings.Join(words, "/")})
}

var printer = message.NewPrinter(language.English)

// text says what is wrong. The words of the library quote values for some keywords: these
// are named only.
func text(e *jsonschema.ValidationError, words []string) string {
	switch keyword := strings.Join(words, "/"); keyword {
	case "required", "type", "additionalProperties", "minItems", "maxItems", "uniqueItems", "minProperties",
		"maxProperties", "minLength", "maxLength", "dependentRequired", "contains", "minContains",
		"maxContains":
		return e.ErrorKind.LocalizedString(printer)
	case "":
		return "is not allowed"
	default:
		return "does not fit " + keyword
	}
}

// fragment is the part of a schema's address that is in the schema.
func fragment(url string) string {
	_, after, _ := strings.Cut(url, "#")
	return "#" + after
}

// path is a place in a value, such as $.items[0].id.
func path(location []string) string {
	var b strings.Builder
	b.WriteByte('$')
	for _, name := range location {
		if _, err := strconv.Atoi(name); err == nil {
			b.WriteString("[" + name + "]")
		} else {
			b.WriteString("." + name)
		}
	}
	return b.String()
}
