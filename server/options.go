package server

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
)

// Option configures a Server.
type Option func(*config) error

type config struct {
	clock clock.Clock
	log   *slog.Logger
	audit func(AuditEntry)

	auth    Authenticator // nil: every caller may do everything
	hosts   []string      // nil: all
	origins []string
	cross   *http.CrossOriginProtection
	noAdmin bool

	events      EventRetention
	noEvents    bool
	sockets     WebSockets     // nil: there are none
	schemas     SchemaCompiler // nil: none are checked
	limit       RequestRate
	maxRequests int // requests of a client at once; 0: any number

	maxBody, maxBatchBody int64
	maxArgs, maxMeta      int
	maxDepth              int
	maxBatch              int // jobs of a batch
	maxFetch              int // jobs of a fetch

	cellKeys CellKeys // of a fleet

	strict  Strictness
	version string
}

func defaults() config {
	return config{
		clock: clock.New(), log: slog.New(slog.DiscardHandler), cross: http.NewCrossOriginProtection(),
		maxRequests: 100, maxBody: 2 << 20, maxBatchBody: 32 << 20, maxArgs: 1 << 20, maxMeta: 64 << 10,
		events: keptEvents, maxDepth: 32, maxBatch: 10_000, maxFetch: 100,
		cellKeys: CellKeys{Header: "OJS-Cell-Key"},
	}
}

// WithClock sets the clock of the server's own timers, such as those of streams. It is
// for tests. Times in answers are those of the engine's clock.
func WithClock(c clock.Clock) Option {
	return func(conf *config) error {
		if c == nil {
			return draft.Invalid("clock", "is nil")
		}
		conf.clock = c
		return nil
	}
}

// WithLogger sets where failures are logged. Lines have no args, meta, results or
// credentials. The default logs nothing.
func WithLogger(l *slog.Logger) Option {
	return func(conf *config) error {
		if l == nil {
			return draft.Invalid("logger", "is nil")
		}
		conf.log = l
		return nil
	}
}

// WithAuthenticator authenticates every request except health.
func WithAuthenticator(a Authenticator) Option {
	return func(conf *config) error {
		if a == nil {
			return draft.Invalid("authenticator", "is nil")
		}
		conf.auth = a
		return nil
	}
}

// WithHosts names the hosts that requests may be for, without ports. A request for
// another host is refused with 403, so that a page whose name leads to this machine
// cannot use the server. Without WithHosts any host is taken if there is an
// authenticator, and otherwise localhost and the loopback addresses.
func WithHosts(names ...string) Option {
	return func(conf *config) error {
		for _, name := range names {
			conf.hosts = append(conf.hosts, strings.ToLower(name))
		}
		return nil
	}
}

// WithOrigins names the origins whose pages may use the server, as https://example.com
// (CORS). Other origins are refused if they would change something.
func WithOrigins(origins ...string) Option {
	return func(conf *config) error {
		for _, origin := range origins {
			u, err := url.Parse(origin)
			if err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" {
				return draft.Invalid("origin", "%q is not scheme://host", origin)
			}
			if err := conf.cross.AddTrustedOrigin(origin); err != nil {
				return draft.Invalid("origin", "%q: %v", origin, err)
			}
			conf.origins = append(conf.origins, origin)
		}
		return nil
	}
}

// WithoutAdmin answers the paths under /ojs/v1/admin as if there were none.
func WithoutAdmin() Option {
	return func(conf *config) error {
		conf.noAdmin = true
		return nil
	}
}

// RequestRate bounds the requests of one caller: Burst at once, and PerSecond in the long
// run.
type RequestRate struct {
	PerSecond float64
	Burst     int
}

// WithRequestRate bounds the requests of each principal, or of each address without an
// authenticator. The default bounds nothing.
func WithRequestRate(r RequestRate) Option {
	return func(conf *config) error {
		if !(r.PerSecond > 0) || r.Burst < 1 {
			return draft.Invalid("request_rate", "%v is not a positive rate with a burst of 1 or more", r)
		}
		conf.limit = r
		return nil
	}
}

// WithMaxRequests bounds how many requests one client may have under way. The requests to
// each route that waits, such as long polls, are counted by themselves. The default is
// 100; 0 bounds nothing.
func WithMaxRequests(n int) Option {
	return func(conf *config) error {
		if n < 0 {
			return draft.Invalid("max_requests", "%d is negative", n)
		}
		conf.maxRequests = n
		return nil
	}
}

// Limits are the limits of what a request has. A field that is 0 keeps its default.
type Limits struct {
	Body  int64 // bytes of a body after decompression; 2 MiB
	Batch int64 // bytes of the body of a batch; 32 MiB
	Args  int   // bytes of the args of a job; 1 MiB
	Meta  int   // bytes of the meta of a job; 64 KiB
	// Jobs of a batch, which gets 400 if it has more, and of a bulk outside /admin by a
	// list or a filter, which gets 413; 10,000.
	Jobs  int
	Fetch int // jobs of one fetch, to which a larger count is lowered; 100
}

// WithLimits sets limits of requests.
func WithLimits(z Limits) Option {
	return func(conf *config) error {
		if z.Body < 0 || z.Batch < 0 || z.Args < 0 || z.Meta < 0 || z.Jobs < 0 || z.Fetch < 0 {
			return draft.Invalid("limits", "%+v has a negative field", z)
		}
		set(&conf.maxBody, z.Body)
		set(&conf.maxBatchBody, z.Batch)
		set(&conf.maxArgs, z.Args)
		set(&conf.maxMeta, z.Meta)
		set(&conf.maxBatch, z.Jobs)
		set(&conf.maxFetch, z.Fetch)
		return nil
	}
}

// Strictness refuses jobs that the binding takes, with 422 (F174). The zero value refuses
// none.
type Strictness struct {
	Types             []string // the only types, such as email.send or email.*; empty: all
	UnknownAttributes bool     // refuse attributes that the binding does not name
	Meta              bool     // refuse texts with line breaks, and keys of other than letters, digits, _.-
}

// WithStrictness sets which jobs are refused.
func WithStrictness(z Strictness) Option {
	return func(conf *config) error {
		for _, t := range z.Types {
			name := strings.TrimSuffix(t, "*")
			if name != "" && ojs.ValidateType(strings.TrimSuffix(name, ".")) != nil {
				return draft.Invalid("types", "%q is no job type, nor the beginning of some and *", t)
			}
		}
		conf.strict = z
		return nil
	}
}

func set[N int | int64](field *N, value N) {
	if value != 0 {
		*field = value
	}
}

// AuditEntry is something that an auditor asks about (F198). It has no args, meta or
// results.
type AuditEntry struct {
	Timestamp     time.Time `json:"timestamp"`
	EventType     string    `json:"event_type"`
	Principal     string    `json:"principal"` // "": none was proved
	SourceIP      string    `json:"source_ip"`
	CorrelationID string    `json:"correlation_id"` // the request's id
	Outcome       string    `json:"outcome"`        // success, failure or denied
	Detail        string    `json:"detail"`
}

// WithAudit has a function called for each failed authentication, each denial, each
// change by an operator, and each change of the server's Keys. It is called while the
// request, or the change, waits.
func WithAudit(f func(AuditEntry)) Option {
	return func(conf *config) error {
		if f == nil {
			return draft.Invalid("audit", "is nil")
		}
		conf.audit = f
		return nil
	}
}

// WithVersion names the program in the manifest and the health.
func WithVersion(version string) Option {
	return func(conf *config) error {
		conf.version = version
		return nil
	}
}
