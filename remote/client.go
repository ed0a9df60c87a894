// Package remote runs a program against an OJS server: it enqueues, runs handlers and
// operates over HTTP what package engine does on a storage.
//
// A program moves from an engine to a server by one line. The line
//
//	eng, err := engine.New[Email](store)
//
// becomes
//
//	eng, err := remote.New[Email]("https://jobs.example.org", remote.WithKey(key))
//
// Handlers, job types, enqueues, tickets and errors stay as they are. A program that only
// enqueues uses Dial. Where the server's binding has no form for a feature, such as a
// transaction of the caller, the call returns ojs.ErrUnsupported.
//
// # Invariants
//
//  1. A call is repeated only if its repetition cannot do its work twice: each new job
//     has an id of the client's, and each outcome names its attempt.
//  2. A worker calls a handler only for a job that the server has handed to it.
//  3. The result of an attempt that has lost its job is dropped.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
)

// Client calls an OJS server. It is safe for concurrent use, and holds nothing to close
// but the idle connections of its http.Client.
type Client struct {
	config
	base         string               // without a slash at its end
	hasExtension atomic.Pointer[bool] // whether the server has the Extension; nil: not known yet
}

var _ ojs.Enqueuer = (*Client)(nil)

// config is what the options set.
type config struct {
	http     *http.Client
	key      string
	clock    clock.Clock
	log      *slog.Logger
	defaults []ojs.Option

	name        string
	concurrency int
	grace       time.Duration
	queues      []string
	around      []handler.Middleware
}

// Defaults of a Worker.
const (
	DefaultConcurrency = 10
	DefaultGracePeriod = 25 * time.Second
)

// Option sets how a Client or a Worker works.
type Option func(*config)

// WorkerOption sets how a Worker works. Each Option is one.
type WorkerOption interface{ set(c *config) }

type workerOption func(*config)

func (o Option) set(c *config) { o(c) }

func (o workerOption) set(c *config) { o(c) }

// WithHTTPClient sets the client of the calls, for TLS, proxies and connections. A
// Timeout below a minute cuts long polls short. The default follows no redirect.
func WithHTTPClient(c *http.Client) Option { return func(o *config) { o.http = c } }

// WithKey sets the key that calls carry, as "Authorization: Bearer". It is not logged.
func WithKey(key string) Option { return func(o *config) { o.key = key } }

// WithClock sets the clock of waits, timeouts and heartbeats. The default is the wall
// clock.
func WithClock(c clock.Clock) Option { return func(o *config) { o.clock = c } }

// WithLogger sets the logger. The default is slog.Default.
func WithLogger(l *slog.Logger) Option { return func(o *config) { o.log = l } }

// WithDefaults sets options of each enqueued job, unless its type or its draft has
// others.
func WithDefaults(opts ...ojs.Option) Option {
	return func(o *config) { o.defaults = append(o.defaults, opts...) }
}

// WithName sets the beginning of the worker's id. The default is the name of the host.
func WithName(name string) WorkerOption { return workerOption(func(o *config) { o.name = name }) }

// WithConcurrency sets how many attempts run at once, at least 1. The default is
// DefaultConcurrency.
func WithConcurrency(n int) WorkerOption { return workerOption(func(o *config) { o.concurrency = n }) }

// WithGracePeriod sets how long a stop waits for running handlers before it ends their
// contexts. The default is DefaultGracePeriod.
func WithGracePeriod(d time.Duration) WorkerOption {
	return workerOption(func(o *config) { o.grace = d })
}

// WithQueues sets the queues that a Worker takes jobs from, in order of preference. The
// default is ojs.DefaultQueue.
func WithQueues(names ...string) WorkerOption {
	return workerOption(func(o *config) { o.queues = names })
}

// WithMiddleware puts middlewares around every handler, the first outermost.
func WithMiddleware(ms ...handler.Middleware) WorkerOption {
	return workerOption(func(o *config) { o.around = append(o.around, ms...) })
}

// Dial makes a client of the server at a URL such as "https://jobs.example.org". A path
// in it precedes the server's own. Dial calls nothing: an unreachable server shows in the
// first call. Options and URLs that make no sense are refused with an *ojs.InvalidError.
func Dial(server string, opts ...Option) (*Client, error) {
	list := make([]WorkerOption, len(opts))
	for i, opt := range opts {
		list[i] = opt
	}
	return dial(server, list)
}

func dial(server string, opts []WorkerOption) (*Client, error) {
	c := &Client{config: config{
		http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // it would take the key elsewhere
		}},
		clock: clock.New(), log: slog.Default(),
		concurrency: DefaultConcurrency, grace: DefaultGracePeriod, queues: []string{ojs.DefaultQueue},
	}}
	for _, opt := range opts {
		if o, is := opt.(Option); opt == nil || is && o == nil {
			return nil, invalid("option", "is nil")
		}
		opt.set(&c.config)
	}
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, invalid("url", "%q is no address such as https://jobs.example.org", redacted(server))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, invalid("url", "has a user, a query or a fragment; use WithKey for a key")
	case c.http == nil || c.clock == nil || c.log == nil:
		return nil, invalid("option", "an HTTP client, a clock or a logger is nil")
	case c.concurrency < 1:
		return nil, invalid("concurrency", "%d is less than 1", c.concurrency)
	case c.grace < 0:
		return nil, invalid("grace_period", "%v is negative", c.grace)
	case len(c.queues) == 0:
		return nil, invalid("queues", "are none")
	case slices.ContainsFunc(c.around, func(m handler.Middleware) bool { return m == nil }):
		return nil, invalid("middleware", "is nil")
	}
	for _, q := range c.queues {
		if err := ojs.ValidateQueue(q); err != nil {
			return nil, err
		}
	}
	c.base = strings.TrimRight(u.String(), "/")
	return c, nil
}

