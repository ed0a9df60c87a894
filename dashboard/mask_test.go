package dashboard

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

func TestMask(t *testing.T) {
	for in, want := range map[string]string{
		`{"password":"hunter2","n":9007199254740993}`: `{"password":"•••","n` +
			`":9007199254740993}`,
		`{ "user" : {"API_KEY" : "x\"y" , "a":1}}`: `{ "user" : {"API_KEY` +
			`" : "•••" , "a":1}}`,
		`{"secrets":{"a":"b"},"cookies":["a",1],"b":[1]}`: `{"secrets":"•••","coo` +
			`kies":"•••","b":[1]}`,
		`[{"accessToken":"a"},{"Authorization":"b"}]`: `[{"accessToken":"•••"},{` +
			`"Authorization":"•••"}]`,
		// A number, and a value that says nothing, is no secret.
		`{"max_tokens":512,"secret":null,"token":""}`: `{"max_tokens":512,"sec` +
			`ret":null,"token":""}`,
		// Numbers of cards keep their ends.
		`{"card":"4111 1111 1111 1111"}`:  `{"card":"••• 1111"}`,
		`["pay 5500-0000-0000-0004 now"]`: `["pay ••• 0004 now"]`,
		`{"n":4111111111111111}`:          `{"n":"••• 1111"}`,
		`{"n":4111111111111112}`:          `{"n":4111111111111112}`,
		`{"id":"1732690000000000000"}`:    `{"id":"1732690000000000000"}`,
		// Text that names a secret.
		`"login failed: password=hunter2, user=ada"`: `"login failed: password=•••, user=ada"`,
		`"Authorization: Bearer abc.def"`:            `"Authorization: •••"`,
		`"the token is bad"`:                         `"the token is bad"`,
		`"a \"token\":\"x\" b"`:                      `"a \"token\":\"•••\" b"`,
		`{"cookie":"a","cookie":"b"} `:               `{"cookie":"•••","cookie":"•••"} `,
		// The value goes on to its quote, and that of a header to the end of its line.
		`"Cookie: a=b; session=S\nhost: h"`:   `"Cookie: •••\nhost: h"`,
		`"Authorization: Token S"`:            `"Authorization: •••"`,
		`"authorization=Digest a=\"b\", c=S"`: `"authorization=•••"`,
		`"aws_secret_access_key=S x"`:         `"aws_secret_access_key=••• x"`,
		`"access_token_v2=S"`:                 `"access_token_v2=•••"`,
		`"passwords=S"`:                       `"passwords=•••"`,
		`"bad: {\"password\":\"a b,c\",\"n\":1}"`: `"bad: {\"password\"` +
			`:\"•••\",\"n\":1}"`,
		`"bad: {\\\"password\\\":\\\"a b,c\\\",\\\"n\\\":1}"`: `"bad: {\\\"password\\\":\` +
			`\\"•••\\\",\\\"n\\\":1}"`,
		`"password='a b', n"`:      `"password='•••', n"`,
		`"password=\u003cS\u003e"`: `"password=•••"`,
		`["{\"pin\":{\"secret\":[\"S\"]},\"max_tokens\":5}"]`: `["{\"pin\":{\"secret\":\"•` +
			`••\"},\"max_tokens\":5}"]`,
		`["{\"a\":\"{\\\"password\\\":\\\"a b\\\"}\"}"]`: `["{\"a\":\"{\\\"password` +
			`\\\":\\\"•••\\\"}\"}"]`,
		`"<b>token</b> token=S <i>"`: `"<b>token</b> token=••• <i>"`,
		// Escapes hide no name.
		`{"pass\u0077ord":"x"}`: `{"pass\u0077ord":"•••"}`,
		// Other digits beside the number of a card.
		`"4111 1111 1111 1111 12/27"`:   `"••• 1111 12/27"`,
		`"4111 1111 1111 1111 123"`:     `"••• 1111 123"`,
		`"order 35 4111111111111111"`:   `"order 35 ••• 1111"`,
		`"7 4111-1111-1111-1111 8 9"`:   `"7 ••• 1111 8 9"`,
		`"no 9994111111111111111 card"`: `"no 9994111111111111111 card"`,
		`{"n":"4111111111111111"}`:      `{"n":"••• 1111"}`,
		`{"a":"plain"}`:                 `{"a":"plain"}`,
		`not JSON with a password`:      `not JSON with a password`,
	} {
		got := string(mask(nil, PartArgs, []byte(in)))
		if got != want || json.Valid([]byte(in)) != json.Valid([]byte(got)) {
			t.Errorf("%s\n\tis masked %s\n\tnot       %s", in, got, want)
		}
	}
}

func FuzzMask(f *testing.F) {
	f.Add(`{"password":["a",{"b":"4111111111111111"}]}`)
	f.Fuzz(func(t *testing.T, in string) {
		got := mask(nil, PartArgs, []byte(in))
		if json.Valid([]byte(in)) != json.Valid(got) {
			t.Errorf("%q becomes %q", in, got)
		}
	})
}

// Pages mask what is named as a secret, in every part of a job, unless that is switched
// off.
func TestPagesMaskSecrets(t *testing.T) {
	for _, on := range []bool{true, false} {
		var opts []Option
		if !on {
			opts = append(opts, WithoutMasks())
		}
		s := newSite(t, append(opts, WithAuthorizer(AllowAll))...)
		id := s.enqueue("t", map[string]any{"password": "hunter2"}, ojs.WithMeta("token", "hunter2"))
		at := "/jobs/" + id + "/"
		for _, path := range []string{"/jobs/", at, at + "raw/", at + "edit/"} {
			if body := s.ok(path); strings.Contains(body, "hunter2") == on {
				t.Errorf("%s with masks %v:\n%s", path, on, body)
			}
		}
	}
}

// Every part of a job is masked, each without the help of another.
func TestMaskOfEveryPart(t *testing.T) {
	h, secret := newSite(t).pages, json.RawMessage(`{"password":"hunter2"}`)
	object := map[string]any{"password": "hunter2"}
	failures := []ojs.Failure{{Message: "password=hunter2", Details: object}}
	for name, job := range map[string]ojs.JobInfo{
		"meta":    {JobHeader: ojs.JobHeader{Meta: object}},
		"result":  {Result: secret},
		"extra":   {Extra: map[string]json.RawMessage{"x": secret}},
		"message": {Error: &ojs.Failure{Message: "password=hunter2"}},
		"details": {Error: &ojs.Failure{Details: object}},
		"history": {JobHeader: ojs.JobHeader{Errors: failures}},
	} {
		b, err := json.Marshal(h.shown(&job))
		if err != nil || strings.Contains(string(b), "hunter2") || !strings.Contains(string(b), masked) {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
}
