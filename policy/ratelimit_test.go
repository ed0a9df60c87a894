package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

func TestRateLimitKey(t *testing.T) {
	type customer struct {
		ID int `json:"id"`
	}
	type mail struct {
		Customer customer `json:"customer"`
		To       string   `json:"to"`
		VIP      bool     `json:"vip"`
		Tags     []string `json:"tags"`
		None     *string  `json:"none"`
	}
	m := mail{Customer: customer{7}, To: "a@example.com", VIP: true, Tags: []string{"x"}}
	hashed := func(text string) string { return ojs.RateLimitKey("mail", text) }
	for member, tt := range map[string]struct {
		args any
		want string
	}{
		"args.customer.id":      {m, "mail:7"},
		"args.vip":              {&m, "mail:true"},
		"args.to":               {m, hashed("a@example.com")},
		"args.tags":             {m, hashed(`["x"]`)},
		"args.customer":         {m, hashed(`{"id":7}`)},
		"args.none":             {m, "mail"},
		"args.missing":          {m, "mail"},
		"args.to.deeper":        {m, "mail"},
		"args.customer.missing": {m, "mail"},
		"args.id":               {json.RawMessage(`[{"id": "7"}]`), "mail:7"},
		"args.twice":            {json.RawMessage(`{"twice":1,"twice":2}`), "mail:2"},
		"args.a":                {json.RawMessage(`[{"a":1},{"a":2}]`), "mail"},
		"args.b":                {json.RawMessage(`null`), "mail"},
		"args.spaces":           {json.RawMessage(`{"spaces": [1, 2]}`), hashed("[1,2]")},
		"meta.tenant":           {nil, "mail:acme"},
		"meta.number":           {nil, "mail:5"},
		"meta.nested.id":        {nil, "mail:x"},
		"meta.nested.none":      {nil, "mail"},
		"meta.missing":          {nil, "mail"},
		"meta.null":             {nil, "mail"},
	} {
		args, err := ojs.NewArgs(tt.args)
		if err != nil {
			t.Fatal(err)
		}
		job := &ojs.JobInfo{Args: args, JobHeader: ojs.JobHeader{Meta: map[string]any{
			"tenant": "acme", "number": 5.0, "nested": map[string]any{"id": "x"}, "null": nil,
		}}}
		if got, err := policy.RateLimitKey("mail", member, job); got != tt.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", member, got, err, tt.want)
		}
	}
}
