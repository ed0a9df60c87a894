package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

// field is the value of a field of a page.
func field(t testing.TB, body, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("no %s in\n%s", pattern, body)
	}
	return m[1]
}

// post posts a form twice: the first post shows what would change, and changes nothing.
func (s *site) post(id string, form url.Values) (preview string, to string) {
	s.t.Helper()
	at := "/jobs/" + id + "/edit/"
	before := s.stored(id)
	w := s.do("POST", at, form.Encode())
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `name="sure"`) {
		s.t.Fatalf("%v: %d\n%s", form, w.Code, w.Body)
	}
	if after := s.stored(id); !bytes.Equal(before, after) {
		s.t.Errorf("%v: the preview has done it", form)
	}
	preview = w.Body.String()
	form.Set("sure", "1")
	w = s.do("POST", at, form.Encode())
	if w.Code != http.StatusSeeOther {
		s.t.Fatalf("%v: %d\n%s", form, w.Code, w.Body)
	}
	return preview, w.Header().Get("Location")
}

func (s *site) stored(id string) []byte {
	s.t.Helper()
	job, err := s.eng.Get(context.Background(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := json.Marshal(job)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (s *site) job(id string) *ojs.JobInfo {
	s.t.Helper()
	job, err := s.eng.Get(context.Background(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return job
}

func TestChangesOfAJob(t *testing.T) {
	s := newSite(t, WithAuthorizer(AllowAll))
	id := s.enqueue("t", json.RawMessage(`{"n":12345678901234567890,"x":1}`), ojs.WithMeta("a", 1),
		ojs.WithMeta("b", 2))
	s.post(id, url.Values{"do": {"prioritize"}, "priority": {"7"}})
	s.post(id, url.Values{"do": {"move"}, "queue": {"other"}})
	s.post(id, url.Values{"do": {"reschedule"}, "at": {"2026-03-01T13:00:00"}})
	job := s.job(id)
	if job.Priority != 7 || job.Queue != "other" || !job.ScheduledAt.Equal(s.clock.Now().Add(time.Hour)) {
		t.Errorf("%+v", job.JobHeader)
	}
	was := field(t, s.ok("/jobs/"+id+"/edit/"), `name="was" value="([^"]*)"`)
	args := `{"n": 12345678901234567891, "x": 1}`
	preview, to := s.post(id, url.Values{"do": {"edit"}, "was": {was}, "args": {args},
		"meta": {`{"a":1,"c":[3]}`}})
	if !strings.Contains(preview, "12345678901234567890") || !strings.Contains(preview, "meta.b") ||
		strings.Contains(preview, "meta.a") || to != "../?did=edit" {
		t.Errorf("%s leads to %s", preview, to)
	}
	job = s.job(id)
	if got := string(job.Args.JSON()); got != `{"n":12345678901234567891,"x":1}` {
		t.Errorf("args are %s", got)
	}
	if b, err := json.Marshal(job.Meta); err != nil || string(b) != `{"a":1,"c":[3]}` {
		t.Errorf("meta is %s: %v", b, err)
	}
	_, to = s.post(id, url.Values{"do": {"copy"}, "args": {`{"n":1}`}, "queue": {"third"}})
	copied := s.job(strings.TrimSuffix(strings.TrimPrefix(to, "../../"), "/?did=copy"))
	if string(copied.Args.JSON()) != `{"n":1}` || copied.Queue != "third" {
		t.Errorf("the copy has %s in %s", copied.Args.JSON(), copied.Queue)
	}
	at := "/jobs/" + id + "/edit/"
	now := field(t, s.ok(at), `name="was" value="([^"]*)"`)
	for form, status := range map[string]int{
		"do=edit&args=1&meta={}&was=" + was:      409, // of a form of before
		"do=edit&args=nojson&meta={}&was=" + now: 409,
		"do=edit&args=&meta={}&was=" + now:       409,
		"do=edit&args={}&meta=[]&was=" + now:     409,
		"do=move&queue=Not+A+Queue&sure=1":       409,
		"do=prioritize&priority=high":            409,
		"do=reschedule&at=tomorrow":              409,
		"do=nonsense":                            404,
		"do=delete&sure=1":                       404,
	} {
		if w := s.do("POST", at, form); w.Code != status {
			t.Errorf("%s: %d, want %d\n%s", form, w.Code, status, w.Body)
		}
	}
}

// A discarded job is retried in another queue, with another priority.
func TestRetryInAnotherWay(t *testing.T) {
	s, ids := full(t, WithAuthorizer(func(_ *http.Request, a Action) error {
		if a.Queue == "closed" {
			return errors.New("not there")
		}
		return nil
	}))
	id := ids["discarded"]
	at := "/jobs/" + id + "/edit/"
	form := "do=retry&priority=7&queue="
	if w := s.do("POST", "/jobs/"+ids["available"]+"/edit/", form+"other&sure=1"); w.Code != 409 {
		t.Errorf("an available job: %d", w.Code)
	}
	for form, status := range map[string]int{
		form + "closed&sure=1": 403, form + "Not+A+Queue&sure=1": 409, form + "&sure=1": 409,
		"do=retry&priority=x&queue=other": 409,
	} {
		if w := s.do("POST", at, form); w.Code != status {
			t.Errorf("%s: %d, want %d\n%s", form, w.Code, status, w.Body)
		}
	}
	preview, to := s.post(id, url.Values{"do": {"retry"}, "queue": {"other"}, "priority": {"7"}})
	job := s.job(id)
	if !strings.Contains(preview, "other") || to != "../?did=retry" || job.State != ojs.StateAvailable ||
		job.Queue != "other" || job.Priority != 7 {
		t.Errorf("%s leads to %s: %+v", preview, to, job.JobHeader)
	}
}

// A form has no redacted value, and none gets into the job by it.
func TestEditNeverWritesARedactedValue(t *testing.T) {
	hide := func(_ *ojs.JobInfo, part Part, in []byte) []byte {
		switch part {
		case PartArgs:
			return []byte(`{"card":"hidden"}`)
		case PartMeta:
			return bytes.ReplaceAll(in, []byte("s3cret"), []byte("hidden"))
		}
		return in
	}
	s := newSite(t, WithAuthorizer(AllowAll), WithRedact(hide))
	args := `{"card":"4711 s3cret"}`
	id := s.enqueue("t", json.RawMessage(args), ojs.WithMeta("open", "a"),
		ojs.WithMeta("token", map[string]any{"value": "s3cret", "name": "n"}))
	at := "/jobs/" + id + "/edit/"
	body := s.ok(at)
	if strings.Contains(body, "s3cret") || strings.Contains(body, "hidden&#34;") ||
		!strings.Contains(body, "redacted") {
		t.Errorf("the form has a secret, or what is in its place:\n%s", body)
	}
	was := field(t, body, `name="was" value="([^"]*)"`)
	preview, _ := s.post(id, url.Values{"do": {"edit"}, "was": {was}, "meta": {`{"open":"b"}`}})
	if strings.Contains(preview, "s3cret") {
		t.Error("the preview shows the secret")
	}
	job := s.job(id)
	token, _ := job.Meta["token"].(map[string]any)
	if string(job.Args.JSON()) != args || token["value"] != "s3cret" || job.Meta["open"] != "b" {
		t.Errorf("the job has %s and %v", job.Args.JSON(), job.Meta)
	}
	was = field(t, s.ok(at), `name="was" value="([^"]*)"`)
	for _, form := range []url.Values{
		{"do": {"edit"}, "was": {was}, "sure": {"1"},
			"meta": {`{"open":"b","token":{"value":"hidden","name":"m"}}`}},
		{"do": {"edit"}, "was": {was}, "sure": {"1"}, "args": {`{ "card": "hidden" }`},
			"meta": {`{"open":"b"}`}},
		{"do": {"copy"}, "args": {`{"card":"hidden"}`}, "sure": {"1"}},
	} {
		if w := s.do("POST", at, form.Encode()); w.Code != http.StatusConflict {
			t.Errorf("%v: %d", form, w.Code)
		}
	}
	_, to := s.post(id, url.Values{"do": {"copy"}, "args": {""}})
	copied := s.job(strings.TrimSuffix(strings.TrimPrefix(to, "../../"), "/?did=copy"))
	if string(copied.Args.JSON()) != args {
		t.Errorf("the copy has %s", copied.Args.JSON())
	}
	_, _ = s.post(id, url.Values{"do": {"edit"}, "was": {was}, "args": {`{"card":"other"}`},
		"meta": {`{"open":"b"}`}})
	if got := string(s.job(id).Args.JSON()); got != `{"card":"other"}` {
		t.Errorf("new args are %s", got)
	}
}

// A job moves only to a queue that the request may move jobs to.
func TestAuthorizerDecidesOnChanges(t *testing.T) {
	s := newSite(t, WithAuthorizer(func(_ *http.Request, a Action) error {
		if a.Do == Read || a.Do == Move && a.Queue != "secret" {
			return nil
		}
		return errors.New("not yours")
	}))
	id := s.enqueue("t", 1)
	at := "/jobs/" + id + "/edit/"
	if body := s.ok(at); !strings.Contains(body, `value="move"`) || strings.Contains(body, `value="edit"`) {
		t.Error(body)
	}
	for form, status := range map[string]int{"do=move&queue=secret&sure=1": 403, "do=copy&args=1&sure=1": 403,
		"do=edit&args=2&meta={}": 409, "do=prioritize&priority=1": 403, "do=move&queue=b&sure=1": 303} {
		if w := s.do("POST", at, form); w.Code != status {
			t.Errorf("%s: %d, want %d\n%s", form, w.Code, status, w.Body)
		}
	}
	forged := s.do("POST", at, "do=move&queue=c&sure=1", "Origin", "https://evil.example",
		"Sec-Fetch-Site", "cross-site")
	if forged.Code != http.StatusForbidden || s.job(id).Queue != "b" {
		t.Errorf("%d, in %s", forged.Code, s.job(id).Queue)
	}
}

// An integer that no float64 holds keeps its digits on the pages, by a redactor and by a
// change of the meta.
func TestPagesKeepDigits(t *testing.T) {
	const id, other = "3889108265204450030", "3889108265204450031"
	same := func(_ *ojs.JobInfo, _ Part, b []byte) []byte { return b }
	s := newSite(t, WithAuthorizer(AllowAll), WithRedact(same))
	args := json.RawMessage(`{"id":` + id + `}`)
	job := s.enqueue("t", args, ojs.WithMeta("id", json.Number(id)), ojs.WithMeta("n", 1))
	if body := s.ok("/jobs/" + job + "/"); strings.Count(body, id) < 2 {
		t.Errorf("args and meta have lost digits:\n%s", body)
	}
	was := field(t, s.ok("/jobs/"+job+"/edit/"), `name="was" value="([^"]*)"`)
	s.post(job, url.Values{"do": {"edit"}, "was": {was}, "args": {string(args)},
		"meta": {`{"id":` + id + `,"n":` + other + `}`}})
	if meta := s.job(job).Meta; fmt.Sprintf("%v %v", meta["id"], meta["n"]) != id+" "+other {
		t.Errorf("the meta is %v", meta)
	}
}
