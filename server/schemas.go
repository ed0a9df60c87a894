package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/internal/draft"
	"github.com/ojsengine/ojs/storage"
)

// Schemas of args (F024, F093, V010). The storage keeps them. A SchemaCompiler knows what
// they mean: this package has no JSON Schema of its own.

// SchemaCompiler compiles JSON schemas of draft 2020-12. Package
// github.com/ojsengine/ojs/server/jsonschema has one.
type SchemaCompiler interface {
	// Compile compiles a schema, or says why it is none. It reads no address that the
	// schema refers to.
	Compile(uri string, schema json.RawMessage) (Schema, error)
}

// Schema checks values.
type Schema interface {
	// Check returns what is wrong with a value, none if it is valid.
	Check(value json.RawMessage) []SchemaFault
}

// SchemaFault is one thing that is wrong with args. It quotes no value.
type SchemaFault struct {
	Path       string `json:"path"` // such as "$[0].to"
	Message    string `json:"message"`
	SchemaPath string `json:"schema_path,omitempty"`
}

// WithSchemas checks the args of new jobs against the schemas that are registered for
// them. Without it the paths of schemas answer 422.
func WithSchemas(c SchemaCompiler) Option {
	return func(conf *config) error {
		if c == nil {
			return draft.Invalid("schemas", "is nil")
		}
		conf.schemas = c
		return nil
	}
}

var schemaRoutes = []route{
	{method: http.MethodPost, path: "/schemas", need: permOperate, whole: true, body: requiredBody,
		serve: (*Server).postSchema},
	{method: http.MethodGet, path: "/schemas", need: permInspect, serve: (*Server).listSchemas},
	{method: http.MethodGet, path: "/schemas/{uri}", need: permInspect, serve: (*Server).getSchema},
	{method: http.MethodDelete, path: "/schemas/{uri}", need: permOperate, whole: true,
		serve: (*Server).deleteSchema},
	{method: http.MethodPut, path: "/admin/schemas/{type}/{version}", need: permAdminWrite, whole: true,
		body:  requiredBody,
		serve: (*Server).putVersionSchema},
	{method: http.MethodGet, path: "/admin/schemas", need: permAdminRead,
		serve: (*Server).listVersionSchemas},
	{method: http.MethodGet, path: "/admin/schemas/{type}", need: permAdminRead,
		serve: (*Server).listVersionSchemas},
	{method: http.MethodGet, path: "/admin/routing/{type}", need: permAdminRead,
		serve: (*Server).versionRouting},
	{method: http.MethodPut, path: "/admin/routing/{type}", need: permAdminWrite, body: requiredBody,
		serve: (*Server).versionRouting},
}

// schemaDoc is a schema as it is stored.
type schemaDoc struct {
	URI        string          `json:"uri"`
	Type       string          `json:"type"`
	Version    json.RawMessage `json:"version"` // in the type in which it came (F182)
	Schema     json.RawMessage `json:"schema"`
	CreatedAt  time.Time       `json:"created_at"`
	Compatible json.RawMessage `json:"compatible_with,omitempty"`

	digest string // of URI and Schema
}

const schemaPrefix = "server/schema/"

// schemas are those that are registered.
type schemas struct {
	docs cached[[]schemaDoc] // by their URIs

	mu   sync.Mutex        // guards done
	done map[string]Schema // compiled ones, by their digests
}

func (s *Server) offersSchemas() bool { return s.conf.schemas != nil }

func noSchemas() error {
	return unsupported("this server checks no schemas: it has no compiler for them")
}

// registered returns the schemas. fresh reads them from the storage in any case.
func (s *Server) registered(ctx context.Context, fresh bool) ([]schemaDoc, error) {
	if !s.offersSchemas() {
		return nil, noSchemas()
	}
	return s.schemas.docs.get(s.now(), fresh, func() ([]schemaDoc, error) { return s.readSchemas(ctx) })
}

