package dashboard

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
)

// TestMistakes makes the mistakes of setting up a dashboard. Each error names the mistake
// and the remedy.
func TestMistakes(t *testing.T) {
	s := newSite(t)
	new1 := func(eng Engine, opts ...Option) error {
		_, err := New(eng, opts...)
		return err
	}
	many := func(engines ...Named) error {
		_, err := NewMany(engines)
		return err
	}
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"no engine", new1(nil), "ojs: invalid engine: is nil: give New what engine.New returned"},
		{"a nil engine", new1((*engine.Engine[any])(nil)),
			"ojs: invalid engine: is a nil *engine.Engine[interface {}]: give New what engine.New returned"},
		{"a nil option", new1(s.eng, nil), "ojs: invalid option: is nil"},
		{"a nil authorizer", new1(s.eng, WithAuthorizer(nil)),
			"ojs: invalid authorizer: must not be nil: leave the option out for pages that only read"},
		{"no title", new1(s.eng, WithTitle("")), "ojs: invalid title: use 1 to 60 bytes"},
		{"a path as an origin", new1(s.eng, WithTrustedOrigins("https://a.example/jobs")),
			"ojs: invalid trusted_origins: use scheme://host or scheme://host:port"},
		{"a nil clock", new1(s.eng, WithClock(nil)), "ojs: invalid clock: must not be nil"},
		{"a nil logger", new1(s.eng, WithLogger(nil)), "ojs: invalid logger: must not be nil"},
		{"many of none", many(), "ojs: invalid engines: name at least one engine"},
		{"one of many is nil", many(Named{"a", s.eng}, Named{"b", nil}),
			`ojs: invalid engines: the engine "b" must not be nil`},
		{"one of many is a nil engine", many(Named{"a", s.eng}, Named{"b", (*engine.Engine[any])(nil)}),
			`ojs: invalid engines: the engine "b" must not be nil`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.err == nil || tt.err.Error() != tt.want || !errors.Is(tt.err, ojs.ErrInvalid) {
				t.Errorf("error %v\nwant  %s", tt.err, tt.want)
			}
		})
	}
}

// A pause of a queue or type that nothing knows succeeds, and the page says so (F090).
func TestUnknownNamesAreSaid(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	s.enqueue("known", nil, ojs.WithQueue("known"))
	for _, tt := range []struct{ path, form, want string }{
		{"/queues/known/", "do=pause", "Paused.<"},
		{"/queues/known/", "do=resume", "Resumed.<"},
		{"/queues/emial/", "do=pause", "Paused. No job is in this queue, and no engine names it"},
		{"/queues/fial/", "do=drain", "The queue drains. No job is in this queue, and no engine"},
		{"/types/known/", "do=pause", "Paused.<"},
		{"/types/emial/", "do=pause", "Paused. No engine has a handler of this type, and no"},
	} {
		w := s.do("POST", tt.path, tt.form)
		to := w.Header().Get("Location")
		if w.Code != http.StatusSeeOther {
			t.Errorf("%s %s: %d", tt.path, tt.form, w.Code)
			continue
		}
		if body := s.ok(tt.path + strings.TrimPrefix(to, "./")); !strings.Contains(body, tt.want) {
			t.Errorf("%s %s: the page at %s does not say %q", tt.path, tt.form, to, tt.want)
		}
	}
}
