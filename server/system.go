package server

import (
	"net/http"
)

var systemRoutes = []route{
	{method: http.MethodGet, path: "/manifest", need: permAny, serve: (*Server).manifest},
	{method: http.MethodGet, path: "/health", need: permHealth, serve: (*Server).health},
}

// manifest answers GET /ojs/manifest (F100, F170).
func (s *Server) manifest(c *call) error {
	return c.reply(http.StatusOK, obj{"ojs_version", "1.0", "specversion", "1.0"})
}

// health answers GET /health (F101).
func (s *Server) health(c *call) error {
	return c.reply(http.StatusOK, obj{"status", "ok"})
}