// readSchemas reads the schemas from the storage.
func (s *Server) readSchemas(ctx context.Context) (docs []schemaDoc, err error) {
	for v, err := range s.documents().EachValue(ctx, s.now(), storage.DocumentQuery{Prefix: schemaPrefix}) {
		if err != nil {
			return nil, err
		}
		var doc schemaDoc
		if json.Unmarshal(v.Data, &doc) == nil {
			doc.digest = digest(doc.URI, string(doc.Schema))
			docs = append(docs, doc)
		}
	}
	slices.SortFunc(docs, func(a, b schemaDoc) int { return strings.Compare(a.URI, b.URI) })
	return docs, nil
}

// compiled returns a schema for use.
func (s *Server) compiled(doc *schemaDoc) (Schema, error) {
	r := &s.schemas
	r.mu.Lock()
	schema := r.done[doc.digest]
	r.mu.Unlock()
	if schema != nil {
		return schema, nil
	}
	schema, err := s.conf.schemas.Compile(doc.URI, doc.Schema)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done == nil || len(r.done) >= manySchemas {
		r.done = make(map[string]Schema)
	}
	r.done[doc.digest] = schema
	return schema, nil
}

const manySchemas = 1000

// checkSchema checks the args of a job against the schema that it names, or else that of
// its version, or else the latest of its type (F024).
func (s *Server) checkSchema(ctx context.Context, jobType, version, uri string, args ojs.Args,
	meta map[string]any) error {
	if !s.offersSchemas() {
		return nil
	}
	docs, err := common(ctx, s, func(ctx context.Context, s *Server) ([]schemaDoc, error) {
		return s.registered(ctx, false)
	})
	if err != nil {
		return err
	}
	var doc *schemaDoc
	for i := range docs {
		d := &docs[i]
		switch {
		case uri != "":
			if d.URI == uri {
				doc = d
			}
		case d.Type != jobType:
		case version != "":
			if d.versionText() == version || d.versionText()+".0" == version ||
				d.versionText() == version+".0" {
				doc = d
			}
		case doc == nil || d.CreatedAt.After(doc.CreatedAt):
			doc = d
		}
	}
	if doc == nil || codec.IsEncoded(args, meta) { // K014
		return nil
	}
	schema, err := s.compiled(doc)
	if err != nil {
		s.conf.log.Warn("a registered schema does not compile", "uri", doc.URI, "error", err)
		return nil
	}
	value, err := args.MarshalJSON()
	if err != nil {
		return err
	}
	prefix := "$"
	if one := elements(value); len(one) == 1 && aboutObject(doc.Schema) {
		value, prefix = one[0], "$[0]"
	}
	faults := schema.Check(value)
	if len(faults) == 0 {
		return nil
	}
	list := make([]obj, len(faults))
	for i, f := range faults {
		list[i] = obj{"path", prefix + strings.TrimPrefix(f.Path, "$"), "message", f.Message}.
			opt("schema_path", f.SchemaPath)
	}
	r := refuse(http.StatusBadRequest, codeSchema, "the args do not fit the schema %s of job type %s",
		clip(doc.URI), jobType)
	return r.with("validation_errors", list).with("field", "args").with("schema", doc.URI)
}

// aboutObject reports whether a schema describes an object, and so the only element of
// args that have one.
func aboutObject(schema json.RawMessage) bool {
	var top struct {
		Type       any             `json:"type"`
		Properties json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &top) != nil {
		return false
	}
	return top.Type == "object" || top.Type == nil && top.Properties != nil
}

// versionText is the version as a text.
func (d *schemaDoc) versionText() string {
	var text string
	if len(d.Version) > 0 && decodeText(d.Version, &text) {
		return text
	}
	return string(d.Version)
}

// head is a schema without its JSON.
func (d *schemaDoc) head() obj {
	return obj{"uri", d.URI, "type", d.Type, "version", raw(d.Version), "created_at", d.CreatedAt}
}

