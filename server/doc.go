// Package server answers the HTTP binding of Open Job Spec for an engine, so that
// programs in any language share its jobs.
//
//	eng, err := engine.New[any](st)
//	go eng.Run(ctx)
//	h, err := server.New(eng)
//	http.ListenAndServe("127.0.0.1:8080", h)
//
// The paths are under /ojs/v1; the manifest is at /ojs/manifest. NewWithoutEngine
// serves a storage alone: it reads and operates, and refuses to enqueue and to fetch.
//
// Without WithAuthenticator every caller may do everything: listen on a loopback address
// then (CheckListen).
//
// # How it is built
//
// No rule of jobs is here. A route (routes.go) names its path, its method, the permission
// that it needs and the function that answers. ServeHTTP makes a call of each request,
// checks what all requests have in common, reads the body, and calls the function:
//
//	func (s *Server) pauseQueue(c *call) error {
//		in := c.in()                       // the body as an object; errors name the field
//		reason := in.text("reason")
//		if in.err != nil {
//			return in.err
//		}
//		...
//		return c.reply(200, obj{"queue", name, "paused", true}) // in this order
//	}
//
// An error that a function returns is answered by refusalOf (errors.go): a *refusal as it
// is, an error of the library by its type. appendJob (job.go) writes a job.
//
// # Invariants
//
//  1. Each answer has OJS-Version and X-Request-Id. Each body has a Content-Type.
//  2. A request that is refused stores nothing.
//  3. No answer and no line of the log has args, meta, results or credentials of another
//     request.
//  4. The server has no state that its storage lacks, but for deliveries of its own
//     engine and the counts of its limiters.
package server
