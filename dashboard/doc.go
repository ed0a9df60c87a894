// Package dashboard is a web page of an engine's jobs: an http.Handler over any
// engine.Engine[T].
//
//	pages, err := dashboard.New(eng)
//	if err != nil {
//		return err
//	}
//	defer pages.Close()
//	mux.Handle("/admin/jobs/", http.StripPrefix("/admin/jobs", pages))
//
// The pages use relative links only, so they work under any path and behind any proxy
// without a setting. They make no request to another origin, need no JavaScript, and keep
// to a strict Content-Security-Policy.
//
// # Access
//
// The package knows no users. Mount the handler behind the middleware that protects the
// rest of the program's administration. Without WithAuthorizer the pages only read: they
// have no button, and a POST is refused. They then answer under localhost, addresses and
// the names of WithHosts. An authorizer is asked for each action of each request, and a
// page has the buttons for which the authorizer returns nil:
//
//	pages, err := dashboard.New(eng, dashboard.WithAuthorizer(
//		func(r *http.Request, a dashboard.Action) error {
//			if a.Do == dashboard.Read || roleOf(r) == "operator" {
//				return nil
//			}
//			return errors.New("operators only")
//		}))
//
// AllowAll is the authorizer that permits everything. WithRedact hides args, metadata,
// results, and details and messages of errors. Without it the pages mask what looks like
// a secret.
//
// Each action is a line of the log, with the person that WithActor names. An operation on
// many jobs shows first how many and which it would change. It then runs beside requests,
// one operation at a time, with a page that shows how far it is and can stop it. Close
// stops it too.
//
// # Cost
//
// Indexes find jobs by their states, other than available and completed ones, and counts
// by state, queue and type are exact. For the rest a page looks at some thousand jobs,
// and says so; for jobs that the counts say are there, at 100,000. A count that is not
// exact has a plus sign.
package dashboard
