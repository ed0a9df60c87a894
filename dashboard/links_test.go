package dashboard

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

func TestLinks(t *testing.T) {
	if _, err := New(newSite(t).eng, WithLinks(nil)); !errors.Is(err, ojs.ErrInvalid) {
		t.Errorf("no function: %v", err)
	}
	var given []Link
	s := newSite(t, WithLinks(func(job *ojs.JobInfo) []Link {
		job.Queue, job.Args = "changed", ojs.Args{} // its own copy
		return given
	}))
	path := "/jobs/" + s.enqueue("email.send", 7, ojs.WithQueue("mail")) + "/"
	if body := s.ok(path); strings.Contains(body, "noreferrer") || strings.Contains(body, "changed") {
		t.Error("links of a job that has none, or a change of the job")
	}
	t.Run("shown", func(t *testing.T) {
		given = []Link{{"Trace", "https://traces.example.com/trace/4bf9?a=1&b=\"2"},
			{"", "http://[::1]:3000/x"}}
		body := s.ok(path)
		for _, want := range []string{
			`<a href="https://traces.example.com/trace/4bf9?a=1&amp;b=%222" rel="noopener noreferrer">Trace</a>`,
			`<a href="http://[::1]:3000/x" rel="noopener noreferrer">[::1]:3000</a>`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("the page has no %s", want)
			}
		}
	})
	t.Run("left out", func(t *testing.T) {
		given = nil
		for _, u := range append([]string{"", "/jobs/", "//evil.example", "ftp://evil.example",
			"javascript://evil.example/%0aalert(1)", "data:text/html,evil", "https://user:pass@evil.example/",
			"https://", "https://:80/", "http:evil.example", "https://evil.example/\n",
			" https://evil.example"}, hostile...) {
			given = append(given, Link{"evil", u})
		}
		if body := s.ok(path); strings.Contains(body, "evil") || strings.Contains(body, "noreferrer") {
			t.Errorf("the page has a link that it must not have:\n%s", body)
		}
	})
	t.Run("escaped", func(t *testing.T) {
		given = nil
		for _, text := range hostile {
			given = append(given, Link{text, "https://x.example/?q=" + strings.ReplaceAll(text, "\x00", "")})
		}
		body := s.ok(path)
		for _, bad := range []string{"<script>alert", "<img src", "<svg/onload", "' onmouseover"} {
			if strings.Contains(body, bad) {
				t.Errorf("the page has %s unescaped", bad)
			}
		}
	})
	t.Run("twenty", func(t *testing.T) {
		given = nil
		for i := range 30 {
			given = append(given, Link{fmt.Sprint("link", i), "https://x.example/"})
		}
		if n := strings.Count(s.ok(path), "noreferrer"); n != maxLinks {
			t.Errorf("%d links, want %d", n, maxLinks)
		}
	})
}

func TestLinksSeeWhatIsShown(t *testing.T) {
	s := newSite(t, WithRedact(func(*ojs.JobInfo, Part, []byte) []byte { return []byte(`{"trace":"kept"}`) }),
		WithLinks(func(job *ojs.JobInfo) []Link {
			return []Link{{"Trace", fmt.Sprintf("https://x.example/?%v%s", job.Meta, job.Args.JSON())}}
		}))
	id := s.enqueue("email.send", "secret", ojs.WithMeta("trace", "kept"), ojs.WithMeta("token", "secret"))
	body := s.ok("/jobs/" + id + "/")
	if strings.Contains(body, "secret") || !strings.Contains(body, "trace:kept") {
		t.Errorf("the link has what the page hides, or not what it shows:\n%s", body)
	}
}
