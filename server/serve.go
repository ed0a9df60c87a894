package server

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
)

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := s.calls.Get().(*call)
	c.s, c.w, c.r, c.ctx = s, w, r, r.Context()
	defer func() {
		if c.admitted {
			s.underway.end()
		}
		c.reset()
		s.calls.Put(c)
	}()
	c.id = requestID(r)
	if r.ContentLength != 0 { // until readBody has it, or the connection ends
		c.reading(false)
	}
	h := w.Header()
	h["Ojs-Version"] = ojsVersion
	h["X-Request-Id"] = []string{c.id}
	defer func() {
		if p := recover(); p != nil {
			s.panicked(c, p)
		}
	}()
	if err := s.answer(c); err != nil {
		c.fail(err)
	}
}

var ojsVersion = []string{"1.0"}

// answer does what all requests have in common, and calls the function of the route.
func (s *Server) answer(c *call) error {
	if err := s.checkHost(c.r); err != nil {
		return err
	}
	s.allowOrigin(c)
	res := s.find(c.r)
	if s.conf.noAdmin && c.admin() {
		res = nil
	}
	if c.r.Method == http.MethodOptions {
		return s.options(c, res)
	}
	need := permAny
	if res != nil {
		if c.rt = res.route(c.r.Method); c.rt != nil {
			need = c.rt.need
		}
	}
	if c.rt != nil && need != permHealth {
		if c.admitted = s.underway.begin(); !c.admitted {
			return unavailable(http.StatusServiceUnavailable, "the server is stopping", nil)
		}
	}
	denied := s.identify(c, need)
	if err := s.limit(c); err != nil { // of refused callers, too
		return err
	}
	switch {
	case denied != nil:
		return denied
	case res == nil:
		return notFound("path", c.r.URL.Path)
	case c.rt == nil:
		c.w.Header().Set("Allow", res.allow)
		r := refuse(http.StatusMethodNotAllowed, codeInvalid, "%s is not a method of this path", c.r.Method)
		return r.with("allowed", res.allow)
	}
	if err := checkVersion(c.r); err != nil {
		return err
	}
	if err := c.readQuery(); err != nil {
		return err
	}
	leave, err := s.enter(c)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.crossOrigin(c.r); err != nil {
		return err
	}
	if c.rt.body != noBody {
		if err := s.readBody(c); err != nil {
			return err
		}
	}
	if s.isFront() {
		return s.fleet.serve(c)
	}
	return c.rt.serve(s, c)
}

// requestID is the caller's id of the request if it is one, else a new one (F011).
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	hidden := func(c rune) bool { return c <= ' ' || c > '~' }
	if id != "" && len(id) <= 128 && !strings.ContainsFunc(id, hidden) {
		return id
	}
	return newID("req_", wall.Now().UnixMilli(), rand.Uint64(), rand.Uint64()) // it need not be hard to guess
}

// versionsTaken matches the versions of the binding that a request may name (F008).
var versionsTaken = regexp.MustCompile(`^1(\.0(\.0)?)?(-rc\.[0-9]+)?$`)

func checkVersion(r *http.Request) error {
	list := r.Header["Ojs-Version"]
	if len(list) == 0 || versionsTaken.MatchString(list[0]) {
		return nil
	}
	return unsupported("OJS-Version %q is not offered: the server speaks 1.0", clip(list[0]))
}

// older reports whether the client is of the first clients, which have a queue as a
// string (F155).
func (c *call) older() bool { return strings.HasPrefix(c.r.Header.Get("OJS-Version"), "1.0.0") }

// panicked answers a request whose function has panicked (F031). The process goes on.
func (s *Server) panicked(c *call, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	s.conf.log.Error("a request has panicked", "request_id", c.id, "method", c.r.Method,
		"path", c.r.URL.Path, "stack", string(debug.Stack()))
	if c.status == 0 {
		c.fail(unavailable(http.StatusInternalServerError, "the server has failed", nil))
	}
}

// logRefusal writes the line of an error that is the server's. It has no value of the
// request (F197).
func (s *Server) logRefusal(c *call, r *refusal) {
	if r.status < http.StatusInternalServerError || r.cause == nil || errors.Is(r.cause, context.Canceled) {
		return
	}
	s.conf.log.LogAttrs(c.ctx, slog.LevelWarn, "a request has failed", slog.String("request_id", c.id),
		slog.String("method", c.r.Method), slog.String("path", c.r.URL.Path), slog.Int("status", r.status),
		slog.String("error", r.cause.Error()))
}