func invalid(field, format string, a ...any) error {
	return &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: field, Reason: fmt.Sprintf(format, a...)}
}

// redacted is an address without what may be a password.
func redacted(server string) string {
	if at := strings.LastIndexByte(server, '@'); at >= 0 {
		return "..." + server[at:]
	}
	return server
}

// String names the client.
func (c *Client) String() string { return "ojs server " + c.base }

// root precedes the paths of all calls but that of the manifest.
const root = "/ojs/v1"

// Limits of a call.
const (
	maxAnswer = 64 << 20         // bytes
	maxTries  = 5                // of a call that is not a worker's
	minPause  = time.Second / 10 // before a second try
	maxPause  = 30 * time.Second
)

// request is a call of the server.
type request struct {
	method, path string
	query        url.Values
	body         any // nil: none
	out          any // nil: the answer's body is not read

	header http.Header   // of the answer
	tries  int           // how often the call was made
	most   int           // how often it may be; 0: maxTries
	within time.Duration // how long one try may take; 0: callTime

	idempotent bool // a repetition does the work once; each GET is idempotent
}

// callTime is how long the server may take to answer. A long poll adds its wait.
const callTime = 30 * time.Second

// get, post and the like make calls without further ado.
func (c *Client) get(ctx context.Context, path string, out any) error {
	return c.do(ctx, &request{method: http.MethodGet, path: path, out: out})
}

func (c *Client) post(ctx context.Context, path string, body, out any) error {
	return c.do(ctx, &request{method: http.MethodPost, path: path, body: body, out: out})
}

func (c *Client) remove(ctx context.Context, path string, body, out any) error {
	return c.do(ctx, &request{method: http.MethodDelete, path: path, body: body, out: out})
}

// do makes a call, and repeats it while the server cannot be reached or asks for that. A
// call that is not idempotent is repeated only after 429: else its work may be done.
func (c *Client) do(ctx context.Context, r *request) error {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return fmt.Errorf("ojs: %s %s: encoding: %w", r.method, r.path, err)
		}
	}
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		r.tries++
		err := c.try(ctx, r, body)
		wait, again := repeatable(err)
		if e := (*Error)(nil); !r.idempotent && r.method != http.MethodGet {
			again = again && errors.As(err, &e) && e.Status == http.StatusTooManyRequests
		}
		switch {
		case err == nil || !again || ctx.Err() != nil || r.tries == cmp.Or(r.most, maxTries):
			return err
		}
		if c.sleep(ctx, max(wait, pause)) != nil {
			return err
		}
	}
}

// sleep waits for d. It returns ctx's error if that ends first.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	t := c.clock.Timer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try makes a call once.
func (c *Client) try(ctx context.Context, r *request, body []byte) error {
	address := c.base + root + r.path
	if r.path == manifestPath {
		address = c.base + r.path
	}
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	bound, cancel := c.clock.WithTimeout(ctx, cmp.Or(r.within, callTime))
	defer cancel()
	req, err := http.NewRequestWithContext(bound, r.method, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ojs: %s %s: %w", r.method, r.path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/openjobspec+json")
	}
	req.Header.Set("OJS-Version", "1.0")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return &unreachable{r.method + " " + r.path, cause(ctx, err)}
	}
	defer resp.Body.Close()
	r.header = resp.Header
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return &unreachable{r.method + " " + r.path, cause(ctx, err)}
	case len(answer) > maxAnswer:
		return fmt.Errorf("ojs: %s %s: the answer has more than %d bytes", r.method, r.path, maxAnswer)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return errorOf(resp, answer)
	case r.out == nil || resp.StatusCode == http.StatusNoContent:
		return nil
	}
	if err := json.Unmarshal(answer, r.out); err != nil {
		return fmt.Errorf("ojs: %s %s: the server's answer: %w", r.method, r.path, err)
	}
	return nil
}

// cause is the error of a call: that of the caller's context, if it has ended.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var u *url.Error // whose text has the address
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// unreachable says that a call has no answer: its work may have been done.
type unreachable struct {
	call string
	err  error
}

func (e *unreachable) Error() string {
	return "ojs: " + e.call + ": no answer of the server: " + e.err.Error()
}

func (e *unreachable) Unwrap() error { return e.err }

// repeatable reports whether another try of a call may succeed, and how long the server
// asks to wait.
func repeatable(err error) (wait time.Duration, again bool) {
	if lost := (*unreachable)(nil); errors.As(err, &lost) {
		return 0, true
	}
	e := (*Error)(nil)
	if !errors.As(err, &e) || !e.Retryable || errors.Is(err, ojs.ErrQueueFull) ||
		errors.Is(err, ojs.ErrQueueDraining) { // as an engine, which does not wait either
		return 0, false
	}
	return min(e.RetryAfter, maxPause), true
}

// retryAfter is the header of that name, which has seconds.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, time.Hour)
}

// segment is a part of a path.
func segment(s string) string { return url.PathEscape(s) }
