package server

// laterRoutes are those of workflows, bulk, events, schemas and limits.
var laterRoutes []route

// offersSchemas reports whether args are checked against registered schemas.
func (s *Server) offersSchemas() bool { return false }
