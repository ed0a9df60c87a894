package dashboard

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// A filter is saved in a cookie of the browser, and forgotten, by forms that need no
// script. A link saves nothing, and neither does a page of another site.
func TestSavedFilters(t *testing.T) {
	s := newSite(t)
	jar := ""
	formOf := func(name, line string) string {
		return url.Values{"set": {"filter"}, "name": {name}, "q": {line}, "at": {"x:1"}}.Encode()
	}
	save := func(name, line string) string {
		t.Helper()
		w := s.do("POST", "/", formOf(name, line), "Cookie", jar)
		if w.Code != 303 || !strings.HasPrefix(w.Header().Get("Location"), "./jobs/?q=x%3A1") {
			t.Fatalf("%d to %s", w.Code, w.Header().Get("Location"))
		}
		if cookie := w.Header().Get("Set-Cookie"); cookie != "" {
			jar, _, _ = strings.Cut(cookie, ";")
		}
		return w.Header().Get("Location")
	}
	const line = `state:discarded error:"a & b"`
	save("<mine>", line)
	save("other", "type:t")
	evil := formOf("evil", "type:t")
	if w := s.do("POST", "/", evil, "Cookie", jar, "Sec-Fetch-Site", "cross-site"); w.Code != 403 {
		t.Errorf("a page of another site saves a filter: %d", w.Code)
	}
	if w := s.do("GET", "/?"+evil, "", "Cookie", jar); w.Header().Get("Set-Cookie") != "" {
		t.Error("a link saves a filter")
	}
	page := func(path string) string { return s.do("GET", path, "", "Cookie", jar).Body.String() }
	body := page("/jobs/?q=" + url.QueryEscape(line))
	for _, want := range []string{"&lt;mine&gt;</a>", ">other</a>",
		`<button name="name" value="&lt;mine&gt;" aria-label="Forget &lt;mine&gt;">`,
		`name="q" value="state:discarded error:&#34;a &amp; b&#34;"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if strings.Contains(body, "evil") || strings.Contains(body, `aria-label="Forget other"`) {
		t.Errorf("too much in %s", body)
	}
	if body := page("/search/?q=nothing"); !strings.Contains(body, "&lt;mine&gt;</a>") {
		t.Error("the search does not show the saved filters")
	}
	save("<mine>", "")
	if body := page("/jobs/"); strings.Contains(body, "mine") || !strings.Contains(body, "other") {
		t.Errorf("not forgotten, or too much: %s", body)
	}
	for i := range maxSaved - 1 {
		save(fmt.Sprint("f", i), "type:t")
	}
	for name, line := range map[string]string{"one more": "type:t", strings.Repeat("n", 50): "type:t",
		"f0": strings.Repeat("x", maxSavedSize)} {
		if to := save(name, line); !strings.HasSuffix(to, "&full=1") {
			t.Errorf("%.20q is saved: %s", name, to)
		}
	}
	if !strings.Contains(page("/jobs/?full=1&q=type:t"), "It was not saved") {
		t.Error("nothing says that it was not saved")
	}
}

// The search box gets the keys of filters, and the values that storages count.
func TestSearchTerms(t *testing.T) {
	s := newSite(t)
	s.enqueue("email.send", nil)
	s.has("/search/terms/", "type:email.send\n", "queue:default\n", "state:available\n", "args.\n", "cron:")
}