// registerSchema stores a schema that compiles.
func (s *Server) registerSchema(c *call, doc schemaDoc) (replaced bool, err error) {
	before, err := s.registered(c.ctx, true)
	if err != nil {
		return false, err
	}
	if _, err := s.conf.schemas.Compile(doc.URI, doc.Schema); err != nil {
		return false, invalid("schema", "is no JSON schema of draft 2020-12").expected("a JSON schema")
	}
	doc.CreatedAt = s.now()
	replaced = slices.ContainsFunc(before, func(d schemaDoc) bool { return d.URI == doc.URI })
	err = s.documents().PutValues(c.ctx, s.now(), []document.Value{{Key: schemaPrefix + digest(doc.URI),
		Data: marshal(doc)}})
	if err != nil {
		return replaced, err
	}
	c.audit("schema.registered", clip(doc.URI))
	_, err = s.registered(c.ctx, true)
	return replaced, err
}

// maxSchema is the largest schema, in bytes.
const maxSchema = 128 << 10

// maxCompatible is the largest compatible_with, in bytes.
const maxCompatible = 4 << 10

// version reads the version of a schema: a text or an integer, which is answered as it
// came (F182).
func (in *input) version(v []byte) json.RawMessage {
	switch {
	case v[0] != '"':
		in.integer("version", 0, 0, 1<<53)
	case len(v) > 255:
		in.fail("version", "is too long", "at most 255 bytes")
	default:
		in.name("version")
	}
	return json.RawMessage(slices.Clone(v))
}

// schemaOf reads the schema of a body.
func schemaOf(in *input, names ...string) json.RawMessage {
	for _, name := range names {
		v := in.get(name)
		switch {
		case v == nil:
			continue
		case v[0] != '{' && v[0] != 't' && v[0] != 'f':
			in.fail(name, "is no JSON schema", "object")
		case len(v) > maxSchema:
			if in.err == nil {
				in.err = tooLarge(codeTooLarge, name, int64(len(v)), maxSchema)
			}
		}
		return json.RawMessage(slices.Clone(v))
	}
	in.require(names[0])
	return nil
}

// postSchema answers POST /schemas (F093).
func (s *Server) postSchema(c *call) error {
	if !s.offersSchemas() {
		return noSchemas()
	}
	in := c.in()
	doc := schemaDoc{URI: in.name("uri"), Type: in.name("type"), Schema: schemaOf(in, "schema")}
	in.require("version")
	if v := in.get("version"); v != nil {
		doc.Version = in.version(v)
	}
	if in.err != nil {
		return in.err
	}
	if u, err := url.Parse(doc.URI); err != nil || u.Scheme == "" || len(doc.URI) > 2048 {
		return invalid("uri", "is no absolute URI").received(clip(doc.URI))
	}
	if err := ojs.ValidateType(doc.Type); err != nil {
		return invalid("type", "is no job type").received(clip(doc.Type))
	}
	if _, err := s.registerSchema(c, doc); err != nil {
		return err
	}
	stored, err := s.schema(c, doc.URI)
	if err != nil {
		return err
	}
	return c.reply(http.StatusCreated, obj{"schema", stored.head()})
}

// schema returns a schema by its URI.
func (s *Server) schema(c *call, uri string) (*schemaDoc, error) {
	docs, err := s.registered(c.ctx, true)
	if err != nil {
		return nil, err
	}
	for i := range docs {
		if docs[i].URI == uri {
			return &docs[i], nil
		}
	}
	return nil, notFound("schema", uri)
}

// listSchemas answers GET /schemas.
func (s *Server) listSchemas(c *call) error {
	p, err := c.paging()
	if err != nil {
		return err
	}
	docs, err := s.registered(c.ctx, true)
	if err != nil {
		return err
	}
	if t := c.param("type"); t != "" {
		docs = slices.DeleteFunc(slices.Clone(docs), func(d schemaDoc) bool { return d.Type != t })
	}
	page, next := pageOf(&p, docs, func(d *schemaDoc) string { return d.URI })
	list := make([]obj, len(page))
	for i := range page {
		list[i] = page[i].head()
	}
	return c.reply(http.StatusOK, p.answer("schemas", list, len(list), len(docs), next))
}

