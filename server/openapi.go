package server

import (
	_ "embed"
	"net/http"
	"regexp"
	"strings"
	"sync"
)

var openAPIRoutes = []route{
	{method: http.MethodGet, path: "/openapi.json", need: permAny, serve: (*Server).openAPI},
}

// schemas.json has the schemas of the answers, by name.
//
//go:embed schemas.json
var schemasJSON []byte

// answers are the statuses and schemas of each route that succeeds. A route that is not
// here answers with some object.
var answers = map[string]string{
	"GET /manifest": "200 Manifest", "GET /health": "200 Health, 503 Health",
	"GET /openapi.json": "200 Object",

	"POST /jobs": "201 JobAnswer, 200 JobAnswer", "POST /jobs/batch": "201 JobList, 200 JobList",
	"GET /jobs/{id}": "200 JobAnswer", "DELETE /jobs/{id}": "200 JobAnswer",
	"POST /jobs/{id}/activate": "200 JobAnswer", "PATCH /jobs/{id}": "200 Priority",
	"GET /jobs/{id}/result": "200 Result", "POST /jobs/results": "200 Results",
	"GET /jobs/{id}/progress": "200 Progress", "PUT /jobs/{id}/progress": "200 Progress",
	"GET /jobs/{id}/checkpoint": "200 Checkpoint", "POST /jobs/{id}/checkpoint": "200 Checkpoint",
	"PUT /jobs/{id}/checkpoint": "200 Checkpoint", "DELETE /jobs/{id}/checkpoint": "200 Checkpoint",
	"GET /unique-jobs": "200 UniqueJobs",

	"POST /workers/fetch": "200 Fetched", "POST /workers/ack": "200 Acknowledged",
	"POST /workers/nack": "200 Settled", "POST /workers/heartbeat": "200 Heartbeat",
	"POST /workers/beat": "200 Heartbeat", "POST /workers/register": "200 Registered",
	"POST /workers/deregister": "200 Deregistered", "POST /workers/progress": "200 WorkerProgress",
	"GET /workers": "200 Workers", "GET /workers/{id}/health": "200 WorkerHealth",
	"POST /jobs/{id}/ack":  "200 Acknowledged",
	"POST /jobs/{id}/nack": "200 Settled", "POST /jobs/{id}/heartbeat": "200 Heartbeat",

	"GET /dead-letter": "200 JobPage", "GET /dead-letter/stats": "200 DeadLetterStats",
	"GET /dead-letter/{id}": "200 JobAnswer", "POST /dead-letter/{id}/retry": "200 JobAnswer",
	"POST /dead-letter/retry": "200 Retried", "DELETE /dead-letter/{id}": "200 Deleted",
	"DELETE /dead-letter": "200 Purged",

	"GET /queues": "200 Queues", "POST /queues": "201 QueueMade", "GET /queues/{name}": "200 QueueStats",
	"GET /queues/{name}/stats":          "200 QueueStats",
	"GET /queues/{name}/priority-stats": "200 PriorityStats", "POST /queues/{name}/pause": "200 QueueStats",
	"POST /queues/{name}/resume": "200 QueueStats", "PUT /queues/{name}/config": "200 QueueConfig",
	"GET /queues/{name}/config": "200 QueueConfig", "DELETE /queues/{name}": "200 QueueDeleted",

	"POST /cron": "201 CronAnswer, 200 CronAnswer", "GET /cron": "200 Crons",
	"GET /cron/{name}":   "200 CronAnswer",
	"PATCH /cron/{name}": "200 CronAnswer", "DELETE /cron/{name}": "200 CronDeleted",
	"POST /crons": "201 Cron, 200 Cron", "GET /crons": "200 Crons", "GET /crons/{name}": "200 Cron",
	"PATCH /crons/{name}": "200 Cron", "DELETE /crons/{name}": "200 CronDeleted",

	"GET /admin/queues": "200 AdminQueues", "GET /admin/queues/{name}": "200 AdminQueue",
	"POST /admin/queues/{name}/pause":  "200 QueuePaused",
	"POST /admin/queues/{name}/resume": "200 QueuePaused",
	"PUT /admin/queues/{name}/config":  "200 QueueConfig",
	"DELETE /admin/queues/{name}/jobs": "200 QueuePurged",
	"GET /admin/jobs":                  "200 AdminJobs", "GET /admin/jobs/{id}": "200 Job",
	"POST /admin/jobs/{id}/cancel": "200 JobAnswer", "POST /admin/jobs/{id}/retry": "200 JobAnswer",
	"PATCH /admin/jobs/{id}": "200 Priority", "POST /admin/jobs/bulk/retry": "200 AdminBulk",
	"POST /admin/jobs/bulk/cancel": "200 AdminBulk", "POST /admin/jobs/bulk/delete": "200 AdminBulk",
	"GET /admin/dead-letter": "200 AdminJobs", "GET /admin/dead-letter/stats": "200 DeadLetterStats",
	"POST /admin/dead-letter/{id}/retry": "200 JobAnswer", "POST /admin/dead-letter/retry": "200 Retried",
	"DELETE /admin/dead-letter/{id}": "204", "DELETE /admin/dead-letter": "200 Purged",
	"GET /admin/workers": "200 Workers", "GET /admin/workers/{id}": "200 Worker",
	"POST /admin/workers/{id}/quiet": "200 Worker", "DELETE /admin/workers/{id}": "200 WorkerDeleted",
	"GET /admin/stats": "200 Stats", "GET /admin/stats/history": "200 History",
	"GET /admin/system/maintenance": "200 Maintenance", "POST /admin/system/maintenance": "200 Maintenance",
	"GET /admin/system/config": "200 Object",

	"POST /jobs/bulk":        "201 Bulk, 200 Bulk, 207 Bulk, 422 BulkRefused",
	"POST /jobs/bulk/cancel": "200 BulkChange, 207 BulkChange, 422 BulkChangeRefused",
	"POST /jobs/bulk/retry":  "200 BulkChange, 207 BulkChange, 422 BulkChangeRefused",
	"POST /jobs/bulk/delete": "200 BulkChange, 207 BulkChange, 422 BulkChangeRefused",

	"GET /events": "200 Events", "GET /ws": "101",

	"POST /workflows": "201 WorkflowAnswer", "GET /workflows": "200 Workflows",
	"GET /workflows/{id}": "200 WorkflowAnswer", "DELETE /workflows/{id}": "200 WorkflowAnswer",
	"POST /workflows/{id}/cancel":  "200 WorkflowAnswer",
	"GET /workflows/{id}/progress": "200 WorkflowProgress",

	"GET /rate-limits": "200 RateLimits", "GET /rate-limits/{key}": "200 RateLimit",
	"PUT /rate-limits/{key}": "200 RateLimit", "PUT /rate-limits/{key}/override": "200 RateLimit",
	"DELETE /rate-limits/{key}/override":     "200 RateLimit",
	"GET /admin/queues/{name}/rate-limit":    "200 QueueLimit",
	"PUT /admin/queues/{name}/rate-limit":    "200 QueueLimit",
	"DELETE /admin/queues/{name}/rate-limit": "200 QueueLimit",

	"POST /schemas": "201 SchemaAnswer", "GET /schemas": "200 Schemas",
	"GET /schemas/{uri}":                  "200 SchemaAnswer",
	"DELETE /schemas/{uri}":               "200 SchemaDeleted",
	"PUT /admin/schemas/{type}/{version}": "201 VersionSchema, 200 VersionSchema",
	"GET /admin/schemas":                  "200 VersionSchemas",
	"GET /admin/schemas/{type}":           "200 VersionSchemas",
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

// openAPIDocument is the OpenAPI document of all routes.
var openAPIDocument = sync.OnceValue(func() []byte {
	paths, places := obj{}, make(map[string]int)
	for _, rt := range routes() {
		p := base + rt.path
		if rt.path == "/manifest" {
			p = "/ojs/manifest"
		}
		at, there := places[p]
		if !there {
			at = len(paths) + 1
			places[p] = at
			paths = append(paths, p, obj{})
		}
		paths[at] = append(paths[at].(obj), strings.ToLower(rt.method), operation(&rt))
	}
	return appendValue(nil, obj{"openapi", "3.1.0",
		"info", obj{"title", "Open Job Spec", "version", "1.0", "license", obj{"name", "Apache-2.0"}},
		"servers", []obj{{"url", "/"}}, "paths", paths,
		"components", obj{"schemas", raw(schemasJSON), "securitySchemes",
			obj{"bearer", obj{"type", "http", "scheme", "bearer"}}}})
})

// operation describes a route.
func operation(rt *route) obj {
	reply := func(schema string) obj {
		return obj{"description", schema, "content", obj{contentType[0],
			obj{"schema", obj{"$ref", "#/components/schemas/" + schema}}}}
	}
	responses := obj{}
	list, known := answers[rt.method+" "+rt.path]
	if !known {
		responses = append(responses, "2XX", obj{"description", "done"})
	}
	for answer := range strings.SplitSeq(list, ", ") {
		status, schema, _ := strings.Cut(answer, " ")
		switch {
		case status == "":
		case schema == "":
			responses = append(responses, status, obj{"description", "done"})
		default:
			responses = append(responses, status, reply(schema))
		}
	}
	o := obj{"operationId", strings.ToLower(rt.method) + inPath.ReplaceAllString(
		strings.NewReplacer("/", "_", "-", "_", ".", "_").Replace(rt.path), "$1")}
	params := []obj{}
	for _, m := range inPath.FindAllStringSubmatch(rt.path, -1) {
		params = append(params, obj{"name", m[1], "in", "path", "required", true, "schema", obj{"type",
			"string"}})
	}
	if len(params) > 0 {
		o = append(o, "parameters", params)
	}
	if rt.body != noBody {
		o = append(o, "requestBody", obj{"required", rt.body == requiredBody, "content",
			obj{contentType[0], obj{"schema", obj{"type", "object"}}}})
	}
	security := []obj{{}, {"bearer", []string{}}}
	if rt.need == permHealth {
		security = security[:1]
	}
	return append(o, "responses", append(responses, "default", reply("Error")), "security", security)
}

// openAPI answers GET /openapi.json.
func (s *Server) openAPI(c *call) error {
	return c.replyJSON(http.StatusOK, append(c.buf[:0], s.openapi()...))
}
