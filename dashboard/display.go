package dashboard

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// display is how a person wants the pages. It is kept in cookies. The overview of the
// first engine sets them, since a cookie without a path holds for the directory of the
// page that sets it.
type display struct {
	Lang  string // of the catalogue
	Theme string // light, dark, or "" as the system has it
	Zone  *time.Location
}

const (
	cookieLang  = "ojs_lang"
	cookieTheme = "ojs_theme"
	cookieZone  = "ojs_zone"

	cookieAge = 400 * 24 * 3600 // in seconds
)

func displayOf(r *http.Request) display {
	d := display{Lang: preferred(r.Header.Get("Accept-Language")), Zone: time.UTC}
	if v := cookie(r, cookieLang); slices.Contains(languages, v) {
		d.Lang = v
	}
	if v := cookie(r, cookieTheme); v == "light" || v == "dark" {
		d.Theme = v
	}
	if z, err := zoneNamed(cookie(r, cookieZone)); err == nil {
		d.Zone = z
	}
	return d
}

func zoneNamed(name string) (*time.Location, error) {
	if name == "" || name == "Local" { // Local is the server's, which means nothing to the reader
		return time.UTC, nil
	}
	return time.LoadLocation(name)
}

func cookie(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// preferred is the first language of an Accept-Language header that the catalogue has.
func preferred(accept string) string {
	for part := range strings.SplitSeq(accept, ",") {
		tag, _, _ := strings.Cut(strings.TrimSpace(part), ";")
		base, _, _ := strings.Cut(strings.ToLower(tag), "-")
		if slices.Contains(languages, base) {
			return base
		}
	}
	return "en"
}

// displayData is the page of these settings.
type displayData struct {
	Languages []string
	Zones     []string
	Bad       string // a zone that does not exist
}

var commonZones = []string{"UTC", "Europe/Berlin", "Europe/London", "America/New_York",
	"America/Los_Angeles", "America/Sao_Paulo", "Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo",
	"Australia/Sydney"}

func (h *Handler) display(p *page) error {
	return p.show("display", p.T("Display"), displayData{languages, commonZones, p.r.FormValue("bad")})
}

// below is the path of an engine below the overview of the first one.
func (p *page) below(name string) string {
	for _, e := range p.h.engines {
		if e.name == name {
			return e.below()
		}
	}
	return ""
}

// setDisplay is the overview's answer to the form of the page.
func (p *page) setDisplay() error {
	zone, to := p.r.FormValue("zone"), "./"+p.below(p.r.FormValue("engine"))+"display/"
	if _, err := zoneNamed(zone); err != nil || len(zone) > 60 {
		return p.moved(to + "?bad=1")
	}
	for field, name := range map[string]string{"lang": cookieLang, "theme": cookieTheme, "zone": cookieZone} {
		if p.r.Form.Has(field) { // the key for the theme leaves the others as they are
			http.SetCookie(p.w, &http.Cookie{Name: name, Value: p.r.FormValue(field), MaxAge: cookieAge,
				HttpOnly: true, SameSite: http.SameSiteLaxMode})
		}
	}
	return p.moved(to)
}