// getSchema answers GET /schemas/{uri}.
func (s *Server) getSchema(c *call) error {
	doc, err := s.schema(c, c.value("uri"))
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj{"schema", append(doc.head(), "schema", raw(doc.Schema))})
}

// deleteSchema answers DELETE /schemas/{uri}. Stored jobs stay.
func (s *Server) deleteSchema(c *call) error {
	doc, err := s.schema(c, c.value("uri"))
	if err != nil {
		return err
	}
	err = s.documents().PutValues(c.ctx, s.now(), []document.Value{{Key: schemaPrefix + digest(doc.URI)}})
	if err != nil {
		return err
	}
	c.audit("schema.deleted", clip(doc.URI))
	if _, err := s.registered(c.ctx, true); err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj{"deleted", true, "uri", doc.URI})
}

// versionURI names the schema of a version of a job type.
func versionURI(jobType, version string) string { return "urn:ojs:schema:" + jobType + ":" + version }

// putVersionSchema answers PUT /admin/schemas/{type}/{version} (V010).
func (s *Server) putVersionSchema(c *call) error {
	if !s.offersSchemas() {
		return noSchemas()
	}
	in := c.in()
	jobType, version := c.value("type"), c.value("version")
	doc := schemaDoc{URI: versionURI(jobType, version), Type: jobType, Schema: schemaOf(in, "args_schema",
		"schema"),
		Version: marshal(version)}
	if v := in.get("version"); v != nil {
		doc.Version = in.version(v)
	} else if isInteger(version) {
		doc.Version = json.RawMessage(version)
	}
	if v := in.get("compatible_with"); v != nil {
		if len(v) > maxCompatible {
			return tooLarge(codeTooLarge, "compatible_with", int64(len(v)), maxCompatible)
		}
		doc.Compatible = json.RawMessage(slices.Clone(v))
	}
	if in.err != nil {
		return in.err
	}
	if err := ojs.ValidateType(jobType); err != nil {
		return invalid("type", "is no job type").received(clip(jobType))
	}
	var o ojs.Options
	if o = ojs.DefaultOptions(); version == "" {
		return invalid("version", "is empty")
	}
	if o.Apply(ojs.WithVersion(version)); o.Validate() != nil {
		return invalid("version", "is neither major.minor nor an integer").received(clip(version))
	}
	replaced, err := s.registerSchema(c, doc)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if replaced {
		status = http.StatusOK
	}
	return c.reply(status, doc.versioned(s.now()))
}

// versioned is the answer about a schema of a version.
func (d *schemaDoc) versioned(at time.Time) obj {
	o := obj{"type", d.Type, "version", raw(d.Version), "args_schema", raw(d.Schema), "uri", d.URI,
		"created_at", at}
	return o.opt("compatible_with", raw(d.Compatible))
}

func isInteger(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && (s == "0" || s[0] != '0')
}

// listVersionSchemas answers GET /admin/schemas and /admin/schemas/{type}.
func (s *Server) listVersionSchemas(c *call) error {
	p, err := c.paging()
	if err != nil {
		return err
	}
	docs, err := s.registered(c.ctx, true)
	if err != nil {
		return err
	}
	jobType := c.value("type")
	docs = slices.DeleteFunc(slices.Clone(docs), func(d schemaDoc) bool {
		return jobType != "" &&
			d.Type != jobType
	})
	if jobType != "" && len(docs) == 0 {
		return notFound("schema", jobType)
	}
	page, next := pageOf(&p, docs, func(d *schemaDoc) string { return d.URI })
	list := make([]obj, len(page))
	for i := range page {
		list[i] = page[i].versioned(page[i].CreatedAt)
	}
	return c.reply(http.StatusOK, p.answer("schemas", list, len(list), len(docs), next))
}

// versionRouting answers the paths of the routing of versions, which is not offered
// (V011).
func (s *Server) versionRouting(*call) error {
	return unsupported("routing of versions by weights is not offered: workers name the versions that they take")
}
