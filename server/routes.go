package server

import (
	"net/http"
	"path"
	"slices"
	"strings"
)

const base = "/ojs/v1"

// bodyRule says whether a route reads a body.
type bodyRule uint8

const (
	noBody       bodyRule = iota // none is read
	optionalBody                 // an empty one counts as {} (F006)
	requiredBody
)

// route is a line of the routing table.
type route struct {
	method, path string // the path is under base, in the syntax of http.ServeMux
	need         permission
	body         bodyRule
	large        bool // it takes a batch
	whole        bool // it needs the permission for every queue
	waits        bool // it may answer late
	serve        func(s *Server, c *call) error
}

// routes are all routes. Each file that serves some has its part of the table.
func routes() []route {
	return slices.Concat(jobRoutes, resultRoutes, progressRoutes, workerRoutes, deadLetterRoutes, queueRoutes,
		cronRoutes, adminRoutes,
		systemRoutes, openAPIRoutes, bulkRoutes, eventRoutes, workflowRoutes,
		limitRoutes, schemaRoutes)
}

// resource has the routes of one path, by method.
type resource struct {
	path    string // with base
	methods map[string]*route
	allow   string // the methods, for Allow
}

// routing makes the handler of all routes. The methods of a path are looked up here and
// not by the ServeMux, since each answer has the binding's form (F013).
func (s *Server) routing() *http.ServeMux {
	byPath := make(map[string]*resource)
	mux := http.NewServeMux()
	add := func(p string, rt *route) {
		res := byPath[p]
		if res == nil {
			res = &resource{path: p, methods: make(map[string]*route)}
			byPath[p] = res
			mux.Handle(p, res)
		}
		res.methods[rt.method] = rt
		names := []string{"OPTIONS"}
		for m := range res.methods {
			names = append(names, m)
		}
		slices.Sort(names)
		res.allow = strings.Join(names, ", ")
	}
	list := routes()
	for i := range list {
		if list[i].path == "/manifest" {
			add("/ojs/manifest", &list[i])
			continue
		}
		add(base+list[i].path, &list[i])
	}
	return mux
}

// ServeHTTP tells the finder that asks which resource a request is for.
func (r *resource) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.(*finder).found = r }

// finder asks a ServeMux for the resource of a request, and keeps nothing else of its
// answer.
type finder struct{ found *resource }

// Header, Write and WriteHeader make it an http.ResponseWriter.
func (f *finder) Header() http.Header         { return http.Header{} }
func (f *finder) Write(b []byte) (int, error) { return len(b), nil }
func (f *finder) WriteHeader(int)             {}

// find returns the resource of a request; nil: there is none. It sets the values of the
// path.
func (s *Server) find(r *http.Request) *resource {
	if p := r.URL.EscapedPath(); p == "" || path.Clean(p) != p {
		return nil
	}
	var f finder
	s.mux.ServeHTTP(&f, r)
	return f.found
}

// route returns the route of a method.
func (r *resource) route(method string) *route {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return r.methods[method]
}
