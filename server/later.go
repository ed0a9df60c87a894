package server

import "slices"

// laterRoutes are those of workflows, bulk, events, schemas and limits.
var laterRoutes = slices.Concat(bulkRoutes, eventRoutes, workflowRoutes, limitRoutes, schemaRoutes)
