package dashboard

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
)

// Option configures a Handler. New refuses what makes no sense.
type Option func(*config) error

type config struct {
	title       string
	environment string
	authorize   Authorizer // nil: reads only
	actor       func(*http.Request) string
	redact      Redactor // nil: parts are shown as they are
	unmasked    bool     // nothing is masked by default
	masks       bool     // redact is the default one
	links       func(*ojs.JobInfo) []Link
	origins     []string
	hosts       []string
	visitor     bool // the engine never runs
	clock       clock.Clock
	log         *slog.Logger
}

func defaults() config {
	return config{
		title: "Jobs",
		actor: func(*http.Request) string { return "" },
		clock: clock.New(),
		log:   slog.Default(),
	}
}

func invalid(field, reason string) error {
	return &ojs.InvalidError{Field: field, Reason: reason}
}

// WithTitle sets the name at the top of each page, 1 to 60 bytes. The default is "Jobs".
func WithTitle(title string) Option {
	return func(c *config) error {
		if title == "" || len(title) > 60 {
			return invalid("title", "use 1 to 60 bytes")
		}
		c.title = title
		return nil
	}
}

// WithEnvironment sets a badge beside the title, such as "production", of at most 30
// bytes. There is none by default.
func WithEnvironment(name string) Option {
	return func(c *config) error {
		if len(name) > 30 {
			return invalid("environment", "use at most 30 bytes")
		}
		c.environment = name
		return nil
	}
}

// WithAuthorizer lets the pages act, and has a say in each action. Without it the pages
// only read. A nil authorizer is refused.
func WithAuthorizer(a Authorizer) Option {
	return func(c *config) error {
		if a == nil {
			return invalid("authorizer", "must not be nil: leave the option out for pages that only read")
		}
		c.authorize = a
		return nil
	}
}

// WithActor sets the function that names the person behind a request, for the history of
// the jobs that an action changes (ojs.WithActor) and for the log line of each action. It
// may be called concurrently. The default names none.
func WithActor(name func(r *http.Request) string) Option {
	return func(c *config) error {
		if name == nil {
			return invalid("actor", "must not be nil")
		}
		c.actor = name
		return nil
	}
}

// WithRedact sets a function that every part of every job goes through before a page
// shows it. It may be called concurrently. Without it, pages mask texts, lists and
// objects whose names contain password, passphrase, secret, token, authorization, cookie
// or api_key, what follows such a name in a text, and numbers of cards.
func WithRedact(r Redactor) Option {
	return func(c *config) error {
		if r == nil {
			return invalid("redact", "must not be nil")
		}
		c.redact = r
		return nil
	}
}

// WithoutMasks shows the parts of jobs as they are, without the masks that WithRedact
// describes.
func WithoutMasks() Option {
	return func(c *config) error {
		c.unmasked = true
		return nil
	}
}

// WithHosts names the hosts, without ports, under which the pages answer, beside
// localhost and addresses; "*" is any. A page elsewhere whose own name leads to this
// program can then not read them. Without WithHosts, pages with an authorizer answer
// under any name, and pages without one only under localhost and addresses.
func WithHosts(names ...string) Option {
	return func(c *config) error {
		for _, name := range names {
			if name == "" || strings.ContainsAny(name, ":/ ") {
				return invalid("hosts", `use names without ports, such as "jobs.example.com"`)
			}
		}
		c.hosts = append(c.hosts, names...)
		return nil
	}
}

// WithTrustedOrigins lets pages of other origins post forms: "https://admin.example.com",
// scheme and host, with the port if it is not the scheme's. A proxy that changes the Host
// header of plain HTTP makes it necessary.
func WithTrustedOrigins(origins ...string) Option {
	return func(c *config) error {
		for _, o := range origins {
			u, err := url.Parse(o)
			if err != nil || u.Scheme == "" || u.Host == "" || o != u.Scheme+"://"+u.Host {
				return invalid("trusted_origins", "use scheme://host or scheme://host:port")
			}
		}
		c.origins = append(c.origins, origins...)
		return nil
	}
}

// WithoutRunning says that the engine serves the pages only, and never runs: the pages
// leave out what holds for it alone, such as that it has no handler for a type.
func WithoutRunning() Option {
	return func(c *config) error {
		c.visitor = true
		return nil
	}
}

// WithClock sets the clock of the pages. Give it what engine.WithClock was given. The
// default is the system's.
func WithClock(cl clock.Clock) Option {
	return func(c *config) error {
		if cl == nil {
			return invalid("clock", "must not be nil")
		}
		c.clock = cl
		return nil
	}
}

// WithLogger sets the logger. Each action is one line at INFO, with the actor; a page
// that fails is one at ERROR. The default is slog.Default.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		if l == nil {
			return invalid("logger", "must not be nil")
		}
		c.log = l
		return nil
	}
}
