package server

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// checkHost refuses a request for another host than those of WithHosts. Without these, a
// server without an authenticator serves the names of this machine alone.
func (s *Server) checkHost(r *http.Request) error {
	if s.conf.hosts == nil && s.conf.auth != nil {
		return nil
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if slices.Contains(s.conf.hosts, host) || s.conf.hosts == nil && loopback(host) {
		return nil
	}
	return refuse(http.StatusForbidden, codeDenied,
		"the request is for a host that this server does not serve")
}

// crossOrigin refuses changes that a page of another origin asks for.
func (s *Server) crossOrigin(r *http.Request) error {
	if s.conf.cross.Check(r) == nil {
		return nil
	}
	return refuse(http.StatusForbidden, codeDenied, "pages of this origin may not change anything here")
}

const (
	corsMethods = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
	corsAllowed = "Content-Type, Accept, Authorization, X-Request-Id, OJS-Version, Idempotency-Key, Last-Event-ID"
	corsExposed = "X-Request-Id, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, OJS-Version, " +
		"Retry-After, Location"
)

// allowOrigin lets the pages of the origins of WithOrigins read the answer (F103).
func (s *Server) allowOrigin(c *call) bool {
	if len(s.conf.origins) == 0 {
		return false
	}
	h := c.w.Header()
	h.Add("Vary", "Origin")
	origin := c.r.Header.Get("Origin")
	if !slices.Contains(s.conf.origins, origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Allow-Credentials", "true")
	h.Set("Access-Control-Expose-Headers", corsExposed)
	return true
}

// options answers OPTIONS.
func (s *Server) options(c *call, res *resource) error {
	h := c.w.Header()
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Set("Access-Control-Allow-Methods", corsMethods)
		allowed := corsAllowed
		if s.isFront() {
			allowed += ", " + s.conf.cellKeys.Header
		}
		h.Set("Access-Control-Allow-Headers", allowed)
		h.Set("Access-Control-Max-Age", "86400")
	}
	if res == nil {
		return notFound("path", c.r.URL.Path)
	}
	h.Set("Allow", res.allow)
	return c.reply(http.StatusNoContent, nil)
}
