package dashboard

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// The pages do not know where they are mounted. All links and redirects are relative to
// the page's own address, of which a page knows only how deep it is below the overview.
// That holds behind http.StripPrefix, behind a ServeMux without it, and behind proxies
// that add or take away a part of the path.

// mounted returns the request with a path that begins at the overview. It answers a
// request whose address has no trailing slash by itself, and reports false.
func mounted(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	at := r.URL.Path
	if prefix := patternPath(r); prefix != "" && rawPath(r) == r.URL.EscapedPath() {
		at = strings.TrimPrefix(at, prefix) // a ServeMux without StripPrefix
	}
	if !strings.HasPrefix(at, "/") {
		if at == "" && !strings.HasSuffix(rawPath(r), "/") {
			redirect(w, lastSegment(rawPath(r))+"/"+queryOf(r))
			return nil, false
		}
		at = "/" + at
	}
	clean := path.Clean(at)
	if clean != "/" && strings.HasSuffix(at, "/") {
		clean += "/"
	}
	if clean != at {
		http.NotFound(w, r)
		return nil, false
	}
	if !strings.HasSuffix(at, "/") && !strings.HasPrefix(at, "/assets/") && r.Method == http.MethodGet {
		redirect(w, lastSegment(at)+"/"+queryOf(r))
		return nil, false
	}
	if at == r.URL.Path {
		return r, true
	}
	return withPath(r, at), true
}

func withPath(r *http.Request, to string) *http.Request {
	r2 := *r
	u := *r.URL
	u.Path, u.RawPath = to, ""
	r2.URL = &u
	return &r2
}

// patternPath is the path below which a ServeMux has mounted the handler, without its
// last slash; "" if there is none, or if it has wildcards.
func patternPath(r *http.Request) string {
	p := r.Pattern
	if i := strings.IndexByte(p, '/'); i >= 0 {
		p = p[i:] // without method and host
	} else {
		return ""
	}
	if strings.Contains(p, "{") || !strings.HasSuffix(p, "/") {
		return ""
	}
	return strings.TrimSuffix(p, "/")
}

// rawPath is the path as the client sent it.
func rawPath(r *http.Request) string {
	p, _, _ := strings.Cut(r.RequestURI, "?")
	return p
}

func queryOf(r *http.Request) string {
	if r.URL.RawQuery == "" {
		return ""
	}
	return "?" + r.URL.RawQuery
}

func lastSegment(p string) string {
	escaped := url.PathEscape(path.Base(p))
	if unescaped, err := url.PathUnescape(path.Base(p)); err == nil {
		escaped = url.PathEscape(unescaped)
	}
	return "./" + escaped
}

// depth returns the relative link from a path to the overview, "./" or "../../".
func depth(p string) string {
	n := strings.Count(strings.Trim(p, "/"), "/")
	if strings.Trim(p, "/") != "" {
		n++
	}
	if n == 0 {
		return "./"
	}
	return strings.Repeat("../", n)
}

// redirect answers 303 with a relative Location. http.Redirect would make it absolute
// from a path that a proxy or StripPrefix may have changed.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
