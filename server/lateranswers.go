package server

import "maps"

// laterAnswers are the answers of laterRoutes, for the OpenAPI document.
var laterAnswers = map[string]string{
	"POST /jobs/bulk":        "201 Bulk, 200 Bulk, 207 Bulk, 422 BulkRefused",
	"POST /jobs/bulk/cancel": "200 BulkChange, 207 BulkChange, 422 BulkChangeRefused",
	"POST /jobs/bulk/retry":  "200 BulkChange, 207 BulkChange, 422 BulkChangeRefused",
	"POST /jobs/bulk/delete": "200 BulkChange, 207 BulkChange, 422 BulkChangeRefused",

	"GET /events": "200 Events",

	"POST /workflows": "201 WorkflowAnswer", "GET /workflows": "200 Workflows",
	"GET /workflows/{id}": "200 WorkflowAnswer", "DELETE /workflows/{id}": "200 WorkflowAnswer",
	"POST /workflows/{id}/cancel":  "200 WorkflowAnswer",
	"GET /workflows/{id}/progress": "200 WorkflowProgress",

	"GET /rate-limits": "200 RateLimits", "GET /rate-limits/{key}": "200 RateLimit",
	"PUT /rate-limits/{key}": "200 RateLimit", "DELETE /rate-limits/{key}/override": "200 RateLimit",
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

func init() { maps.Copy(answers, laterAnswers) }
