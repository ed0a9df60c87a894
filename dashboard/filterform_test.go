package dashboard

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

// The fields of a line make the same line again, and those of a reader the line that the
// reader would have typed.
func TestFilterForm(t *testing.T) {
	s := newSite(t)
	for _, line := range []string{"", "state:active", "state:active state:retryable queue:a",
		`error:"i/o timeout" queue:mail type:email.* tag:vip tag:"two words" since:1h`,
		"type:a since:2026-02-01 priority:10.. args.user.id:42 order:newest",
		"tag:'o'neil tag:`a`b queue:a'b' since:2026-02-01T10:00:00Z",
		`meta.note:"since:1h since:x" since:7d`} {
		body := s.ok("/jobs/?q=" + url.QueryEscape(line))
		w := s.get("/jobs/?" + fieldsIn(t, body).Encode())
		to, err := url.Parse(w.Header().Get("Location"))
		if err != nil || w.Code != http.StatusSeeOther {
			t.Fatalf("%q: %d, %v", line, w.Code, err)
		}
		got := to.Query().Get("q")
		if !sameTerms(got, line) {
			t.Errorf("%q gives %q", line, got)
		}
		if got == "" {
			continue
		}
		if body := s.ok("/jobs/?q=" + url.QueryEscape(got)); strings.Contains(body, `role="alert"`) {
			t.Errorf("%q gives %q, which is refused", line, got)
		}
	}
	for query, want := range map[string]string{
		"form=1": "./?q=",
		"form=1&state=&type=+email.*++sms.*+&since=2h": "./?q=type%3Aemail.%2A+type%3Asms.%2A+since%3A2h",
		`form=1&tag="a+b"+c&error=x+y&rest=order:newest`: "./?q=error%3A%22x+y%22+tag%3A%22a+b%22+tag%3Ac" +
			"+order%3Anewest",
		`form=1&tag="open`:     "./?q=tag%3A%22open",
		`form=1&tag="a"b+'c+d`: "./?q=tag%3A%22a%22b+tag%3A%27c+tag%3Ad",
	} {
		if to := s.get("/jobs/?" + query).Header().Get("Location"); to != want {
			t.Errorf("%s leads to %s, want %s", query, to, want)
		}
	}
	job := s.enqueue("email.send", 1, ojs.WithTags("a b"))
	s.clock.Add(time.Hour)
	s.enqueue("email.send", 1)
	to := s.get(`/jobs/?form=1&tag="a+b"&type=email.*`).Header().Get("Location")
	list := s.ok("/jobs/" + strings.TrimPrefix(to, "./"))
	if !strings.Contains(list, job) || !strings.Contains(list, "1 shown") {
		t.Error(list)
	}
}

// sameTerms reports whether two lines have the same terms, in any order.
func sameTerms(a, b string) bool {
	count := make(map[string]int)
	for _, term := range termOf.FindAllString(a, -1) {
		count[term]++
	}
	for _, term := range termOf.FindAllString(b, -1) {
		count[term]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

var (
	termOf  = regexp.MustCompile(`[^\s"]+("[^"]*")?`)
	aForm   = regexp.MustCompile(`(?s)<form class="settings bound" action="./" method="get">.*?</form>`)
	anInput = regexp.MustCompile(`<input [^>]*name="([^"]*)" value="([^"]*)"`)
	aChoice = regexp.MustCompile(`<option value="([^"]*)" selected>`)
)

// fieldsIn are the values of the form of a page.
func fieldsIn(t *testing.T, body string) url.Values {
	t.Helper()
	form := aForm.FindString(body)
	out := url.Values{}
	for _, m := range anInput.FindAllStringSubmatch(form, -1) {
		out.Set(m[1], html.UnescapeString(m[2]))
	}
	m := aChoice.FindStringSubmatch(form)
	if m == nil {
		t.Fatalf("no state is selected in\n%s", form)
	}
	out.Set("state", m[1])
	return out
}
