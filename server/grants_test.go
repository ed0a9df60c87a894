package server_test

import (
	"strings"
	"testing"

	"github.com/ojsengine/ojs/server"
)

// A caller with the admin's role for one queue does nothing to the others (F193).
func TestOneQueueOnly(t *testing.T) {
	key, hash := server.NewKey()
	root, rootHash := server.NewKey()
	keys, err := server.NewKeys(nil,
		server.Key{Name: "mail", Hash: hash, Grants: []server.Grant{{Role: server.RoleAdmin,
			Queues: []string{"mail"}}}},
		server.Key{Name: "root", Hash: rootHash, Grants: []server.Grant{{Role: server.RoleAdmin}}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, server.WithAuthenticator(keys))
	as := func(key, request string) int {
		t.Helper()
		head, body, _ := strings.Cut(request, "\n\n")
		return r.do(head + "\nAuthorization: Bearer " + key + "\n\n" + body).Code
	}
	cron := `{"name":"nightly","cron":"0 3 * * *","type":"a","args":[],"options":{"queue":"%s"}}`
	if code := as(root, "POST /cron\n\n"+strings.Replace(cron, "%s", "other", 1)); code != 201 {
		t.Fatal(code)
	}
	w := r.do("POST /jobs\nAuthorization: Bearer " + root + "\n\n" + job)
	r.keep("A", w, "job.id")
	for _, request := range []string{
		"POST /cron\n\n" + strings.Replace(cron, "%s", "mail", 1), "DELETE /cron/nightly", "GET /jobs/$A",
		"DELETE /jobs/$A", "PATCH /jobs/$A\n\n" + `{"priority":1}`, "GET /admin/jobs/$A",
		"GET /admin/workers", "GET /workers", "GET /queues/default",
		"PUT /rate-limits/k/override\n\n" + `{"limit":1,"period":"PT1S"}`,
		"POST /admin/system/maintenance\n\n" + `{"enabled":true}`, "GET /admin/system/config",
		"GET /admin/stats/history", "GET /dead-letter/stats", "DELETE /queues/default",
		"GET /admin/queues/default",
		"POST /workers/fetch\n\n" + `{"queues":["mail","default"]}`, "POST /jobs/results\n\n" +
			`{"ids":["$A"]}`,
		"POST /admin/jobs/bulk/cancel\n\n" + `{"filter":{"queue":"default"},"confirm":true}`,
	} {
		if code := as(key, request); code != 403 {
			t.Errorf("F193: %s: status %d", request, code)
		}
	}
	as(key, "POST /admin/jobs/bulk/cancel\n\n"+`{"filter":{},"confirm":true}`)
	if code := as(root, "GET /jobs/$A"); code != 200 || member(t,
		r.do("GET /jobs/$A\nAuthorization: Bearer "+root),
		"job.state") != "available" {
		t.Error("F193: a job of another queue was cancelled")
	}
}
